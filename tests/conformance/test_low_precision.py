"""Trained parameters in bfloat16: their gradients, norms and sums are float32, and nothing is rounded after clipping."""

import oracle
import pytest
import torch
from cases import With
from recording import cover, record
from torch import nn
from torch.nn import functional as F

from privet.clipping import Flat
from privet.errors import PrivetError
from privet.gradients import clipped_sum, per_example_gradients, per_example_norms
from privet.gradients.core.examples import split_batch
from privet.gradients.probe.probe import probe

ROUNDING = 3e-2  # of a gradient that was computed in bfloat16


def views(m, x):
    """Use parameters through views: a transpose, a slice, a token for every example, and a cast."""
    x = torch.cat([m.token.expand(len(x), -1, -1), x], 1)
    x = torch.tanh(x / 3 @ m.matrix[0].t()) @ m.matrix[1:][1] / 3
    return (x.float() * m.scale.float()).to(x.dtype)


MODELS = {
    "layers": lambda: nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 6, bias=False)),
    "views": lambda: With(views, matrix=(3, 6, 6), token=(1, 1, 6), scale=(6,)),
    "recurrent": lambda: With(lambda m, x: m.inner(x)[0], inner=nn.GRU(6, 6, batch_first=True)),
    "convolutions": lambda: With(lambda m, x: m.inner(x.mT).mT, inner=nn.Sequential(
        nn.Conv1d(6, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.Tanh(), nn.Conv1d(8, 6, 1))),
}  # fmt: skip


def loss_fn(model, batch):
    return model(batch[0]).float().square().mean((1, 2)) + F.cross_entropy(
        model(batch[0]).mean(1).float(), batch[1], reduction="none"
    )


def build(kind):
    torch.manual_seed(1)
    return MODELS[kind]().to(torch.bfloat16)


def batch_of(examples):
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(examples, 5, 6, generator=generator)
    return x.to(torch.bfloat16), torch.randint(6, (examples,), generator=generator)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_gradients_are_float32_and_those_of_a_float32_model_up_to_rounding(kind, method):
    model, batch = build(kind), batch_of(6)
    precise = build(kind).float()
    expected = oracle.plain_gradients(precise, loss_fn, (batch[0].float(), batch[1]))
    found = cover(model, loss_fn, batch, method)
    assert found.looped == (6 if method == "loop" else 0)
    assert {value.dtype for value in found.produced.values()} == {torch.float32}
    gradients = per_example_gradients(model, loss_fn, batch, method=method)
    assert {value.dtype for value in gradients.values()} == {torch.float32}
    for name, value in gradients.items():
        difference = (value - expected[name]).flatten(1).norm(dim=1)
        assert (difference <= ROUNDING * oracle.norms_of(expected)).all(), name
    assert probe(model, loss_fn, [split_batch(batch)], public=True) == "ghost"
    norms = per_example_norms(model, loss_fn, batch, method=method)
    torch.testing.assert_close(norms, oracle.norms_of(gradients).double(), rtol=1e-5, atol=0)


@pytest.mark.parametrize(("kind", "method", "examples", "bound"), [
    *((kind, "ghost", 200, bound) for kind in MODELS for bound in (0.07, 2.0)),
    ("layers", "loop", 40, 0.07), ("views", "loop", 40, 2.0),
])  # fmt: skip
def test_a_sum_of_many_equal_examples_moves_by_the_bound_when_one_leaves(kind, method, examples, bound):
    """In bfloat16 a sum of as many would be rounded to large parts of the bound."""
    model, (x, y) = build(kind), batch_of(1)
    many = x.expand(examples, -1, -1).contiguous(), y.expand(examples).contiguous()
    whole = clipped_sum(model, loss_fn, many, Flat(bound), method=method)
    rest = clipped_sum(model, loss_fn, oracle.without(many, 7), Flat(bound), method=method)
    assert {value.dtype for value in whole.tensors.values()} == {torch.float32}
    short = float(whole.norms[0])
    assert oracle.distance(whole.tensors, rest.tensors) == pytest.approx(min(bound, short), rel=1e-4)
    assert oracle.distance(whole.tensors, rest.tensors) <= bound * (1 + 2e-5)
    empty = clipped_sum(model, loss_fn, batch_of(0), Flat(bound), method=method)
    assert {value.dtype for value in empty.tensors.values()} == {torch.float32}


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_gradients_at_past_parameters_are_added_in_float32(kind, method):
    model, batch = build(kind), batch_of(4)
    before = {name: (p.detach() + 0.25).clone() for name, p in model.named_parameters()}
    past = build(kind)
    past.load_state_dict(before, strict=False)
    at = [per_example_gradients(one, loss_fn, batch, method=method) for one in (model, past)]
    found = cover(model, loss_fn, batch, method, past=((0.5, before),))
    for name, value in found.gradients.items():
        torch.testing.assert_close(value, at[0][name] + 0.5 * at[1][name], rtol=1e-2, atol=1e-2, msg=name)
        assert value.dtype == torch.float32


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16], ids=str)
def test_what_is_computed_from_a_parameter_in_low_precision_is_left_to_the_loop(precision):
    """One product with the Jacobian for the whole sum would round the sum: state space models compute so with a decay."""
    model = With(lambda m, x: (x.to(precision) * -torch.exp(m.log.float()).to(precision)).to(x.dtype), log=(6,)).bfloat16()
    with pytest.raises(PrivetError, match="low precision"):
        record(model, loss_fn, batch_of(3))
    assert probe(model, loss_fn, [split_batch(batch_of(3))], public=True) == "loop"
