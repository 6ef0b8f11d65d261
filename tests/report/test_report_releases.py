import json

import pytest

from privet.evaluation import HeldOutEstimate
from privet.report.releases import ReleaseStatus, list_releases
from privet.report.run_files import read

HELD_OUT = HeldOutEstimate(
    task="classification", metrics={"accuracy": 0.8}, intervals={"accuracy": (0.7, 0.9)}, examples=100, unit="example",
    epsilon=0.1, delta=1e-6, noise_multiplier=3.0,
)  # fmt: skip


def by_name(directory):
    return {release.what: release for release in list_releases(read(directory))}


@pytest.mark.parametrize(("what", "status", "file"), [
    ("Model weights", ReleaseStatus.COVERED, "model.safetensors"),
    ("ε, δ", ReleaseStatus.PUBLIC, "guarantee.json"),
    ("The plan", ReleaseStatus.PUBLIC, "plan.json"),
    ("The privacy ledger", ReleaseStatus.PUBLIC, "ledger.jsonl"),
    ("Results on test data", ReleaseStatus.OUTSIDE, "evaluation.json"),
    ("Description and card", ReleaseStatus.PUBLIC, "model/README.md"),
    ("Result on held-out", ReleaseStatus.COVERED, "holdout.json"),
    ("Keys for resuming", ReleaseStatus.PRIVATE, "division.key"),
    ("Keys for resuming", ReleaseStatus.PRIVATE, "fingerprint.json"),
    ("Training setup", ReleaseStatus.PUBLIC, "schema.toml"),
    ("Wall-clock", ReleaseStatus.OUTSIDE, "metrics.jsonl"),
    ("This report", ReleaseStatus.MIXED, None),
    ("Actual batch sizes", ReleaseStatus.NEVER, None),
])  # fmt: skip
def test_each_output_has_its_status(write_run, what, status, file):
    directory = write_run()
    (directory / "model").mkdir()
    for name in ("model/README.md", "division.key", "fingerprint.json", "schema.toml"):
        (directory / name).write_text("", encoding="utf-8")
    (directory / "holdout.json").write_text(json.dumps(HELD_OUT.to_dict()), encoding="utf-8")
    (release,) = (release for name, release in by_name(directory).items() if name.startswith(what))
    assert release.status is status
    assert file is None or file in release.files


def test_every_file_of_the_directory_is_in_the_table(write_run):
    directory = write_run()
    (directory / "checkpoint-000100").mkdir()
    (directory / "notes.txt").write_text("", encoding="utf-8")
    listed = {file for release in by_name(directory).values() for file in release.files}
    assert listed == {path.name for path in directory.iterdir()} | {"report.html", "figures"}


def test_the_folder_of_the_model_is_listed_by_its_files(write_run):
    directory = write_run()
    (directory / "model").mkdir()
    for name in ("model.safetensors", "model.json", "README.md", "notes.txt"):
        (directory / "model" / name).write_bytes(b"")
    found = by_name(directory)
    weights = next(release for name, release in found.items() if name.startswith("Model weights"))
    assert weights.status is ReleaseStatus.COVERED
    assert "model/model.safetensors" in weights.files
    described = found["Description and card of the model"]
    assert (described.status, described.files) == (ReleaseStatus.PUBLIC, ("model/README.md", "model/model.json"))
    assert "model/notes.txt" in found["Other files"].files


def test_an_unknown_file_or_quantity_is_not_vouched_for(write_run, metrics_until):
    directory = write_run(metrics=[line | {"training_loss": 0.1} for line in metrics_until(300)])
    (directory / "gradients.pt").write_bytes(b"")
    found = by_name(directory)
    assert found["Other files"].files == ("gradients.pt",)
    for name in ("Other files", "Other recorded quantities: training_loss"):
        assert found[name].status is ReleaseStatus.OUTSIDE


def test_released_statistics_are_covered_and_settings_are_known(write_run, metrics_until):
    more = {"clipping:within bound": 0.1, "learning_rate": 0.5, "sensitivity": 1.0}
    found = by_name(write_run(metrics=[line | more for line in metrics_until(300)]))
    assert found["Statistics of adaptive rules"].status is ReleaseStatus.COVERED
    assert not [name for name in found if name.startswith("Other recorded quantities")]
    assert "Statistics of adaptive rules" not in by_name(write_run(metrics=metrics_until(300)))
    exposed = by_name(write_run(metrics=[{"step": 1, **more}], guarantee={"epsilon": "inf"}))
    assert exposed["Statistics of adaptive rules"].status is ReleaseStatus.UNPROTECTED


def test_lines_of_one_step_complement_each_other(write_run):
    lines = [{"step": 5, "epsilon": 1.0, "test_accuracy": 0.3}, {"step": 5, "test_accuracy": 0.5}, {"step": 6, "epsilon": 2.0}]
    found = read(write_run(metrics=lines)).measurements
    assert [(one.step, one.epsilon, one.test_accuracy) for one in found] == [(5, 1.0, 0.5), (6, 2.0, None)]


@pytest.mark.parametrize("guarantee", [None, {"epsilon": "inf"}])
def test_weights_without_a_finite_guarantee_are_unprotected(write_run, guarantee):
    weights, *_ = list_releases(read(write_run(guarantee=guarantee)))
    assert weights.status is ReleaseStatus.UNPROTECTED
