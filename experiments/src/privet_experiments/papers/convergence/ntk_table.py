"""Effects of clipping on gradient flow: the published table computed from runs, with rows for later rules."""

from __future__ import annotations

__all__ = ["NTK_TABLE"]

from privet_experiments import tangent_kernel
from privet_experiments.claims import Claim
from privet_experiments.papers.sources import BU
from privet_experiments.recipe import Arm, Chart, Recipe

_VERDICTS = tuple(name.replace(" ", "_") for name in tangent_kernel.PROPERTIES)

NTK_TABLE = Recipe(
    name="ntk-table",
    title="Effects of clipping on gradient flow and its tangent kernel",
    source=f"{BU}, Table 1",
    data=None,
    task="gradient flow",
    common={},
    arms=tuple(
        Arm(
            name,
            {"clipping": name},
            {} if kind.guaranteed is None else dict(zip(_VERDICTS, map(float, kind.guaranteed), strict=True)),
        )
        for name, kind in tangent_kernel.KINDS.items()
    ),
    metrics=(*_VERDICTS, "smallest_quadratic", "smallest_real_part", "final_loss"),
    seeds=len(tangent_kernel.problems()),
    charts=(Chart("verdicts", "verdicts"),),
    note=(
        "Each run follows the gradient flow of one of three small synthetic problems, without noise; the seed is the number "
        "of the problem. A property that the paper guarantees must hold in all three problems. A property that it does not "
        "guarantee must fail in at least one. Arms that are not in the paper use the small bounds, with r = 0.5 and s = 0.9. "
        "The numbers are means ± standard deviations over the problems: the smallest eigenvalue of the symmetric part, the "
        "smallest real part of an eigenvalue, and the ratio of the final loss to the initial loss."
    ),
    claims=tuple(
        Claim(
            f"{name[0].upper()}{name[1:]}: {metric.replace('_', ' ')} is {'' if guaranteed else 'not '}guaranteed",
            metric,
            name,
            "always" if guaranteed else "not always",
        )
        for name, kind in tangent_kernel.KINDS.items()
        if kind.guaranteed is not None
        for metric, guaranteed in zip(_VERDICTS, kind.guaranteed, strict=True)
    ),
    rates="a step size for each problem, small enough to follow the flow",
    remark=(
        "Three problems can refute a guarantee but cannot prove one. They were constructed so that every property that is not "
        "guaranteed fails in one of them."
    ),
    hours=0.01,
)
