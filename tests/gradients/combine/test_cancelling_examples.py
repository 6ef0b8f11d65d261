"""An example whose terms cancel moves the sum by no more than the bound, however many others there are.

What it adds before it cancels is so large that the contributions of other examples would be rounded away.
"""

from dataclasses import dataclass

import pytest
import torch
from recording import shift
from torch import nn
from torch.nn import functional as F

from privet.clipping import Automatic, Flat, Normalize, Projected
from privet.clipping.base import NormRule
from privet.gradients import clipped_sum
from privet.gradients.combine.sums import sum_grads
from privet.gradients.core import per_example
from privet.gradients.core.per_example import DenseGrad
from privet.gradients.layers.linear import LinearGrad

EXAMPLES = 250
FLAT, NORMALIZE = Flat(0.01), Normalize(1.0)


class Weight(nn.Module):
    """A linear map by a weight that is computed from the parameters."""

    def __init__(self, compute, *shapes, start=torch.randn):
        super().__init__()
        self.compute = compute
        self.parts = nn.ParameterList(nn.Parameter(start(shape)) for shape in shapes)

    def forward(self, x):
        return F.linear(x, self.compute(*self.parts))


def _product(model, batch):
    return (model(batch["x"]) * batch["u"]).sum(1)


def _tied(model, batch):
    (w,) = model.parts
    return (F.linear(batch["x"], w) * batch["u"]).sum(1) + (F.linear(batch["v"], w.t()) * batch["z"]).sum(1)


def _tied_bias(model, batch):
    (w,) = model.parts
    return (F.linear(batch["x"], w) * batch["u"]).sum(1) + (w * batch["m"]).sum((1, 2))


def _pairs(model, batch):
    return -F.logsigmoid(model(batch["x"]) - model(batch["v"]))[:, 0]


def _data(size, left):
    """Examples of which the first has inputs of this size, and gradients that cancel."""
    generator = torch.Generator().manual_seed(1)
    data = {name: 1 + 0.3 * torch.rand(EXAMPLES, 4, generator=generator) for name in "xuvz"}
    data["m"] = torch.rand(EXAMPLES, 4, 4, generator=generator)
    data["x"][0], data["u"][0], data["v"][0], data["z"][0] = size, 1.0, 1.0, -size
    data["m"][0] = -size
    return {name: each if name == "m" else each * torch.where(torch.arange(EXAMPLES) > 0, left, 1.0)[:, None]
            for name, each in data.items()}  # fmt: skip


def _centred(gain):
    return Weight(lambda w: gain * (w - w.mean(1, keepdim=True)), (4, 4), start=torch.zeros)


def _factorised():
    return Weight(lambda a, b: a @ b, (4, 2), (2, 4))


PROGRAMS = {
    "tied": (lambda: Weight(lambda w: w, (4, 4), start=torch.zeros), _tied),
    "tied to entries": (lambda: Weight(lambda w: w, (4, 4), start=torch.zeros), _tied_bias),
    "centred": (lambda: _centred(1.0), _product),
    "centred with a gain": (lambda: _centred(1000.0), _product),
    "factorised": (_factorised, _product),
    "pairs": (lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1)), _pairs),
    "one weight at many positions": (lambda: Weight(lambda w: w, (4, 4), start=torch.zeros), lambda model, batch: sum(
        (model(sign * batch[name]) * batch["u"]).sum(1) for name, sign in (("x", 1), ("x", -1), ("v", 1)))),
}  # fmt: skip


@pytest.mark.parametrize("rule", [FLAT, NORMALIZE], ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize(("size", "kept"), [(1.0, per_example.KEEP), (1e4, 0), (1e7, 0), (1e7, per_example.KEEP)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_example_that_cancels_moves_the_sum_by_at_most_the_bound(name, kept, size, rule, monkeypatch):
    monkeypatch.setattr(per_example, "KEEP", kept)
    torch.manual_seed(2)
    make, loss = PROGRAMS[name]
    model, data = make(), _data(size, 1.0 if rule is NORMALIZE else 0.05)
    if name == "factorised":  # what the gradient of either factor does not see
        a, b = (part.detach().double() for part in model.parts)
        data["u"][0], data["x"][0] = torch.linalg.svd(a)[0][:, -1].float(), size * torch.linalg.svd(b)[2][-1].float()
    if name == "pairs":
        data["v"][0] = data["x"][0]
    assert shift(model, loss, data, rule) <= 1.0001 * rule.sensitivity


def test_terms_of_different_kinds_are_added_before_the_examples(monkeypatch):
    monkeypatch.setattr(per_example, "KEEP", 0)
    size = 1e7
    inputs, dense = torch.ones(EXAMPLES, 1, 3), torch.zeros(EXAMPLES, 3, 3)
    gradients = torch.full((EXAMPLES, 1, 3), 0.3)
    inputs[0], gradients[0], dense[0] = size, 1.0, -size
    grad = sum_grads([LinearGrad(inputs, gradients), DenseGrad(dense)])
    weights = torch.ones(EXAMPLES)
    torch.testing.assert_close(grad.weighted_sum(weights), torch.full((3, 3), 0.3 * (EXAMPLES - 1)), rtol=1e-5, atol=0)


@dataclass(frozen=True)
class Steep(NormRule):
    def factor(self, norms):
        return self.bound / (norms + 1e-40)


@pytest.mark.parametrize("method", ["auto", "loop"])
@pytest.mark.parametrize("rule", [Automatic(1.0), Normalize(1.0), Flat(1.0), Steep(1.0)], ids=lambda rule: type(rule).__name__)
def test_an_example_of_huge_input_and_no_gradient_changes_nothing(rule, method):
    torch.manual_seed(0)
    model = nn.Linear(6, 20)
    x, y = torch.randn(9, 6), torch.randint(0, 20, (9,))
    x[0] = 1e37
    y[0] = model(x[:1])[0].argmax()  # certain, so that its gradient is exactly zero

    def loss(m, batch):
        return F.cross_entropy(m(batch[0]), batch[1], reduction="none")

    found, rest = (clipped_sum(model, loss, each, rule, method=method).tensors for each in ((x, y), (x[1:], y[1:])))
    torch.testing.assert_close(found, rest, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("size", "factor"), [(1e37, 0.0), (3e38, 1e-42), (3e37, 1e-45)])
@pytest.mark.parametrize("positions", [1, 3])
def test_projected_gradients_of_huge_inputs_are_finite(positions, size, factor):
    """Their directions are random, so only the other examples' part of the sum is known: it is finite."""
    torch.manual_seed(0)
    model, x, u = nn.Linear(6, 20), torch.randn(9, positions, 6), torch.randn(9, 20)
    x[0], u[0] = size, factor

    def loss(m, batch):
        return (m(batch[0]).sum(1) * batch[1]).sum(1)

    found = clipped_sum(model, loss, (x, u), Projected(Automatic(1.0), projections=30)).tensors
    assert all(bool(each.isfinite().all()) and bool(each.any()) for each in found.values())


@pytest.mark.parametrize(("bound", "d", "p"), [(1e-4, 4096, 64), (1e-8, 128, 4)])
def test_weights_that_would_round_a_small_factor_up_stay_within_the_bound(bound, d, p):
    """The product of the weight and the smaller factor is less than float32 can resolve, and the other factor is huge."""
    smallest, root = 2.0**-149, (d * p) ** 0.5
    torch.manual_seed(1)
    x, w = torch.randn(3, d), torch.randn(3, p)
    x[0] = bound / ((max(0, round(bound / (3.2e38 * root * smallest))) + 0.52) * smallest * root)
    w[0] = 3e16 / (float(x[0, 0]) * root)
    model = nn.Linear(d, p, bias=False)
    nn.init.zeros_(model.weight)

    def loss(m, batch):
        return (m(batch[0]) * batch[1]).sum(1)

    assert shift(model, loss, (x, w), Flat(bound), physical_batch_size=1) <= 1.0001 * bound
