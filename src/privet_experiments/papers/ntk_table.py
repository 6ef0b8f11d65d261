"""What clipping does to gradient flow: a published table from runs, with rows for rules that came later."""

from __future__ import annotations

from privet_experiments import tangent_kernel
from privet_experiments.recipe import Arm, Chart, Recipe

_VERDICTS = tuple(name.replace(" ", "_") for name in tangent_kernel.PROPERTIES)

NTK_TABLE = Recipe(
    name="ntk-table",
    title="What clipping does to gradient flow and its tangent kernel",
    source="Bu et al., “On the convergence and calibration of deep learning with differential privacy”, Table 1",
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
        "Each run is one of three small problems that are made up for this, followed without noise; seed and problem have the "
        "same number. What the paper guarantees must hold in all of them, and what it does not is broken by one of them. Rows "
        "that the paper has not take the small bounds, with r = 0.5 and s = 0.9. Numbers are means ± standard deviations over "
        "the problems: smallest eigenvalue of the symmetric part, smallest real part of an eigenvalue, and final loss over the "
        "first."
    ),
    hours=0.01,
)
