"""ORACLE for ways to run a model: checkpointed, in mixed precision, compiled, in parts, in other layouts."""

from __future__ import annotations

import cases
import oracle
import pytest
import torch
from recording import cover
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from privet.clipping import Flat
from privet.errors import InvalidArgumentError
from privet.gradients import clipped_sum, per_example_gradients, per_example_norms

NAMED = cases.by_name(
    "linear, few positions", "conv2d padding", "tied head", "transformer", "lstm", "attention, time-major", "class token",
    "weight norm", "as many time-major positions as examples", "embedding, shared position ids",
)  # fmt: skip


class Blocks(nn.Module):
    """Layers of many kinds, the middle ones optionally checkpointed."""

    def __init__(self, reentrant):
        super().__init__()
        self.reentrant = reentrant
        self.table, self.scale = nn.Embedding(11, 8), nn.Parameter(torch.rand(8) + 1)
        self.norm, self.a, self.b = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 4)

    def middle(self, x):
        h = self.norm(x) * self.scale
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.b(F.dropout(torch.tanh(self.a(x)), 0.0))

    def forward(self, words):
        x = self.table(words)
        for _ in range(2):
            x = self.middle(x) if self.reentrant is None else checkpoint(self.middle, x, use_reentrant=self.reentrant)
        return self.head(x.mean(1))


@pytest.mark.parametrize("length", [6, 5], ids=["", "as long as the batch"])
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.filterwarnings("ignore:.*use_reentrant.*")
def test_checkpointed_parts_leave_nothing_behind(reentrant, length):
    """The newer kind takes one pass; the older one has its own backward pass and uses the loop."""
    torch.manual_seed(0)
    model, plain = Blocks(reentrant).double(), Blocks(None).double()
    plain.load_state_dict(model.state_dict())
    batch = torch.randint(11, (5, length)), torch.randint(4, (5,))
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 7.0)
    covered = cover(model, cases.cross_entropy, batch)
    assert covered.looped == (5 if reentrant else 0)
    expected = oracle.plain_gradients(plain, cases.cross_entropy, batch)
    assert oracle.relative_error_per_example(covered.gradients, expected) <= 1e-10
    assert all(bool((parameter.grad == 7.0).all()) for parameter in model.parameters())


def in_mixed_precision(loss):
    def run(model, batch):
        with torch.autocast("cpu", torch.bfloat16):
            return loss(model, batch).float()

    return run


@pytest.mark.parametrize("name", [
    "linear", "linear, few positions", "linear, many positions", "conv2d padding", "mlp", "tanh-cnn", "transformer", "x @ W",
    "addmm of flattened positions", "attention", "group norm", "layer norm over positions", "scale and shift",
])  # fmt: skip
def test_under_autocast_norms_are_measured_in_float32(name):
    (case,) = cases.by_name(name)
    model, batch, loss = case.model(), case.batch(5), in_mixed_precision(case.loss)
    expected = per_example_gradients(model, loss, batch, method="loop")
    found = per_example_gradients(model, loss, batch, method="ghost")
    assert all(value.dtype == torch.float32 for value in found.values())
    # Plain autograd rounds every gradient to bfloat16, of 8 bits; so do the products on the way to it.
    assert oracle.relative_error(found, expected) <= 2e-2
    length = oracle.norms_of({key: value.double() for key, value in found.items()})
    norms = per_example_norms(model, loss, batch, method="ghost")
    assert (norms >= length * (1 - 1e-6)).all()
    assert torch.allclose(norms, length, rtol=1e-4)
    for position in range(5):
        alone = oracle.select(batch, slice(position, position + 1))
        bound = float(norms[position]) / 3
        assert oracle.size(clipped_sum(model, loss, alone, Flat(bound), method="ghost").tensors) <= bound * (1 + 1e-6)


@pytest.mark.parametrize("name", ["linear, few positions", "conv2d padding", "mlp", "transformer", "tied head", "lstm"])
def test_under_autocast_all_around_norms_are_measured_in_float32_too(name):
    (case,) = cases.by_name(name)
    model, batch = case.model(), case.batch(5)
    with torch.autocast("cpu", torch.bfloat16):
        outside = per_example_norms(model, case.loss, batch, method="ghost")
        gradients = per_example_gradients(model, case.loss, batch, method="ghost")
    inside = per_example_norms(model, in_mixed_precision(case.loss), batch, method="ghost")
    assert torch.allclose(outside, inside, rtol=1e-2)
    assert torch.allclose(outside, oracle.norms_of({key: value.double() for key, value in gradients.items()}), rtol=1e-5)


@pytest.mark.parametrize("case", NAMED, ids=str)
def test_parts_of_any_size_give_the_same(case):
    model, batch = case.model(torch.float64), case.batch(7, torch.float64)
    whole = clipped_sum(model, case.loss, batch, Flat(0.3), method="ghost")
    gradients = per_example_gradients(model, case.loss, batch, method="ghost")
    for size in (1, 5, 100):
        parts = clipped_sum(model, case.loss, batch, Flat(0.3), method="ghost", physical_batch_size=size)
        assert oracle.relative_error(parts.tensors, whole.tensors) <= 1e-12
        assert torch.allclose(parts.norms, whole.norms, rtol=1e-12)
        again = per_example_gradients(model, case.loss, batch, method="ghost", physical_batch_size=size)
        assert oracle.relative_error_per_example(again, gradients) <= 1e-12
        norms = per_example_norms(model, case.loss, batch, method="ghost", physical_batch_size=size)
        assert torch.allclose(norms, whole.norms, rtol=1e-12)


@pytest.mark.parametrize("size", [0, -3, 2.5, "all"])
def test_a_part_without_examples_is_refused(size):
    (case,) = cases.by_name("linear")
    with pytest.raises(InvalidArgumentError, match="physical_batch_size"):
        per_example_norms(case.model(), case.loss, case.batch(3), physical_batch_size=size)


def test_a_compiled_model_runs_as_it_was_written():
    def backend(graph, _inputs):
        raise AssertionError("the graph was compiled")

    (case,) = cases.by_name("mlp")
    model, batch = case.model(torch.float64), case.batch(5, torch.float64)
    expected = oracle.plain_gradients(model, case.loss, batch)
    found = per_example_gradients(torch.compile(model, backend=backend), case.loss, batch, method="ghost")
    assert oracle.relative_error_per_example({name.removeprefix("_orig_mod."): g for name, g in found.items()}, expected) <= 1e-10
