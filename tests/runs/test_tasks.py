from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from privet import Plan, Training, clipping, models, noise, runs, sampling
from privet.data import DataSet
from privet.errors import InvalidArgumentError
from privet.runs.tasks import AdjustedCrossEntropy, normalise_priors, number_features, scale_targets, squared_error, task_of
from privet.tables import Boolean, Category, Classification, Number, Schema
from rounding import assert_equal_up_to_rounding

SCHEMA = Schema(
    columns=(
        ("age", Number(0, 100, missing="indicator")), ("colour", Category(("red", "white"))), ("member", Boolean()),
        ("income", Number(0, 1e5)),
    ),
    target="good",
    task=Classification(("no", "yes")),
)  # fmt: skip


def of(targets, classes=None, **options) -> DataSet:
    inputs = torch.randn(len(targets), 3)
    return DataSet("own", TensorDataset(inputs, torch.as_tensor(targets)), None, classes, "made up", **options)


def test_a_missing_target_has_loss_and_gradient_zero():
    model = nn.Linear(3, 1)
    inputs, targets = torch.randn(4, 3), torch.tensor([0.5, float("nan"), -1.0, float("nan")])
    losses = squared_error(model, (inputs, targets))
    assert losses[[1, 3]].tolist() == [0.0, 0.0]
    assert torch.equal(losses[[0, 2]], (model(inputs)[[0, 2], 0] - targets[[0, 2]]).square())
    losses[[1, 3]].sum().backward(retain_graph=True)
    assert not any(parameter.grad.any() for parameter in model.parameters())
    model.zero_grad()
    losses.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("network", ["linear", "regression-mlp", "table", "mlp"])
def test_missing_targets_train_on_the_fast_path_without_raising(network):
    data = TensorDataset(torch.randn(40, 3).clamp(-1, 1), torch.full((40,), float("nan")))
    plan = Plan(
        examples=40, sampling=sampling.FullBatch(), steps=2, clipping=clipping.Flat(1.0), delta=1e-5, noise=noise.Gaussian(1.0)
    )
    model = models.build(network, (3,), 1)
    training = Training(plan, model, squared_error, torch.optim.SGD(model.parameters(), lr=0.1), data)
    with training:
        training.run()
    assert training.method == "ghost"
    assert all(parameter.isfinite().all() for parameter in model.parameters())


def test_targets_of_the_catalogue_are_scaled_by_published_bounds():
    found = scale_targets(of([3.0, 5.5, 8.0, 99.0], target_bounds=(3.0, 8.0)))
    assert found.train.tensors[1].tolist() == [-1.0, 0.0, 1.0, 1.0]
    assert task_of(found).width == 5.0


def test_a_regression_without_bounds_is_refused():
    with pytest.raises(InvalidArgumentError, match="target_bounds"):
        scale_targets(of([1.0, 2.0]))


def test_a_classification_is_left_as_it_is():
    data = of([0, 1], classes=2)
    assert scale_targets(data) is data


def test_priors_shift_logits_so_that_clipping_cannot_undo_them():
    """A weighted loss only scales a gradient, which normalised steps undo; a shift of logits changes its direction."""
    priors = (0.9, 0.1)
    inputs, labels = torch.randn(5, 3), torch.tensor([0, 1, 1, 0, -100])
    model = nn.Linear(3, 2)
    found = AdjustedCrossEntropy(priors)(model, (inputs, labels))
    shifted = model(inputs) + torch.tensor(priors).log()
    assert_equal_up_to_rounding(found[:4], F.cross_entropy(shifted[:4], labels[:4], reduction="none"))
    assert found[4] == 0


def test_a_schema_may_hold_the_priors_and_an_option_takes_their_place():
    schema = replace(SCHEMA, task=Classification(("no", "yes"), priors=(3, 1)))
    assert Schema.from_toml(schema.to_toml()) == schema
    assert "priors" not in SCHEMA.to_toml()
    data = of([0, 1], 2, schema=schema)
    setup = runs.Setup(data="own.csv", model="table", learning_rate=0.1, schema="own.toml")
    assert setup.task(data).loss.priors == (0.75, 0.25)
    assert replace(setup, class_priors=(0.5, 0.5)).task(data).loss.priors == (0.5, 0.5)


@pytest.mark.parametrize("priors", [(0.5,), (0.5, 0.0), (0.2, 0.3, 0.5), (0.5, float("inf"))])
def test_priors_of_a_schema_that_do_not_fit_are_refused(priors):
    with pytest.raises(InvalidArgumentError, match="priors"):
        Classification(("no", "yes"), priors=priors)


@pytest.mark.parametrize("priors", [(0.5,), (0.5, 0.0), (0.5, -1.0), (0.5, float("nan"))])
def test_priors_that_are_none_are_refused(priors):
    with pytest.raises(InvalidArgumentError, match="class_priors"):
        normalise_priors(priors)


@pytest.mark.parametrize(("data", "options"), [
    (of([0, 1], 2), {"priors": (0.2, 0.3, 0.5)}),
    (of([0.0, 1.0], target_bounds=(0.0, 1.0)), {"priors": (0.5, 0.5)}),
    (of([0.0, 1.0], target_bounds=(0.0, 1.0)), {"counted": True}),
    (of([0, 1], 2), {"priors": (0.5, 0.5), "counted": True}),
])  # fmt: skip
def test_priors_that_do_not_fit_the_target_are_refused(data, options):
    with pytest.raises(InvalidArgumentError, match="class_priors"):
        task_of(data, **options)


def test_the_layout_of_a_table_comes_from_its_schema_alone():
    assert number_features(SCHEMA) == (0, 5)
    data = DataSet(
        "own", TensorDataset(torch.zeros(4, SCHEMA.width), torch.zeros(4, dtype=torch.int64)), None, 2, "made up", schema=SCHEMA
    )
    setup = runs.Setup(data="own.csv", model="table", learning_rate=0.1, schema="own.toml")
    assert setup.architecture(data).options == {"numbers": [0, 5], "scale": 0.25}
    same = [sorted(setup.build_model(data).state_dict()) for _ in range(2)]
    assert same[0] == same[1]
    outputs = setup.build_model(data)(torch.from_numpy(np.zeros((4, SCHEMA.width), dtype=np.float32)))
    assert outputs.shape == (4, 2)


@pytest.mark.parametrize(
    ("model", "targets", "classes", "fix"),
    [("regression-mlp", [0, 1], 2, "logistic"), ("linear", [0, 1], 2, "logistic"), ("logistic", [0.0, 1.0], None, "linear")],
)
def test_a_network_for_the_other_task_is_refused_with_the_fix(model, targets, classes, fix):
    data = of(targets, classes, target_bounds=None if classes else (0.0, 1.0))
    with pytest.raises(InvalidArgumentError, match=f"use '{fix}'"):
        runs.Setup(data="own.npz", model=model, learning_rate=0.1).build_model(data)
