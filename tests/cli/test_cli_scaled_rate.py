"""`privet train --scale-from` moves the learning rate of another run along the diagonal of the scaling rule, or refuses."""

import pytest
from asked import ask

from privet.cli import main
from privet.plan import Plan

OPTIONS = (
    "--data", "digits", "--model", "logistic", "--delta", 1e-5, "--batch-size", 90, "--steps", 3, "--optimizer",
)  # fmt: skip


def sigma(out):
    return Plan.from_json((out / "plan.json").read_text(encoding="utf-8")).noise_multiplier


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """Runs of two optimizers with bound 0.2 at ε = 2; that of SGD has momentum 0.5."""
    folder = tmp_path_factory.mktemp("known")
    for optimizer, momentum in (("sgd", 0.5), ("adam", 0)):
        words = (*OPTIONS, optimizer, "--epsilon", 2, "--bound", 0.2, "--momentum", momentum, "--learning-rate", 0.7)
        with pytest.raises(SystemExit) as stop:
            main(["train", *map(str, words), "--quiet", "--out", str(folder / optimizer)])
        assert stop.value.code == 0
    return folder


def test_the_noise_on_the_parameters_stays_that_of_the_known_run(known, prepared):
    source = known / "sgd"
    words = (*OPTIONS, "sgd", "--epsilon", 0.7, "--bound", 0.05, "--momentum", 0.8, "--scale-from", source)
    setup, plan = prepared(*words)
    found, before = plan.noise_multiplier, sigma(source)
    assert found > 1.5 * before
    assert setup.learning_rate == pytest.approx(0.7 * (0.2 / 0.05) * ((1 - 0.8) / (1 - 0.5)) * before / found)
    assert setup.defaults["scaled_from"] == str(source)


def test_the_sensitivity_of_a_rule_is_its_bound(known, prepared):
    words = ("--noise-multiplier", sigma(known / "sgd"), "--bound", 0.2, "--momentum", 0.5, "--style", "parameter")
    setup, plan = prepared(*OPTIONS, "sgd", *words, "--scale-from", known / "sgd")
    assert setup.learning_rate == pytest.approx(0.7 * 0.2 / plan.clipping.sensitivity)


def test_adam_keeps_its_rate(known, prepared):
    setup, _ = prepared(*OPTIONS, "adam", "--epsilon", 0.7, "--bound", 0.05, "--scale-from", known / "adam")
    assert setup.learning_rate == 0.7


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("sgd", "--learning-rate", 0.1), "left out with --learning-rate"),
        (("adam",), "the optimizer of this one, adam"),
        (("rmsprop",), "with --scale-from, one of sgd"),
        (("sgd", "--steps", 4), "the number of steps of this one, 4"),
        (("sgd", "--batch-size", 80), "the expected batch size of this one, 80"),
        (("sgd", "--sparsify", 0.5), "the sparsification of this one"),
        (("sgd", "--inner-momentum", 0.5, "--history", 2), "the momentum of gradients of this one"),
    ],
    ids=str,
)
def test_what_the_rule_does_not_cover_is_refused_before_the_run(known, capsys, tmp_path, words, message):
    code, _, error = ask(
        capsys, "train", *OPTIONS, *words, "--epsilon", 2, "--scale-from", known / "sgd", "--out", tmp_path / "run"
    )
    assert code == 2
    assert message in error
    assert not (tmp_path / "run").exists()


def test_a_directory_without_a_run_is_named(capsys, tmp_path):
    code, _, error = ask(
        capsys, "train", *OPTIONS, "sgd", "--epsilon", 2, "--scale-from", tmp_path / "none", "--out", tmp_path / "run"
    )
    assert code != 0
    assert "none holds no run" in error
