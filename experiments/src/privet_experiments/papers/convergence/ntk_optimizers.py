"""Limits of the flows of momentum and adaptive optimizers under clipping: the theorem's verdicts from runs."""

from __future__ import annotations

__all__ = ["NTK_OPTIMIZERS"]

from privet_experiments import tangent_kernel
from privet_experiments.claims import Claim
from privet_experiments.papers.sources import BU
from privet_experiments.recipe import Arm, Chart, Recipe

_ARMS = {
    f"{system}, {name}": (system, name, clipping.guaranteed)
    for system in tangent_kernel.SYSTEMS
    for name, clipping in tangent_kernel.CLIPPINGS.items()
}

NTK_OPTIMIZERS = Recipe(
    name="ntk-optimizers",
    title="Limits of momentum and adaptive gradient flows under clipping",
    source=f"{BU}, Theorem 3 and Appendix C.5 to C.7",
    data=None,
    task="gradient flow",
    common={},
    arms=tuple(
        Arm(arm, {"clipping": name, "optimizer": system}, {"loss_to_zero": float(guaranteed)})
        for arm, (system, name, guaranteed) in _ARMS.items()
    ),
    metrics=("loss_to_zero", "final_loss"),
    seeds=len(tangent_kernel.problems()),
    charts=(Chart("verdicts", "verdicts"),),
    note=(
        "Each run follows the flow of one of three small synthetic problems, without noise; the seed is the number of the "
        "problem. The systems are those of the paper's Equations C.1 to C.8: heavy ball with r = 1, NAG with r(t) = 3/t, Adam "
        "with time constants 1 and 2, AdaGrad with p = 1 and q = 0, RMSprop with p = q = 1/2, each with ξ = 0.1 under the root. "
        "Local clipping has the small bounds of the problems. Global clipping has a cutoff Z above every gradient on the way, as "
        "the theorem requires, and layers with different factors R/Z. The paper says where a loss that converges must end. "
        "Zero means below a thousandth of the initial loss after the time of the run. The number is the ratio of the final loss "
        "to the initial loss, as mean ± standard deviation over the problems."
    ),
    claims=tuple(
        Claim(
            f"{arm[0].upper()}{arm[1:]}: the loss {'converges' if guaranteed else 'need not converge'} to zero",
            "loss_to_zero",
            arm,
            "always" if guaranteed else "not always",
        )
        for arm, (_, _, guaranteed) in _ARMS.items()
    ),
    rates="half the step size that each problem has for gradient descent",
    remark="Three problems can refute a guarantee but cannot prove one. In the second, layerwise clipping was made to fail.",
    hours=0.03,
)
