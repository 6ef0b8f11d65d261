"""Whole trainings on the CPU and on the emulated device, with the fixed source of noise."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from unittest import mock

import torch
from emulated_cuda import Trace
from torch import nn
from torch.nn import functional as F

from distributed import trainings
from distributed.trainings import Case
from privet import clipping
from privet.distributed import World
from privet.gradients.core.examples import Examples
from privet.gradients.methods import ghost

SECONDS = 60.0


class Grouped(nn.Module):
    """A network that reads a value of its input, so that examples of a batch are split into groups."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(trainings.D, 11), nn.Linear(11, trainings.CLASSES)

    def forward(self, x):
        hidden = self.first(x)
        return self.second(torch.relu(hidden) if x[..., 0] > 0 else torch.tanh(hidden))


def autocast_losses(model, batch):
    with torch.autocast(batch[0].device.type, dtype=torch.bfloat16):
        return F.cross_entropy(model(batch[0]), batch[1], reduction="none")


CASES = {
    **trainings.CASES,
    "normalised": Case({"clipping": clipping.Normalize(bound=1.0)}),
    "PSASC": Case({"clipping": clipping.PSASC(bound=1.0)}),
    "global": Case({"clipping": clipping.Global(bound=1.0)}),
    "adaptive automatic": Case({"clipping": clipping.AdaptiveQuantile(clipping.Automatic(bound=1.0))}),
    "groups": Case(model=Grouped),
    "autocast": Case(loss=autocast_losses),
}


@dataclass(frozen=True)
class Trained:
    """What a training came to."""

    method: str
    parameters: torch.Tensor
    ways: tuple[int, int]  # looped examples, and passes that were begun


def make(name, device):
    """Return the training of a case on a device."""
    case = CASES[name]
    trainings.CASES["here"] = replace(case, model=lambda: case.model().to(device))
    return trainings.make("here", World.here(SECONDS))


def train(name, device):
    """Return what a training on a device comes to."""
    warnings.simplefilter("ignore")
    with mock.patch.object(ghost, "record", wraps=ghost.record) as record:
        training = make(name, device)
        training.run()
    parameters = trainings.parameters_of(training)
    assert parameters.device.type == device
    return Trained(training.method, parameters.cpu(), (training._engine.looped, record.call_count))


def train_on_both(name):
    """Return what a training comes to on the CPU, and on the device."""
    return train(name, "cpu"), train(name, "cuda")


@dataclass(frozen=True)
class Step:
    """What a step did on the device: place → (times, bytes)."""

    waits: dict[str, tuple[int, int]]
    copies: dict[str, tuple[int, int]]
    batches: int  # physical ones
    inputs: int  # bytes of the examples
    numbers: int  # of the parameters
    tensors: int


def trace_step(name):
    """Return what the second step of a training does on the device."""
    warnings.simplefilter("ignore")
    training = make(name, "cuda")
    steps, sizes = iter(training), []
    next(steps)
    to = Examples.to

    def counted(examples, device):
        tensors = [leaf for leaf in examples.leaves if isinstance(leaf, torch.Tensor)]
        sizes.append(sum(leaf.nbytes for leaf in tensors if leaf.device != device))
        return to(examples, device)

    with mock.patch.object(Examples, "to", counted), Trace() as trace:
        next(steps)
    parameters = [each for each in training.model.parameters() if each.requires_grad]
    waits, copies = trace.by_function("wait", "to host"), trace.by_function("to device")
    return Step(waits, copies, len(sizes), sum(sizes), sum(each.numel() for each in parameters), len(parameters))
