"""Public anchor gradients from the command line: what the plan holds, public data by name or file, and what is refused."""

import json

import numpy as np
import pytest
from asked import ask, plan_in

from privet.cli import main
from privet.clipping import GEP, Automatic, Flat
from privet.data import load
from privet.errors import InvalidArgumentError
from privet.runs.public import DEAD_LEAVES, load_public

SIDE, CLASSES = 12, 3
QUICK = ["--epsilon", "8", "--delta", "1e-4", "--steps", "3", "--quiet", "--json"]


def saved(path, number=200, side=SIDE, seed=3):
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 256, (number, side, side), dtype=np.uint8)
    np.savez(path, x_train=images, y_train=generator.integers(0, CLASSES, number))
    return path


@pytest.fixture
def images(tmp_path):
    return saved(tmp_path / "images.npz")


def train(capsys, images, *arguments):
    code, _, error = ask(capsys, "train", "--data", images, "--classes", CLASSES, "--model", "logistic", *QUICK, *arguments)
    return code, error


def rule(public, anchors=20):
    return GEP(Flat(1.0), Flat(0.4), dimensions=10, anchors=anchors, public=str(public))


def test_options_describe_the_rule_and_statement_and_manifest_name_the_data(images, tmp_path, capsys):
    public, out = saved(tmp_path / "others.npz", 30, seed=4), tmp_path / "run"
    options = ["--public", public, "--anchors", 20, "--dimensions", 12, "--clipping", "automatic", "--bound", 2.0]
    code, error = train(capsys, images, *options, "--residual-bound", 0.5, "--sparsify", 0.5, "--out", out)
    assert code == 0, error
    expected = GEP(Automatic(2.0), Automatic(0.5), dimensions=12, anchors=20, public=str(public))
    assert plan_in(out).clipping == expected
    assert f"20 public examples of '{public}'" in (out / "guarantee.md").read_text(encoding="utf-8")
    assert json.loads((out / "manifest.json").read_text())["parts"]["public.entries"] == 30
    with pytest.raises(SystemExit) as stop:
        main(["train", "--config", str(out / "plan.json"), "--out", str(tmp_path / "again"), "--quiet", "--json"])
    assert stop.value.code == 0, capsys.readouterr().err
    assert plan_in(tmp_path / "again") == plan_in(out)


def test_defaults_and_a_residual_that_is_not_released(images, prepared):
    words = ("--data", images, "--classes", CLASSES, "--model", "logistic", *QUICK, "--public", DEAD_LEAVES, "--anchors", 9)
    found = prepared(*words, "--residual-bound", 0)[1].clipping
    assert (found.residual, found.anchors, found.dimensions, found.public) == (None, 9, 500, "dead-leaves")
    assert prepared(*words, "--bound", 1.5)[1].clipping.residual.bound == pytest.approx(0.6)


@pytest.mark.parametrize(("options", "message"), [
    (["--anchors", 5], "--anchors is 5; it must be left out without --public"),
    (["--residual-bound", 0.1], "--residual-bound is 0.1; it must be left out without --public"),
    (["--public", "dead-leaves", "--style", "module"], "--public is 'dead-leaves'; it must be left out with --style"),
    (["--public", "dead-leaves", "--adaptive-quantile", 0.5], "left out with --style, --adaptive-quantile"),
    (["--public", "nowhere"], "nowhere"),
    (["--public", "dead-leaves", "--dimensions", 0], "dimensions"),
    (["--public", "dead-leaves", "--residual-bound", -1], "bound"),
    (["--public", "dead-leaves", "--group-size", 2, "--adjacency", "replace-one"], "another rule for users or groups"),
    (["--public", "dead-leaves", "--optimizer", "adam-bc"], "without anchor gradients for an optimizer"),
])  # fmt: skip
def test_what_does_not_fit_is_refused_in_one_line_and_nothing_is_written(images, tmp_path, capsys, options, message):
    code, error = train(capsys, images, *options, "--out", tmp_path / "run")
    assert (code, len(error.splitlines())) == (2, 1)
    assert message in error
    assert not (tmp_path / "run").exists()


def test_too_few_public_examples_or_others_of_another_shape_are_refused(images, tmp_path, capsys):
    few, wide = saved(tmp_path / "few.npz", 8), saved(tmp_path / "wide.npz", 30, side=SIDE + 1)
    for public, message in ((few, "at least the 20 anchors"), (wide, "of shape (1, 12, 12)")):
        code, error = train(capsys, images, "--public", public, "--anchors", 20, "--out", tmp_path / "run")
        assert (code, len(error.splitlines())) == (2, 1)
        assert message in error
        assert not (tmp_path / "run").exists()


def test_private_data_are_not_public(images, tmp_path, capsys):
    code, error = train(capsys, images, "--public", images, "--anchors", 20, "--out", tmp_path / "run")
    assert (code, len(error.splitlines())) == (2, 1)
    assert "other data than those that are trained on" in error
    assert not (tmp_path / "run").exists()
    with pytest.raises(InvalidArgumentError, match="other data than those that are trained on"):
        load_public(rule("digits"), load("digits"))


def test_made_up_images_are_on_the_scale_of_the_pixels_with_labels_of_the_classes(images):
    data = load(str(images), classes=CLASSES)
    made = load_public(rule(DEAD_LEAVES), data)
    inputs, labels = made.tensors
    assert inputs.shape == (2000, 1, SIDE, SIDE)
    assert set(labels.tolist()) == set(range(CLASSES))
    black, white = data.pixel_range
    assert black <= float(inputs.min()) < float(inputs.max()) <= white + 1e-6
    again = load_public(rule(DEAD_LEAVES), data).tensors
    assert (inputs == again[0]).all()
    assert load_public(Flat(1.0), data) is None
    with pytest.raises(InvalidArgumentError, match="another rule for a regression"):
        load_public(rule(DEAD_LEAVES), type(data)(**{**vars(data), "classes": None}))
    with pytest.raises(InvalidArgumentError, match="square, on a known scale"):
        load_public(rule(DEAD_LEAVES), type(data)(**{**vars(data), "pixel_range": None}))
