"""A warning of slow paths: programs that the loop runs one example at a time, and those that need several passes."""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from privet.errors import PrivetWarning
from privet.gradients.core.examples import Examples
from privet.gradients.core.patches import force_eager
from privet.gradients.methods.ghost import Program
from privet.gradients.methods.passes import Passes
from privet.gradients.probe.synthetic_batch import is_joinable, join_examples

MANY = 64  # examples of the plain step that the loop is compared with
_MOST = 256  # examples of which groups are counted
_SEE = "The page engine.md of the documentation lists what runs in one pass, and what to write instead"


def warn_of_loop(program: Program, examples: Examples, why: str) -> None:
    """Warn that every example gets a pass of its own, with the reason and a measured factor in time."""
    factor = _measure_loop(program, examples)
    cost = f"about {factor:.0f} times the time of a plain step with {MANY} examples" if factor else "many times a plain step"
    _warn(f"each example gets a pass of its own (method 'loop'), {cost}, because {why}. {_SEE}")


def is_faster_alone(program: Program, examples: Examples, usual: int) -> bool:
    """Return whether the loop is faster than groups for this many examples, of the same content but other random numbers.

    A pass takes about as long as two examples in the loop. Passes are counted, not timed, so a run always takes the same path.
    """
    passes, many = Passes(program, itertools.count().__next__), min(usual, _MOST)
    try:
        repeated = examples.select(torch.arange(many, device="cpu") % examples.count)
        return any(2 * passes.begun > many for _ in passes.tapes(repeated))
    except Exception:  # of a program that is for fewer examples
        return False


def warn_of_groups(groups: int, count: int, why: str) -> None:
    """Warn that examples are computed in groups, each in a pass of its own, with their number and the reason."""
    _warn(
        f"a step computes its examples in several passes ({groups} for the {count} of the check; the time grows with their "
        f"number), because {why}. {_SEE}"
    )


def _warn(message: str) -> None:
    warnings.warn(message, PrivetWarning, stacklevel=2)


def _measure_loop(program: Program, examples: Examples) -> float | None:
    """Return the time of many examples in the loop, relative to a plain step; None if they cannot be joined to a batch."""
    many = examples.select(torch.arange(MANY, device="cpu") % examples.count).share_constants()
    if not is_joinable(many):
        return None

    def step() -> None:
        with torch.enable_grad(), force_eager(), program.guard.isolate():
            losses: Tensor = program.loss_fn(program.model, join_examples(many)).sum()
            torch.autograd.grad(losses, list(program.parameters.values()), allow_unused=True)

    def loop() -> None:
        for _ in Passes(program, lambda: 0, "loop").tapes(many.select(slice(2))):
            pass

    try:
        return MANY / 2 * _time(loop) / _time(step)
    except Exception:  # a program for one example only
        return None


def _time(call: Callable[[], None]) -> float:
    """Return the seconds of the fastest of a few calls: the first ones prepare what later ones share."""
    seconds = []
    for _ in range(4):
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return min(seconds)
