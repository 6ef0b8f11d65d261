"""An example's norm does not depend on how many others there are, and rounding leaves no more of it than its bound."""

import pytest
import torch
from recording import shift
from torch import nn
from torch.nn import functional as F

from privet.clipping import Automatic, Flat, Normalize, Projected
from privet.gradients import clipped_sum, per_example_norms
from privet.gradients.core import per_example
from privet.gradients.layers.linear import LinearGrad
from privet.gradients.masking.dispatch import mask_grad
from privet.gradients.masking.masks import Mask


class Scaled(nn.Module):
    """A frozen weight times a trainable number."""

    def __init__(self):
        super().__init__()
        self.register_buffer("weight", 1e-3 * torch.randn(64, 64))
        self.gain = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return F.linear(x, self.gain * self.weight)


def product(model, batch):
    return (model(batch[0]) * batch[1]).flatten(1).sum(1)


# Model, and the shape of an example's inputs and output gradients, whose terms cancel.
CASES = {"many positions": (lambda: nn.Linear(24, 24, bias=False), (32, 24)), "a derived weight": (Scaled, (64,))}


@pytest.mark.parametrize("case", CASES)
def test_norms_are_those_among_many_others(case, monkeypatch):
    monkeypatch.setattr(per_example, "KEEP", 100 * 64 * 64)
    build, shape = CASES[case]
    torch.manual_seed(0)
    model, few = build(), (torch.randn(3, *shape) + 10, torch.randn(3, *shape))
    few[1].sub_(few[1].mean(1, keepdim=True))
    others = [torch.randn(15_000 if shape[0] == 32 else 300, *shape) for _ in range(2)]
    among = per_example_norms(model, product, tuple(torch.cat(both) for both in zip(few, others, strict=True)))
    assert torch.allclose(among[:3], per_example_norms(model, product, few), rtol=1e-5, atol=0)


def test_terms_that_cancel_do_not_round_other_examples_under_estimated_norms():
    torch.manual_seed(0)
    model = nn.Linear(64, 64, bias=False)
    x, y = torch.zeros(200, 2, 64), torch.full((200, 2, 64), 0.025)
    x[:, 0] = 0.125
    x[-1], y[-1, 0], y[-1, 1] = 1e5, 1e5, -1e5
    assert shift(model, product, (x, y), Projected(Flat(1.0), projections=100), 199) <= 1e-3


@pytest.mark.parametrize("examples", [1, 200])
def test_a_masked_layer_of_zero_inputs_takes_no_example_from_the_sum(examples):
    model = nn.Linear(64, 20)
    masks = {"weight": torch.rand(20, 64) < 0.5}
    batch = torch.zeros(examples, 64), torch.ones(examples, 20)
    found = clipped_sum(model, product, batch, Flat(1.0), masks=masks)
    assert found.tensors["bias"].norm().item() == pytest.approx(examples, rel=1e-5)
    assert not found.tensors["weight"].any()


def test_a_masked_row_of_zeros_has_a_norm_in_float32():
    """Where rectifiers are all off, no example needs float64."""
    some = LinearGrad(torch.tensor([[[0.0, 0.0]], [[3.0, 4.0]]]), torch.ones(2, 1, 3))
    found = mask_grad(some, Mask(torch.tensor([[True, False], [False, True], [False, True]]))).squared_norms()
    assert found.tolist() == pytest.approx([0.0, 9.0 + 2 * 16.0], rel=1e-4)


def test_inner_products_that_are_all_rounded_in_one_direction_hide_nothing():
    """One large number and 255 so small that each is lost beside it; 1.03 times the bound without an allowance for that."""
    one, other = torch.zeros(512), torch.zeros(512)
    one[0], other[0] = 1.0, 1 - 0.0204
    one[1:256], other[1:256] = 2**-12.025, 2**-12.525
    sign = torch.tensor([1.0, -1.0] * 8)
    x, y = torch.stack([one, other] * 8)[None], 1000 * sign[None, :, None].expand(1, 16, 64)
    found = clipped_sum(nn.Linear(512, 64, bias=False), product, (x, y), Flat(1.0))
    assert 0.8 < found.tensors["weight"].double().norm() <= 1.0


@pytest.mark.parametrize("rule", [Normalize(bound=1e12), Automatic(bound=1e12, stability=1e-12)], ids=["Normalize", "Automatic"])
@pytest.mark.parametrize("positions", [1, 3])
def test_a_large_input_times_a_large_weight_is_finite(positions, rule):
    x, y = torch.ones(2, positions, 40), torch.ones(2, positions, 40)
    x[0], y[0] = 1e17, 1e-29
    found = clipped_sum(nn.Linear(40, 40, bias=False), product, (x, y), rule).tensors["weight"].double().norm()
    assert found <= 2 * rule.sensitivity * 1.0001


def test_squares_that_underflow_float64_hide_nothing():
    model = nn.Linear(2000, 20, bias=False).double()
    batch = torch.full((1, 2000), 1.5e-162, dtype=torch.float64), torch.full((1, 20), 2e153, dtype=torch.float64)
    assert clipped_sum(model, product, batch, Flat(1e-12)).tensors["weight"].norm() <= 1e-12
