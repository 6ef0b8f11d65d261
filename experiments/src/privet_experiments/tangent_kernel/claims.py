"""Properties of gradient flow that clipping guarantees, checked by runs."""

from __future__ import annotations

__all__ = ["KINDS", "OF_THE_PATH", "PROPERTIES", "ClippingTable", "Kind", "Verdict", "clipping_table", "flow_of"]

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from privet.clipping import PSAC, PSASC, Automatic, Flat, Layerwise, Rule
from privet.clipping.base import NormRule
from privet_experiments.studies.marking import WARNING, NonPrivate
from privet_experiments.tangent_kernel.batch_clipping import BatchClipping
from privet_experiments.tangent_kernel.flow import Flow, gradient_flow
from privet_experiments.tangent_kernel.problems import Problem, problems

# A loss below this fraction of the initial loss counts as zero.
_ZERO = 1e-3
_LARGE = 1e6
_LOOKS = 6
# Parameters of the rules that have them.
_STABILITY, _SCALE, _SLOWER = 0.5, 0.9, 8


@dataclass(frozen=True)
class Verdict:
    """Number of runs in which a property of the flow held at every look, and whether the theorems guarantee it."""

    guaranteed: bool
    held: int
    runs: int

    @property
    def agrees(self) -> bool:
        """Whether the runs agree with the theorems: the property always holds exactly if it is guaranteed."""
        return (self.held == self.runs) == self.guaranteed

    def __str__(self) -> str:
        return f"{'yes' if self.guaranteed else 'no'} ({self.held}/{self.runs})"


@dataclass(frozen=True, repr=False)
class ClippingTable(NonPrivate):
    """Kind of clipping → property of the flow → verdict; prints as Markdown.

    Source:
        Bu et al. 2023, "On the Convergence and Calibration of Deep Learning with Differential Privacy", Table 1 and
        Theorems 1 and 2.
    """

    verdicts: Mapping[str, Mapping[str, Verdict]]

    @property
    def agrees(self) -> bool:
        """Whether all verdicts agree with the theorems."""
        return all(verdict.agrees for row in self.verdicts.values() for verdict in row.values())

    def __str__(self) -> str:
        head = ("guaranteed (held/runs)", *PROPERTIES)
        rows = [(kind, *map(str, row.values())) for kind, row in self.verdicts.items()]
        lines = (head, tuple("---" for _ in head), *rows)
        return "\n".join([*("| " + " | ".join(line) + " |" for line in lines), "", f"{WARNING}."])


PROPERTIES: Mapping[str, Callable[[Flow], bool]] = {
    "symmetric kernel": lambda flow: all(kernel.symmetric for kernel in flow.kernels),
    "positive in quadratic form": lambda flow: all(kernel.positive_in_quadratic_form for kernel in flow.kernels),
    "positive in eigenvalues": lambda flow: all(kernel.positive_in_eigenvalues for kernel in flow.kernels),
    "monotone loss": lambda flow: flow.monotone,
    "loss to zero": lambda flow: flow.losses[-1] <= _ZERO * flow.losses[0],
}
# Properties that need no kernels.
OF_THE_PATH = ("monotone loss", "loss to zero")


@dataclass(frozen=True)
class Kind:
    """A kind of clipping.

    Args:
        rule: function from a problem to its rule; None for no clipping.
        guaranteed: for each property, whether the theorems guarantee it; None without a row in the published table.
        slower: divisor of each step, so that weights above 1 stay on the flow's path.
    """

    rule: Callable[[Problem], Rule | None]
    guaranteed: tuple[bool, ...] | None = None
    slower: int = 1


def _with(make: Callable[[float], NormRule]) -> Callable[[Problem], Rule]:
    """Return a function from a problem to the rule with the bound of its flat rule."""
    return lambda problem: make(problem.flat.bound)


def _within(make: Callable[[float], NormRule]) -> Callable[[Problem], Rule]:
    """Return a function from a problem to its layerwise rule with other rules of the same bounds."""

    def rule(problem: Problem) -> Rule:
        inside: Any = problem.layerwise.rules
        made = tuple(make(one.bound) for one in inside) if isinstance(inside, tuple) else make(inside.bound)
        return replace(problem.layerwise, rules=made)

    return rule


_SOFTENED: Mapping[str, Callable[[float], NormRule]] = {
    "Auto-S": lambda bound: Automatic(bound, _STABILITY),
    "PSAC": lambda bound: PSAC(bound, _STABILITY),
    "PSASC": lambda bound: PSASC(bound, _SCALE, _STABILITY),
}
_ALL, _FLAT, _LAYERWISE = (True,) * 5, (False, False, True, False, True), (False,) * 5
KINDS: Mapping[str, Kind] = {
    "no clipping": Kind(lambda problem: None, _ALL),
    "batch clipping": Kind(lambda problem: BatchClipping(5.0), _ALL),
    "large bound, flat": Kind(lambda problem: Flat(_LARGE), _ALL),
    "large bound, layerwise": Kind(lambda problem: Layerwise(Flat(_LARGE)), _ALL),
    "small bound, flat": Kind(lambda problem: problem.flat, _FLAT),
    "small bound, layerwise": Kind(lambda problem: problem.layerwise, _LAYERWISE),
    **{f"{name}, flat": Kind(_with(make), slower=_SLOWER) for name, make in _SOFTENED.items()},
    **{f"{name}, layerwise": Kind(_within(make), slower=_SLOWER) for name, make in _SOFTENED.items()},
}


def clipping_table(cases: Sequence[Problem] | None = None) -> ClippingTable:
    """Return the effects of every kind of clipping in the published table on gradient flow, from runs.

    Runs must satisfy guaranteed properties and may violate others. The built-in problems together show the whole published table.

    Args:
        cases: problems whose kernel without clipping is positive definite, as the theorems require; None for the built-in ones.
    """
    chosen = problems() if cases is None else tuple(cases)
    return ClippingTable(
        {name: _verdicts(name, kind.guaranteed, chosen) for name, kind in KINDS.items() if kind.guaranteed is not None}
    )


def flow_of(kind: str, problem: Problem) -> Flow:
    """Return the flow of a problem under a kind of clipping, one of `KINDS`, with kernels along the path."""
    how = KINDS[kind]
    return gradient_flow(
        problem.model, problem.criterion, problem.inputs, problem.targets, how.rule(problem),
        learning_rate=problem.learning_rate / how.slower, steps=problem.steps * how.slower, looks=_LOOKS,
    )  # fmt: skip


def _verdicts(kind: str, guaranteed: Sequence[bool], cases: Sequence[Problem]) -> Mapping[str, Verdict]:
    flows = [flow_of(kind, case) for case in cases]
    return {
        name: Verdict(promised, sum(holds(flow) for flow in flows), len(flows))
        for (name, holds), promised in zip(PROPERTIES.items(), guaranteed, strict=True)
    }
