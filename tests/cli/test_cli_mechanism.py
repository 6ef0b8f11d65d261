import json

import pytest
from asked import plan_in, succeed

from privet import noise
from privet.cli import parts
from privet.cli.options import MechanismOptions
from privet.clipping import GEP, PSAC, PSASC, AdaptiveQuantile, Automatic, Flat, Global, Layerwise, Normalize
from privet.data import load
from privet.errors import InvalidArgumentError
from privet.runs.config import DEAD_LEAVES, load_public
from privet.sampling import BallsInBins, CyclicPoisson, FixedOrder, Poisson
from privet.sparsification import Random, Ranked

DIGITS = ("--data", "digits", "--model", "logistic", "--delta", 1e-5)
KNOWN = (*DIGITS, "--batch-size", 90, "--steps", 3)
QUICK = ("--epsilon", 8, "--delta", 1e-4, "--steps", 12, "--quiet")


@pytest.fixture
def plain(inputs):
    return ("--data", inputs / "plain.npz", "--classes", 3, "--model", "logistic", *QUICK)


@pytest.mark.parametrize(("options", "rule"), [
    ("", Flat(1.0)),
    ("--clipping normalize --bound 0.2", Normalize(0.2)),
    ("--clipping psac --stability 1e-3", PSAC(1.0, stability=1e-3)),
    ("--clipping psasc --bound 0.3 --scale 0.9 --stability 1e-4", PSASC(0.3, scale=0.9, stability=1e-4)),
    ("--clipping global --bound 0.5 --cutoff 4", Global(0.5, cutoff=4.0)),
    ("--clipping psasc --style parameter", Layerwise(PSASC(1.0), by="parameter")),
    ("--style module --adaptive-quantile 0.7", AdaptiveQuantile(Layerwise(Flat(1.0), by="module"), quantile=0.7)),
    ("--clipping automatic --adaptive-quantile 0.2", AdaptiveQuantile(Automatic(1.0), quantile=0.2)),
], ids=str)  # fmt: skip
def test_every_rule_and_style_has_a_name(prepared, options, rule):
    assert prepared(*DIGITS, "--epsilon", 8, "--steps", 2, *options.split())[1].clipping == rule


def rule(public, anchors=20):
    return GEP(Flat(1.0), Flat(0.4), dimensions=10, anchors=anchors, public=str(public))


def test_options_describe_anchor_gradients_and_statement_and_manifest_name_the_data(plain, inputs, tmp_path, capsys):
    public, out = inputs / "others.npz", tmp_path / "run"
    options = ["--public", public, "--anchors", 20, "--dimensions", 12, "--clipping", "automatic", "--bound", 2.0]
    succeed(capsys, "train", *plain, *options, "--residual-bound", 0.5, "--sparsify", 0.5, "--steps", 3, "--out", out)
    assert plan_in(out).clipping == GEP(Automatic(2.0), Automatic(0.5), dimensions=12, anchors=20, public=str(public))
    assert f"20 public examples of '{public}'" in (out / "guarantee.md").read_text(encoding="utf-8")
    assert json.loads((out / "manifest.json").read_text())["parts"]["public.entries"] == 30
    succeed(capsys, "train", "--config", out / "plan.json", "--out", tmp_path / "again", "--quiet")
    assert plan_in(tmp_path / "again") == plan_in(out)


def test_defaults_and_a_residual_that_is_not_released(plain, prepared):
    words = (*plain, "--public", DEAD_LEAVES, "--anchors", 9)
    found = prepared(*words, "--residual-bound", 0)[1].clipping
    assert (found.residual, found.anchors, found.dimensions, found.public) == (None, 9, 500, "dead-leaves")
    assert prepared(*words, "--bound", 1.5)[1].clipping.residual.bound == pytest.approx(0.6)


def test_made_up_images_are_on_the_scale_of_the_pixels_with_labels_of_the_classes(inputs):
    data = load(str(inputs / "plain.npz"), classes=3)
    pixels, labels = load_public(rule(DEAD_LEAVES), data).tensors
    assert pixels.shape == (2000, 1, 14, 14)
    assert set(labels.tolist()) == {0, 1, 2}
    black, white = data.pixel_range
    assert black <= float(pixels.min()) < float(pixels.max()) <= white + 1e-6
    assert (pixels == load_public(rule(DEAD_LEAVES), data).tensors[0]).all()
    assert load_public(Flat(1.0), data) is None
    with pytest.raises(InvalidArgumentError, match="other data than those that are trained on"):
        load_public(rule("digits"), load("digits"))
    with pytest.raises(InvalidArgumentError, match="another rule for a regression"):
        load_public(rule(DEAD_LEAVES), type(data)(**{**vars(data), "classes": None}))
    with pytest.raises(InvalidArgumentError, match="square, on a known scale"):
        load_public(rule(DEAD_LEAVES), type(data)(**{**vars(data), "pixel_range": None}))


@pytest.mark.parametrize(("options", "kind", "sampling"), [
    (["--noise", "banded", "--bands", 4], noise.Banded, CyclicPoisson),
    (["--noise", "buffered", "--buffers", 2, "--sampling", "fixed-order"], noise.BufferedToeplitz, FixedOrder),
    (["--noise", "tree", "--sampling", "balls-in-bins"], noise.Tree, BallsInBins),
])  # fmt: skip
def test_options_describe_the_noise_and_its_sampling(plain, prepared, options, kind, sampling):
    _, plan = prepared(*plain, *options)
    assert (type(plan.noise), type(plan.sampling)) == (kind, sampling)
    assert plan.epsilon() <= 8
    if kind is noise.Banded:
        assert (plan.noise.bands, plan.sampling.cycle, plan.noise.momentum) == (4, 4, 0.9)
        assert plan.sampling.batch_size <= 60
    assert "correlated" in str(plan.guarantee())


def test_independent_noise_is_the_default():
    made = parts.noise(MechanismOptions(fixed_noise=True), 1.3, "fixed", 0.9)
    assert made == noise.Gaussian(1.3, "fixed", deviation="fixed")
    assert parts.cyclic(Poisson(8), made) == Poisson(8)
    assert parts.noise(MechanismOptions(noise="tree"), 0.0, "secure", 0.0) == noise.Tree(0.0, non_private=True)
    with pytest.raises(InvalidArgumentError, match=r"^noise\.bands is 0"):
        parts.noise(MechanismOptions(noise="banded", bands=0), 1.3, "secure", 0.0)


@pytest.mark.parametrize(
    ("options", "expected"),
    [("--sparsify 0.9", Random(0.9)), ("--sparsify 0.5 --refresh 2 --sparsify-ranked", Ranked(0.5, refresh=2))],
)
def test_sparsification_is_part_of_the_plan_and_named_in_the_statement(prepared, options, expected):
    _, plan = prepared(*DIGITS, "--epsilon", 3, "--steps", 4, *options.split())
    assert plan.sparsification == expected
    assert "do not improve ε" in str(plan.guarantee())


def test_the_noise_on_the_parameters_stays_that_of_a_known_run(inputs, prepared):
    source = inputs / "sgd"
    setup, plan = prepared(*KNOWN, "--epsilon", 0.7, "--bound", 0.05, "--momentum", 0.8, "--scale-from", source)
    found, before = plan.noise_multiplier, plan_in(source).noise_multiplier
    assert found > 1.5 * before
    assert setup.learning_rate == pytest.approx(0.7 * (0.2 / 0.05) * ((1 - 0.8) / (1 - 0.5)) * before / found)
    assert setup.defaults["scaled_from"] == str(source)


def test_the_sensitivity_of_a_rule_is_its_bound(inputs, prepared):
    words = ("--noise-multiplier", plan_in(inputs / "sgd").noise_multiplier, "--bound", 0.2, "--momentum", 0.5)
    setup, plan = prepared(*KNOWN, *words, "--style", "parameter", "--scale-from", inputs / "sgd")
    assert setup.learning_rate == pytest.approx(0.7 * 0.2 / plan.clipping.sensitivity)


def test_adam_keeps_its_rate(inputs, prepared):
    words = ("--optimizer", "adam", "--epsilon", 0.7, "--bound", 0.05)
    assert prepared(*KNOWN, *words, "--scale-from", inputs / "adam")[0].learning_rate == 0.7
