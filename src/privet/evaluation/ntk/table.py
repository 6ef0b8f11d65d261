"""What clipping guarantees of gradient flow, and whether runs agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from privet.clipping import BatchClipping, Flat, Layerwise, Rule
from privet.evaluation.ntk.flow import Flow, gradient_flow
from privet.evaluation.ntk.problems import Problem, problems
from privet.evaluation.studies.marking import WARNING, NonPrivate

# A loss counts as zero below this part of what it was at the start.
_ZERO = 1e-3
_LARGE = 1e6
_LOOKS = 6


@dataclass(frozen=True)
class Verdict:
    """Whether a property of the flow is guaranteed, and in how many of the runs it held.

    Args:
        guaranteed: by the theorems.
        held: in this many runs, at every look.
        runs: how many there were.
    """

    guaranteed: bool
    held: int
    runs: int

    @property
    def agrees(self) -> bool:
        """Whether the runs say what the theorem says: always where it is guaranteed, and not always where it is not."""
        return (self.held == self.runs) == self.guaranteed

    def __str__(self) -> str:
        return f"{'yes' if self.guaranteed else 'no'} ({self.held}/{self.runs})"


@dataclass(frozen=True, repr=False)
class ClippingTable(NonPrivate):
    """Kinds of clipping against properties of the flow; printed, a table in Markdown.

    Args:
        verdicts: kind of clipping → property → verdict.

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
        head = ("guaranteed (held/runs)", *_PROPERTIES)
        rows = [(kind, *map(str, row.values())) for kind, row in self.verdicts.items()]
        lines = (head, tuple("---" for _ in head), *rows)
        return "\n".join([*("| " + " | ".join(line) + " |" for line in lines), "", f"{WARNING}."])


_PROPERTIES: dict[str, Callable[[Flow], bool]] = {
    "symmetric kernel": lambda flow: all(kernel.symmetric for kernel in flow.kernels),
    "positive in quadratic form": lambda flow: all(kernel.positive_in_quadratic_form for kernel in flow.kernels),
    "positive in eigenvalues": lambda flow: all(kernel.positive_in_eigenvalues for kernel in flow.kernels),
    "monotone loss": lambda flow: flow.monotone,
    "loss to zero": lambda flow: flow.losses[-1] <= _ZERO * flow.losses[0],
}

# Kind of clipping → the rule for a problem, and which of the properties are guaranteed, in their order.
_KINDS: dict[str, tuple[Callable[[Problem], Rule | None], tuple[bool, bool, bool, bool, bool]]] = {
    "no clipping": (lambda problem: None, (True, True, True, True, True)),
    "batch clipping": (lambda problem: BatchClipping(5.0), (True, True, True, True, True)),
    "large bound, flat": (lambda problem: Flat(_LARGE), (True, True, True, True, True)),
    "large bound, layerwise": (lambda problem: Layerwise(Flat(_LARGE)), (True, True, True, True, True)),
    "small bound, flat": (lambda problem: problem.flat, (False, False, True, False, True)),
    "small bound, layerwise": (lambda problem: problem.layerwise, (False, False, False, False, False)),
}


def clipping_table(cases: Sequence[Problem] | None = None) -> ClippingTable:
    """Return what every kind of clipping does to gradient flow, from runs.

    A run can break what is not guaranteed, and must not break what is. Which of the two a single problem shows depends on it; the
    built-in ones together show every entry of the published table.

    Args:
        cases: problems whose kernel without clipping is positive definite, as the theorems ask; the built-in ones if None.
    """
    chosen = problems() if cases is None else tuple(cases)
    return ClippingTable({kind: _verdicts(rule, guaranteed, chosen) for kind, (rule, guaranteed) in _KINDS.items()})


def _verdicts(
    rule: Callable[[Problem], Rule | None], guaranteed: Sequence[bool], cases: Sequence[Problem]
) -> Mapping[str, Verdict]:
    flows = [
        gradient_flow(
            case.model, case.criterion, case.inputs, case.targets, rule(case),
            learning_rate=case.learning_rate, steps=case.steps, looks=_LOOKS,
        )
        for case in cases
    ]  # fmt: skip
    return {
        name: Verdict(promised, sum(holds(flow) for flow in flows), len(flows))
        for (name, holds), promised in zip(_PROPERTIES.items(), guaranteed, strict=True)
    }
