"""What tests compute on the CPU and on the emulated device, in its process."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from unittest import mock

import cases
import oracle
import pytest
import torch
from emulated_cuda import Trace
from real_models import REAL_MODELS
from recording import make_scarce

from privet._utils.randomness import preserve_generators
from privet.clipping import Flat
from privet.gradients import clipped_sum
from privet.gradients.core.examples import split_batch
from privet.gradients.core.randomness import draw_torch_seed
from privet.gradients.methods.ghost import Program
from privet.gradients.methods.passes import Passes
from privet.gradients.methods.tape import clip
from privet.gradients.parameters import trainable
from privet.gradients.probe.probe import probe

# These make tensors without saying where, as a program may that sets a default device.
PLACED_BY_DEFAULT = {
    "weighted embedding bag", "ragged weighted embedding bags", "ragged embedding bags", "table of relative positions",
    "regularised loss", "zeros that are filled in", "zeros that are filled in and scaled", "hidden state that starts at zero",
    "attention with biases that are broadcast", "transformer", "position ids as long as the batch",
    "ragged embedding bags, last offset included", "embedding bags by offsets",
}  # fmt: skip


@dataclass
class Split:
    """How the passes covered a batch, and the clipped sum and norms, on the CPU."""

    looped: int
    groups: int
    sums: dict[str, torch.Tensor] = field(default_factory=dict)
    norms: dict[int, float] = field(default_factory=dict)


def energy(model, batch):
    """Return the losses of `cases.energy`, on any device."""
    out = model(*batch)
    out = out.reshape(len(out), -1)
    return ((out - 1).square() * torch.linspace(0.5, 1.5, out.shape[1], dtype=out.dtype, device=out.device)).mean(1)


def moved(batch, device):
    return tuple(x.to(device) if isinstance(x, torch.Tensor) else x for x in batch)


def loss_of(case):
    return energy if case.loss is cases.energy else case.loss


def by_default(case, device):
    """Return a context in which the program of a case finds its tensors."""
    return torch.device(device) if case.name in PLACED_BY_DEFAULT else contextlib.nullcontext()


def split_of(case, device, dtype, method):
    """Return how the passes cover a case on a device."""
    model, batch = case.model(dtype).to(device), moved(case.batch(oracle.EXAMPLES, dtype), device)
    loss, parameters = loss_of(case), trainable(model)
    rule, groups = Flat(0.7), (tuple(parameters),)
    passes = Passes(Program(model, loss, parameters), draw_torch_seed, method)
    found = Split(0, 0)
    torch.manual_seed(3)
    with by_default(case, device), preserve_generators():
        for index, tape in passes.tapes(split_batch(batch)):
            sums, norms = clip(tape, rule, groups)
            found.norms |= zip(index.tolist(), norms[0].tolist(), strict=True)
            for name, value in sums.items():
                assert value.device.type == device
                found.sums[name] = found.sums.get(name, 0) + value.cpu()
    found.looped, found.groups = passes.looped, passes.groups
    return found


def case_of(name):
    return next(each for each in (*cases.FOLLOWED, *cases.UNFOLLOWED) if each.name == name)


def compare(name, dtype, method):
    """Return (looped, groups) on both devices and relative differences of sums and norms."""
    host, device = (split_of(case_of(name), where, dtype, method) for where in ("cpu", "cuda"))
    assert host.norms.keys() == device.norms.keys()
    norms = max(abs(device.norms[place] - norm) / (norm or 1.0) for place, norm in host.norms.items())
    ways = [(each.looped, each.groups) for each in (host, device)]
    return ways, oracle.relative_error(device.sums, host.sums), norms


def methods_of(name):
    """Return what the check before the first step chooses on the CPU, and on the device."""
    case, found = case_of(name), []
    for device in ("cpu", "cuda"):
        model, batch = case.model().to(device), moved(case.batch(oracle.EXAMPLES), device)
        with by_default(case, device), preserve_generators():
            torch.manual_seed(3)
            # What is timed depends on the load of the machine.
            with mock.patch("privet.gradients.probe.probe.is_faster_alone", return_value=False):
                found.append(probe(model, loss_of(case), [split_batch(batch)], public=True, usual=oracle.EXAMPLES))
    return found


def traced_sum(model, loss, batch):
    """Return the clipped sum, and place → (times, bytes) of waits and of copies to the device, where the inputs are."""
    clipped_sum(model, loss, batch, Flat(0.7))  # the first finds out what a program does
    with Trace() as trace:
        found = clipped_sum(model, loss, batch, Flat(0.7))
    return found, trace.by_function("wait", "to host"), trace.by_function("to device")


def waits_and_copies(name, dtype, scarce):
    """Return place → (times, bytes) of the clipped sum of a case; `scarce` memory makes it work in blocks."""
    case = case_of(name)
    model, batch = case.model(dtype).cuda(), moved(case.batch(oracle.EXAMPLES, dtype), "cuda")
    with by_default(case, "cuda"), pytest.MonkeyPatch.context() as patch:
        if scarce:
            make_scarce(patch)
        return traced_sum(model, loss_of(case), batch)[1:]


def compare_real_model(name):
    """Return relative differences of sums and norms of a model of `transformers`, and its waits and copies."""
    import transformers

    real = next(each for each in REAL_MODELS if each.name == name)
    model, batch = real.build(transformers), real.batch(4, torch.float32)
    host = clipped_sum(model, real.loss, batch, Flat(0.7))
    with torch.device("cuda"):  # their losses make tensors without saying where
        device, waits, copies = traced_sum(model.cuda(), real.loss, moved(batch, "cuda"))
    norms = ((device.norms.cpu() - host.norms) / host.norms).abs().max()
    sums = oracle.relative_error({name: value.cpu() for name, value in device.tensors.items()}, host.tensors)
    return sums, float(norms), waits, copies
