import json

import numpy as np
import pytest
import torch
from asked import ask, plan_in, refused, succeed
from safetensors.torch import load_file

from privet import Plan, momentum, schedules, sparsification
from privet._utils.registry import PARTS
from privet.clipping import NORM_RULES, PSASC, Layerwise
from privet.data.classes import parse_classes
from privet.runs import config
from privet.runs import run as runs

pytest.importorskip("sklearn", reason="the digits come with scikit-learn: pip install 'privet[data]'")


def train(capsys, *arguments):
    return succeed(capsys, "train", *arguments, "--quiet")


EVERYTHING = [
    "--data", "digits", "--model", "logistic", "--epsilon", "6", "--steps", "4", "--batch-size", "100", "--clipping", "psasc",
    "--bound", "0.3", "--scale", "0.8", "--style", "parameter", "--bound-schedule", "geometric", "--fixed-noise",
    "--sparsify", "0.4", "--refresh", "2", "--inner-momentum", "0.3", "--outer-momentum", "0.6", "--history", "1",
    "--optimizer", "nesterov", "--momentum", "0.5", "--lr", "0.7", "--average", "uniform", "--seed", "3",
]  # fmt: skip


def test_plan_json_repeats_a_run_with_every_option(capsys, tmp_path):
    train(capsys, *EVERYTHING, "--out", tmp_path / "first")
    first = plan_in(tmp_path / "first")
    assert first.clipping == Layerwise(PSASC(0.3, scale=0.8), by="parameter")
    assert first.bound_schedule == schedules.Geometric()
    assert first.noise.deviation == "fixed"
    assert first.sparsification == sparsification.Random(0.4, refresh=2)
    assert first.momentum == momentum.InnerOuter(inner=0.3, outer=0.6, length=1)
    found = train(capsys, "--config", tmp_path / "first" / "plan.json", "--out", tmp_path / "second")
    assert plan_in(tmp_path / "second") == first
    assert runs.read_setup(tmp_path / "second") == runs.read_setup(tmp_path / "first")
    assert found["epsilon"] <= 6
    for option in (["--bound", 3], ["--batch-size", 7], ["--clipping", "flat"], ["--history", 2]):
        words = ("--config", tmp_path / "first" / "plan.json", *option, "--out", tmp_path / "other")
        assert option[0] in refused(capsys, "train", *words)


@pytest.mark.parametrize(("name", "text"), [
    ("options.toml", 'data = "digits"\nmodel = "logistic"\nsteps = 3\nnoise-multiplier = 1.5\nclipping = "psac"\n'),
    ("options.json", '{"data": "digits", "model": "logistic", "steps": 3, "noise_multiplier": 1.5, "clipping": "psac"}'),
])  # fmt: skip
def test_a_file_replaces_options_and_the_command_line_overrides_it(prepared, tmp_path, name, text):
    (tmp_path / name).write_text(text, encoding="utf-8")
    _, plan = prepared("--config", tmp_path / name, "--steps", 2, "--quiet")
    assert (plan.total_steps, type(plan.clipping).__name__, plan.noise_multiplier) == (2, "PSAC", 1.5)


def test_a_plan_in_a_file_goes_beyond_the_options_and_can_be_calibrated(prepared, tmp_path):
    (tmp_path / "mine.toml").write_text(
        """
        data = "digits"
        model = "logistic"
        epsilon = 5
        [plan]
        examples = 1437
        steps = 3
        delta = 1e-5
        sampling = {kind = "Poisson", batch_size = 100}
        clipping = {kind = "Flat", bound = 0.2}
        bound_schedule = {kind = "Table", values = [1.0, 0.5, 0.2]}
    """,
        encoding="utf-8",
    )
    _, plan = prepared("--config", tmp_path / "mine.toml", "--quiet")
    assert plan.bound_schedule == schedules.Table((1.0, 0.5, 0.2))
    assert 4.99 < plan.epsilon() <= 5


@pytest.mark.parametrize("classes", ["2", '"no, yes"', '["no, yes", "b"]', "[1, 0]"])
def test_classes_in_a_file_are_a_number_a_text_or_a_list(prepared, tmp_path, classes):
    np.savez(tmp_path / "own.npz", x_train=np.eye(30, 4), y_train=(np.arange(30) % 2).astype(str))
    options = f'data = "{tmp_path}/own.npz"\nclasses = {classes}\nepsilon = 8\nsteps = 2\n'
    (tmp_path / "options.toml").write_text(options)
    kept = prepared("--config", tmp_path / "options.toml", "--quiet")[0].classes
    assert parse_classes(kept, "own.npz").outputs == 2
    assert ("no, yes" in parse_classes(kept, "own.npz").classes) == classes.startswith('["')


PLAN = {
    "examples": 1437, "steps": 3, "delta": 1e-5, "sampling": {"kind": "Poisson", "batch_size": 100},
    "clipping": {"kind": "Flat", "bound": 0.2}, "noise": {"kind": "Gaussian", "multiplier": 2.5},
}  # fmt: skip
FLAT, PSASC_ = {"kind": "Flat", "bound": 0.3}, {"kind": "PSASC", "bound": 0.2, "scale": 0.8, "stability": 1e-3}
TABLE = {"kind": "Table", "values": [1.0, 0.5]}
ANCHORED = {"kind": "GEP", "embedding": FLAT, "dimensions": 9, "anchors": 7, "public": "dead-leaves"}
# Every kind of value that a plan can hold joins with a line.
VALUES = {
    **{kind: {"clipping": {"kind": kind, "bound": 0.3}} for kind in NORM_RULES},
    "Layerwise": {"clipping": {"kind": "Layerwise", "rules": [FLAT, PSASC_], "by": "parameter", "noise": "per group"}},
    "Layerwise, relative noise": {"clipping": {"kind": "Layerwise", "rules": FLAT, "by": "parameter", "noise": [1.0, 2.5]}},
    "Layerwise, patterns": {"clipping": {"kind": "Layerwise", "rules": [[".*weight", FLAT], [".*", PSASC_]]}},
    "AdaptiveQuantile": {"clipping": {"kind": "AdaptiveQuantile", "rule": PSASC_, "quantile": 0.3, "share": 0.1}},
    "Projected": {"clipping": {"kind": "Projected", "rule": FLAT, "projections": 300}},
    "GEP": {"clipping": ANCHORED | {"residual": PSASC_, "by": "parameter", "iterations": 2, "share": 0.3}},
    "GEP, no residual": {"clipping": ANCHORED | {"residual": None}},
    "Unclipped": {"clipping": {"kind": "Unclipped", "bound": 0.3, "non_private": True}},
    "TruncatedPoisson": {"sampling": {"kind": "TruncatedPoisson", "batch_size": 50, "cap": 90}},
    "FixedSize": {"sampling": {"kind": "FixedSize", "batch_size": 100}, "adjacency": "replace-one"},
    "BallsInBins": {"sampling": {"kind": "BallsInBins", "batch_size": 100}},
    "FullBatch": {"sampling": {"kind": "FullBatch"}},
    "Shuffle": {"sampling": {"kind": "Shuffle", "batch_size": 100}, "adjacency": "zero-out"},
    "Constant": {"bound_schedule": {"kind": "Constant"}},
    "Linear": {"bound_schedule": {"kind": "Linear", "final": 0.4, "over": 2}},
    "ToZero": {"bound_schedule": {"kind": "ToZero"}},
    "Geometric": {"bound_schedule": {"kind": "Geometric", "rate": 0.3}},
    "Piecewise": {"bound_schedule": {"kind": "Piecewise", "values": [1.0, 9.0], "until": [0.95]}},
    "Table": {"noise": {"kind": "Gaussian", "multiplier": 2.5, "schedule": TABLE, "deviation": "fixed"}, "bound_schedule": TABLE},
    "Random": {"sparsification": {"kind": "Random", "final_rate": 0.7, "refresh": 3, "seed": 4}},
    "Ranked": {"sparsification": {"kind": "Ranked", "final_rate": 0.7}},
    "FEST": {"embeddings": {"kind": "FEST", "rows": [["1.weight", [0, 2]]]}},
    "AdaFEST": {"embeddings": {"kind": "AdaFEST", "tables": ["1.weight"], "threshold": 5.0, "share": 0.2}},
    "InnerOuter": {"momentum": {"kind": "InnerOuter", "inner": 0.5, "outer": 0.4, "length": 2}},
    "PerExample": {"momentum": {"kind": "PerExample", "decay": 0.4}, "sampling": {"kind": "FullBatch"}},
    "Epochs": {"steps": {"kind": "Epochs", "epochs": 0.25}},
    "ClassCounts": {"class_counts": {"kind": "ClassCounts", "multiplier": 8.0}},
    "Banded": {
        "noise": {"kind": "Banded", "multiplier": 3.0, "bands": 2, "coefficients": [1.0, 0.5]},
        "sampling": {"kind": "CyclicPoisson", "batch_size": 100, "cycle": 3},
    },
    "CyclicPoisson": {"sampling": {"kind": "CyclicPoisson", "batch_size": 100, "cycle": 3}},
    "BufferedToeplitz": {
        "noise": {"kind": "BufferedToeplitz", "multiplier": 3.0, "buffers": 1, "decays": [0.5], "scales": [0.4]},
        "sampling": {"kind": "FixedOrder", "batch_size": 100},
    },
    "FixedOrder": {"sampling": {"kind": "FixedOrder", "batch_size": 100}},
    "Tree": {"noise": {"kind": "Tree", "multiplier": 3.0}, "sampling": {"kind": "BallsInBins", "batch_size": 100}},
    "no noise": {"noise": {"kind": "Gaussian", "multiplier": 0, "non_private": True}},
}


def test_every_kind_of_value_has_a_case():
    # The command line's data sets are of examples, users and groups, whose units have names; a schema comes with its table, and
    # held-out data with an option.
    elsewhere = {name for name, kind in PARTS.items() if kind.__module__.startswith("privet.tables")} | {"Holdout"}
    assert {name.partition(",")[0] for name in VALUES} >= set(PARTS) - {"Poisson", "Gaussian", "Unit", "GroupUnit"} - elsewhere


@pytest.mark.parametrize("name", VALUES)
def test_a_plan_with_every_kind_of_value_is_read_from_a_file_and_from_plan_json(prepared, tmp_path, name):
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"data": "digits", "model": "logistic", "plan": PLAN | VALUES[name]}), encoding="utf-8")
    setup, first = prepared("--config", file, "--quiet")
    assert Plan.from_dict(json.loads(first.to_json())) == first == Plan.from_dict({"format": 1, **PLAN, **VALUES[name]})
    (tmp_path / "plan.json").write_text(first.to_json(), encoding="utf-8")
    again = prepared("--config", tmp_path / "plan.json", "--data", "digits", "--model", "logistic", "--quiet")
    assert again == (setup, first)


OPTIONS = {
    "adamw": {"weight_decay": 0.02, "betas": [0.8, 0.9]},
    "sgd": {"dampening": 0.3},
    "adam-uncorrected": {"betas": [0.8, 0.9]},
    "adagrad": {"lr_decay": 0.1},
    "rmsprop": {"alpha": 0.9},
    "adam-bc": {"betas": [0.8, 0.9]},
    "sgld": {"diffusion": 1e-4, "prior": 2.0, "burn_in": 1, "thinning": 2, "keep": 2},
}


@pytest.mark.parametrize("optimizer", sorted(config.OPTIMIZERS))
def test_every_optimizer_has_a_name_and_keeps_its_options(prepared, optimizer):
    options = OPTIONS.get(optimizer, {})
    words = ["--data", "digits", "--model", "logistic", "--noise-multiplier", 2, "--steps", 7, "--optimizer", optimizer]
    setup, plan = prepared(*words, "--optimizer-options", json.dumps(options))
    assert (setup.optimizer, setup.optimizer_options) == (optimizer, options)
    setup.build_optimizer(plan, setup.build_model(setup.load_data()))


def test_samples_of_a_posterior_are_kept(capsys, tmp_path):
    arguments = ["--data", "digits", "--model", "logistic", "--noise-multiplier", 2, "--steps", 7, "--optimizer", "sgld"]
    train(capsys, *arguments, "--optimizer-options", json.dumps(OPTIONS["sgld"]), "--out", tmp_path / "first")
    assert runs.read_setup(tmp_path / "first").optimizer_options == OPTIONS["sgld"]
    # Of the steps 3, 5 and 7 the latest two are kept, and the last one is the model.
    kept = load_file(tmp_path / "first" / "samples.safetensors")
    model = load_file(tmp_path / "first" / "model" / "model.safetensors")
    shapes = {name: (2, *value.shape) for name, value in model.items()}
    assert {name: tuple(value.shape) for name, value in kept.items()} == shapes
    assert all(torch.equal(kept[name][-1], value) for name, value in model.items())


def test_a_coupled_learning_rate_survives_an_interruption(capsys, tmp_path, interrupt_once):
    interrupt_once(2)
    (tmp_path / "mine.json").write_text(json.dumps({
        "data": "digits", "model": "logistic", "learning-rate": 0.5, "couple-learning-rate": True,
        "plan": PLAN | {"steps": 4, "bound_schedule": {"kind": "Piecewise", "values": [1.0, 5.0], "until": [0.75]}},
    }), encoding="utf-8")  # fmt: skip
    assert ask(capsys, "train", "--config", tmp_path / "mine.json", "--out", tmp_path / "run", "--quiet")[0] == 130
    rates = [group["lr"] for group in saved(tmp_path / "run")["optimizer"]["param_groups"]]
    assert rates == [0.5]
    train(capsys, "--resume", tmp_path / "run")
    assert saved(tmp_path / "run")["scheduler"]["last_epoch"] == 4
    assert [group["lr"] for group in saved(tmp_path / "run")["optimizer"]["param_groups"]] == [pytest.approx(0.1)]


def saved(directory):
    return torch.load(directory / "checkpoint.pt", weights_only=True)


def test_the_average_is_saved_and_evaluated(capsys, tmp_path):
    arguments = ["--data", "digits", "--model", "logistic", "--noise-multiplier", 2, "--steps", 5, "--average", "uniform"]
    train(capsys, *arguments, "--out", tmp_path / "run")
    state = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)
    kept = load_file(tmp_path / "run" / "model" / "model.safetensors")
    for name, value in kept.items():
        assert torch.equal(value, state["average"][f"module.{name}"])
        assert not torch.equal(value, state["model"][name])
