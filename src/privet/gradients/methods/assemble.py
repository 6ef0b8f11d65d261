"""Assembly of a tape from a recorder: the sum of all recorded gradients of each parameter."""

from __future__ import annotations

__all__ = ["assemble"]

from privet.gradients.combine.derived import pull_back
from privet.gradients.combine.rows import group_rows
from privet.gradients.combine.sums import sum_grads
from privet.gradients.core.per_example import PerExampleGrad, store_small
from privet.gradients.core.recorder import Recorder
from privet.gradients.methods.tape import Tape


def assemble(recorder: Recorder) -> Tape:
    """Return the tape of a completed pass."""
    found: dict[str, list[PerExampleGrad]] = {}
    seen: set[int] = set()
    for leaf in recorder.leaves:
        if not leaf.gradients or id(leaf.gradients) in seen:
            continue
        seen.add(id(leaf.gradients))
        used = sum_grads([group_rows(gradient, rows) for gradient, rows in leaf.gradients])
        if len(leaf.derivations) > 1:
            used = store_small(used)
        if leaf.derivations:
            for name, derivation in leaf.derivations.items():
                found.setdefault(name, []).append(pull_back(used, derivation))
        else:
            found.setdefault(leaf.name, []).append(used)
    return Tape(recorder.examples, recorder.parameters, {name: sum_grads(gradients) for name, gradients in found.items()})
