"""Data-dependent Python values, masks and bounds: examples agree, or are split into groups."""

import oracle
import pytest
import torch
from recording import cover
from torch import nn

from privet.gradients import per_example_gradients
from rounding import assert_equal_up_to_rounding


def positive(x):
    return x[0, 0] > 0


STEERED = {
    "item": lambda m, x: m(x).sum(1) * (2 if x[0, 0].sign().item() > 0 else 3),
    "bool": lambda m, x: m(x).sum(1) * (2 if positive(x) else 3),
    "float": lambda m, x: m(x).sum(1) * float(x[0, 0].sign() + 2),
    "int": lambda m, x: m(x[:, : int(positive(x)) + 2].repeat(1, 3)[:, :4]).sum(1),
    "tolist": lambda m, x: m(x).sum(1) * sum(x[0, :1].sign().tolist(), 2.0),
    "equal": lambda m, x: m(x).sum(1) * (2 if torch.equal(x[0, :1].sign(), torch.ones(1).to(x)) else 3),
    "in": lambda m, x: m(x).sum(1) * (2 if 1.0 in torch.cat([x[0, :1].sign(), x[0, 1:] / 100]) else 3),
    "an example's number in": lambda m, x: m(x).sum(1) * (2 if x[0, 0].sign() in torch.tensor([1.0, 4]).to(x) else 3),
    "whole tensors equal": lambda m, x: m(x).sum(1) * (2 if torch.equal(x, x.where(positive(x), x + 1)) else 3),
    "shapes differ": lambda m, x: m(x).sum(1) * (2 if torch.equal(x, x[:, :2]) else 2 + float(x[0, 0].sign())),
    "allclose": lambda m, x: m(x).sum(1) * (2 if torch.allclose(x, x.where(positive(x), x + 1), rtol=0.01) else 3),
    "allclose by method": lambda m, x: m(x).sum(1) * (2 if x.allclose(x.where(positive(x), x + 1), atol=0.01) else 3),
    "numpy": lambda m, x: m(x).sum(1) * (2.0 + float(x[0, :1].sign().numpy()[0])),
    "slice": lambda m, x: m(x)[:, positive(x).long() :].sum(1),
    "all true": lambda m, x: m(x).sum(1) * (2 if torch._is_all_true(x[0, :1] > 0) else 3),
    "any true": lambda m, x: m(x).sum(1) * (2 if (x[0, :1] > 0)._is_any_true() else 3),
    "all true, by an operator": lambda m, x: m(x).sum(1) * (2 if torch.ops.aten._is_all_true(x[0, :1] > 0) else 3),
    "mask of one entry": lambda m, x: m(x)[positive(x)].sum()[None] + m(x)[:, 0],
    "mask of one entry behind another index": lambda m, x: m(x)[0, positive(x)].square().sum()[None] + m(x)[:, 0],
    "mask of one entry after all": lambda m, x: m(x)[..., positive(x)].square().sum()[None] + m(x)[:, 0],
    "byte of a mask": lambda m, x: m(x)[positive(x).byte()].sum()[None] + m(x)[:, 0],
    "set by a mask of one entry": lambda m, x: _set(m(x), positive(x)).square().sum(1),
    "put by a mask of one entry": lambda m, x: m(x).index_put((positive(x),), torch.zeros(()).to(x)).square().sum(1),
    "nonzero of one entry": lambda m, x: m(x)[0, positive(x).nonzero(as_tuple=True)[0]].sum()[None] + m(x)[:, 1],
    "where of one entry": lambda m, x: m(x)[0, torch.where(positive(x))[0]].sum()[None] + m(x)[:, 1],
    "masked_select of one entry": lambda m, x: m(x)[0, 0].masked_select(positive(x)).sum()[None] + m(x)[:, 1],
    "range": lambda m, x: sum(m(x).sum(1) for _ in range(1 + positive(x).long())),
}
MASKED = {
    "mask": lambda m, x: m(x)[m(x) * 0 + x[:, :2] > 0].sum()[None] + m(x)[:, 0],
    "mask of x": lambda m, x: m(x.clone())[:, :2][x[:, :2] > 0].square().sum()[None],
    "nonzero": lambda m, x: m(x)[(x[:, :2] > 0).nonzero(as_tuple=True)].square().sum()[None],
    "where": lambda m, x: m(x)[torch.where(x[:, :2] > 0)].square().sum()[None],
    "argwhere": lambda m, x: m(x)[0, torch.argwhere(x[0, :2] > 0)[:, 0]].square().sum()[None],
    "masked_select": lambda m, x: m(x).masked_select(x[:, :2] > 0).square().sum()[None],
    "set": lambda m, x: _set(m(x), x[:, :2] > 0).square().sum(1),
    "index_put": lambda m, x: m(x).index_put((x[:, :2] > 0,), torch.zeros(()).to(x)).square().sum(1),
}


def _set(out, mask):
    out = out.clone()
    out[mask] = 2.0
    return out


@pytest.mark.parametrize("name", [*STEERED, *MASKED])
def test_each_example_controls_its_own_path(name):
    torch.manual_seed(0)
    loss = {**STEERED, **MASKED}[name]
    model = nn.Linear(4, 2).double()
    x = torch.tensor([[1.0, 2, 3, 4], [-1, 2, 3, 4], [2, -5, 1, 2], [-2, -1, 1, 1], [1, 1, 0, 0]], dtype=torch.float64)
    covered = cover(model, loss, x)
    assert covered.looped == 0
    assert covered.groups == (2 if name in STEERED else 3)
    assert oracle.relative_error_per_example(covered.gradients, oracle.plain_gradients(model, loss, x)) <= 1e-10


def test_what_torch_refuses_to_look_for_is_refused():
    with pytest.raises(RuntimeError, match="only supports Tensor or scalar"):
        cover(nn.Linear(4, 2), lambda m, x: m(x).sum(1) * (2 if "a" in x else 3), torch.randn(3, 4), "ghost")


def test_the_memory_of_a_tensor_is_handed_out_for_reading_only():
    """An array that could be written to would be that of one example, and stand for all."""

    def losses(m, x):
        scale = torch.full((1,), 2.0) * (x[:, 0] > -99)
        scale.numpy()[0] *= -1
        return m(x).sum(1) * scale

    model, x = nn.Linear(3, 2), torch.rand(4, 3)
    with pytest.raises(ValueError, match="read-only"):
        per_example_gradients(model, losses, x, method="ghost")
    found, expected = (per_example_gradients(model, losses, x, method=method) for method in ("auto", "loop"))
    assert_equal_up_to_rounding(found, expected)
