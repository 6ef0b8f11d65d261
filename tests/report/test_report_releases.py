"""The table of releases: everything that is in the directory, nothing vouched for that is not known."""

from __future__ import annotations

import pytest

from privet.report.releases import Standing, releases
from privet.report.run_files import read


def standings(directory):
    return {release.what: release for release in releases(read(directory))}


@pytest.mark.parametrize(
    ("what", "standing", "file"),
    [
        ("Model weights", Standing.COVERED, "model.safetensors"),
        ("ε, δ", Standing.PUBLIC, "guarantee.json"),
        ("The plan", Standing.PUBLIC, "plan.json"),
        ("The record", Standing.PUBLIC, "ledger.jsonl"),
        ("Test accuracy", Standing.OUTSIDE, "evaluation.json"),
        ("Wall-clock", Standing.OUTSIDE, "metrics.jsonl"),
        ("This report", Standing.MIXED, None),
        ("Realised batch sizes", Standing.NEVER, None),
    ],
)
def test_each_thing_stands_where_it_should(write_run, what, standing, file):
    (release,) = (release for name, release in standings(write_run()).items() if name.startswith(what))
    assert release.standing is standing
    assert file is None or file in release.files


def test_every_file_of_the_directory_is_in_the_table(write_run):
    directory = write_run()
    (directory / "checkpoint-000100").mkdir()
    (directory / "notes.txt").write_text("", encoding="utf-8")
    listed = {file for release in standings(directory).values() for file in release.files}
    assert listed == {path.name for path in directory.iterdir()} | {"report.html", "figures"}


def test_file_that_is_not_known_is_not_vouched_for(write_run):
    directory = write_run()
    (directory / "gradients.pt").write_bytes(b"")
    release = standings(directory)["Other files"]
    assert release.files == ("gradients.pt",)
    assert release.standing is Standing.OUTSIDE


def test_quantity_that_should_never_be_recorded_is_called_out(write_run, metrics_until):
    lines = [line | {"training_loss": 0.1} for line in metrics_until(300)]
    release = standings(write_run(metrics=lines))["Other recorded quantities: training_loss"]
    assert release.standing is Standing.OUTSIDE


@pytest.mark.parametrize("guarantee", [None, {"epsilon": "inf"}])
def test_weights_without_a_finite_guarantee_are_unprotected(write_run, guarantee):
    weights, *_ = releases(read(write_run(guarantee=guarantee)))
    assert weights.standing is Standing.UNPROTECTED


def test_report_does_not_change_the_table(write_run):
    directory = write_run()
    before = [release.what for release in releases(read(directory))]
    (directory / "figures").mkdir()
    (directory / "report.html").write_text("", encoding="utf-8")
    assert [release.what for release in releases(read(directory))] == before
