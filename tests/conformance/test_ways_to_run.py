"""ORACLE for ways to run a model: checkpointed, in mixed precision, compiled, in parts, in other layouts."""

import cases
import oracle
import pytest
import torch

from privet.clipping import Flat
from privet.errors import InvalidArgumentError
from privet.gradients import clipped_sum, per_example_gradients, per_example_norms

NAMED = cases.by_name(
    "linear, few positions", "conv2d padding", "tied head", "transformer", "lstm", "attention, time-major", "class token",
    "weight norm", "as many time-major positions as examples", "embedding, shared position ids",
)  # fmt: skip


def in_mixed_precision(loss):
    def run(model, batch):
        with torch.autocast("cpu", torch.bfloat16):
            return loss(model, batch).float()

    return run


@pytest.mark.parametrize("name", [
    "linear", "linear, few positions", "linear, many positions", "conv2d padding", "transposed conv2d stride", "mlp", "tanh-cnn",
    "transformer", "x @ W",
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
    for size in (1, 5):
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
