"""Limits of the flows of optimizers under local and global clipping, for all parameters together and for each layer."""

from __future__ import annotations

__all__ = ["CLIPPINGS", "SYSTEMS", "Clipping", "optimizer_flow"]

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from privet.clipping import Global, Layerwise, Rule
from privet.gradients import trainable
from privet_experiments.tangent_kernel.dynamics import DYNAMICS
from privet_experiments.tangent_kernel.flow import Flow, gradient_flow
from privet_experiments.tangent_kernel.problems import Problem

# The published theorem is about these; gradient descent is that of the first two theorems.
SYSTEMS = tuple(name for name in DYNAMICS if name != "gradient descent")
# The cutoff Z is larger than every gradient on the way; the layers' factors R/Z differ.
_CUTOFF, _FACTOR = 300.0, 0.5
# How much longer a flow and smaller a step is than the problem's: some systems are slow, and adaptive ones need small steps.
_LONGER, _SLOWER = 3, 2


@dataclass(frozen=True)
class Clipping:
    """A kind of clipping: function from a problem to its rule, and whether a loss that converges must converge to zero."""

    rule: Callable[[Problem], Rule]
    guaranteed: bool


def _global_layerwise(problem: Problem) -> Rule:
    """Return global clipping of each module, with a factor R/Z that halves from one to the next."""
    names = tuple(trainable(problem.model))
    groups = Layerwise(Global(1.0)).groups(names)
    return Layerwise(tuple(Global(_CUTOFF * _FACTOR ** (number + 1), cutoff=_CUTOFF) for number in range(len(groups))))


CLIPPINGS: Mapping[str, Clipping] = {
    "local, flat": Clipping(lambda problem: problem.flat, True),
    "global, flat": Clipping(lambda problem: Global(_CUTOFF * _FACTOR, cutoff=_CUTOFF), True),
    "global, layerwise": Clipping(_global_layerwise, True),
    "local, layerwise": Clipping(lambda problem: problem.layerwise, False),
}


def optimizer_flow(system: str, clipping: str, problem: Problem, *, looks: int = 0) -> Flow:
    """Return the flow of a problem under an optimizer, one of `DYNAMICS`, and a kind of clipping, one of `CLIPPINGS`.

    Source:
        Bu et al. 2023, "On the Convergence and Calibration of Deep Learning with Differential Privacy", Theorem 3 and Appendix
        C.5 to C.7.
    """
    return gradient_flow(
        problem.model, problem.criterion, problem.inputs, problem.targets, CLIPPINGS[clipping].rule(problem),
        learning_rate=problem.learning_rate / _SLOWER, steps=problem.steps * _SLOWER * _LONGER, looks=looks,
        dynamics=DYNAMICS[system],
    )  # fmt: skip
