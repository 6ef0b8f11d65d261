"""Modes of torch in training: none of the user's sees what a step computes from all examples, or changes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from passing_modes import Dispatch, Function
from torch import nn
from torch.utils.data import TensorDataset
from torch.utils.flop_counter import FlopCounterMode

import privet
from privet._utils.torch_state import leave_modes, read_modes
from privet.errors import InvalidArgumentError
from privet.gradients.methods.tape import Tape
from privet.reading import batches, rows
from privet.training import stepper

N, C = 12, 0.4


def is_watched():
    """Return whether a mode of this file is active."""
    return any(type(mode) in (Function, Dispatch) for kind in read_modes() for mode in kind)


class Leaver:
    """Enters a mode when user code runs, and does not leave it; notes whether one was active already."""

    kind: type | None = None
    entered: int = 0
    met: bool = False

    def enter(self):
        if self.kind is not None:
            LEAVER.met |= is_watched()
            LEAVER.entered += 1
            self.kind().__enter__()


LEAVER = Leaver()


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    before = read_modes()
    LEAVER.__dict__.clear()
    yield
    leave_modes(before)
    LEAVER.__dict__.clear()


class Model(nn.Linear):
    def forward(self, x):
        LEAVER.enter()
        return super().forward(x)


@dataclass(frozen=True)
class Leaving(privet.clipping.NormRule):
    """Clips to the bound."""

    def factor(self, norms):
        LEAVER.enter()
        return (self.bound / norms).clamp(max=1.0)


@dataclass(frozen=True)
class LeavingInPublic(privet.clipping.Flat):
    """Clips to the bound; what it says of itself enters the mode."""

    def groups(self, names):
        LEAVER.enter()
        return super().groups(names)

    def noise_scales(self, names):
        LEAVER.enter()
        return super().noise_scales(names)

    def statistics(self, norms):
        LEAVER.enter()
        return super().statistics(norms)


@dataclass(frozen=True)
class Sampling(privet.sampling.FullBatch):
    """Draws every example."""

    event, pattern = privet.sampling.FullBatch.event, privet.sampling.FullBatch.pattern

    def draws(self, examples, words):
        for draw in super().draws(examples, words):
            LEAVER.enter()
            yield draw


PLACES = {
    "model": {"model": Model},
    "rule": {"clipping": Leaving(C)},
    "rule's description": {"clipping": LeavingInPublic(C)},
    "sampler": {"sampling": Sampling()},
}


def training_of(data=None, model=nn.Linear, **parts):
    torch.manual_seed(0)
    plan = privet.Plan(
        examples=N, steps=2, delta=1e-3, noise=privet.noise.Gaussian(1.3),
        **{"sampling": privet.sampling.FullBatch(), "clipping": privet.clipping.Flat(C), **parts},
    )  # fmt: skip
    trained = model(3, 2)
    data = data or TensorDataset(torch.randn(N, 3))
    return privet.Training(
        plan, trained, lambda m, b: m(b[0]).square().sum(1), torch.optim.SGD(trained.parameters(), lr=0.1), data
    )


@pytest.mark.parametrize("kind", [Function, Dispatch])
@pytest.mark.parametrize("place", PLACES)
def test_a_mode_that_user_code_does_not_leave_meets_nothing_later(place, kind, monkeypatch):
    """Neither other user code, nor the joining of examples, their sum and its noise."""
    training, before, met = training_of(**PLACES[place]), read_modes(), []

    def watched(call):
        def watching(*args, **options):
            met.append(is_watched())
            return call(*args, **options)

        return watching

    for owner, name in ((batches, "group_examples"), (rows, "group_examples"), (Tape, "_weighted_sum"), (stepper, "release")):
        monkeypatch.setattr(owner, name, watched(getattr(owner, name)))
    LEAVER.kind = kind
    for _ in training:
        assert read_modes() == before
    assert training.steps_spent == 2
    assert met
    assert not any(met)
    assert not LEAVER.met or place == "rule's description"  # which is asked for several things in turn, and of no example
    # What a model's example changes is undone, the count too.
    assert place == "model" or LEAVER.entered >= 2


@pytest.mark.parametrize("kind", [Function, Dispatch])
def test_a_mode_around_a_step_is_refused_before_anything_is_spent(kind):
    training = training_of()
    with kind():
        with pytest.raises(InvalidArgumentError, match=f"active mode is '{kind.__name__}'"):
            next(iter(training))
        with pytest.raises(InvalidArgumentError, match="active mode"):
            training_of()
    assert training.steps_spent == 0
    next(iter(training))
    assert training.steps_spent == 1


def test_a_default_device_may_be_active_but_no_counter_of_torch():
    """A counter takes formulas of the user's, which it gives tensors of all examples."""
    training = training_of()
    with FlopCounterMode(display=False), pytest.raises(InvalidArgumentError, match="FlopCounterMode"):
        next(iter(training))
    assert training.steps_spent == 0
    with torch.device("cpu"):
        next(iter(training))
    assert training.steps_spent == 1
