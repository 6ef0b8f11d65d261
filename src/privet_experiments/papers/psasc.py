"""Scaling weights: DP-SGD, Auto-S, PSAC, PSASC and PSASC with momentum, on two data sets."""

from __future__ import annotations

from privet import clipping
from privet.momentum import InnerOuter
from privet.plan import epochs
from privet.sampling import Poisson
from privet.schedules import ToZero
from privet_experiments.recipe import Arm, Chart, Recipe

_SOURCE = "Huang et al., “Enhancing DP-SGD through non-monotonous adaptive scaling gradient weight”, Tables II and III"
_NOTE = (
    "The paper gives neither widths nor learning rates nor the parameters of PSASC*: the network is ours (four convolutions with "
    "tanh, two of them strided, 20 K parameters), rates fall linearly to nought and are searched in runs of a quarter of the "
    "length, the inner momentum weighs one past step by 0.1 and the outer keeps a tenth. What is shown of gradients is of plain "
    "ones: the momentum inside the weight of PSASC* is no part of it. "
)


def _arms(bound: float, stability: float, scale: float, reported: tuple[float, ...]) -> tuple[Arm, ...]:
    psasc = clipping.PSASC(bound, scale, stability)
    plans = {
        "DP-SGD": {"clipping": clipping.Flat(bound)},
        "Auto-S": {"clipping": clipping.Automatic(bound, stability)},
        "PSAC": {"clipping": clipping.PSAC(bound, stability)},
        "PSASC": {"clipping": psasc},
        "PSASC*": {"clipping": psasc, "momentum": InnerOuter(inner=0.1, outer=0.9, length=1)},
    }
    return tuple(
        Arm(name, {"plan": plan}, {"accuracy": number}) for (name, plan), number in zip(plans.items(), reported, strict=True)
    )


_COMMON = {"model": "strided-cnn", "momentum": 0.9, "learning_rate": 1.6, "rate_schedule": ToZero()}
_METRICS = ("accuracy", "negative_log_likelihood")
_CHARTS = (
    Chart("accuracy", "arms", "accuracy"),
    Chart("training", "curve", "accuracy"),
    Chart("scaling-weight", "distribution", "mean_weight", logarithmic=True),
    Chart("similarity", "distribution", "noised_similarity"),
    Chart("similarity-clipped", "distribution", "clipped_similarity"),
    Chart("norms", "distribution", "norm", logarithmic=True),
)
_STUDIES = ("scaling_weight", "similarity", "norms")

PSASC_MNIST = Recipe(
    name="psasc-mnist",
    title="Scaling weights on MNIST",
    source=_SOURCE,
    data="mnist",
    task="classification",
    common={**_COMMON, "plan": {"sampling": Poisson(512), "steps": epochs(20), "delta": 1e-5}, "epsilon": 3.0},
    arms=_arms(0.3, 1e-4, 0.9, (0.9735, 0.9795, 0.9811, 0.9837, 0.9865)),
    metrics=_METRICS,
    tuned=True,
    trial=0.25,
    points=10,
    charts=_CHARTS,
    studies=_STUDIES,
    note=_NOTE + "Its ε is that of its library's accountant; ours is the same number by PLD.",
    hours=1.5,
)
PSASC_FASHION = Recipe(
    name="psasc-fashion",
    title="Scaling weights on Fashion-MNIST",
    source=_SOURCE,
    data="fashion-mnist",
    task="classification",
    examples=40_000,
    common={**_COMMON, "plan": {"sampling": Poisson(512), "steps": epochs(60), "delta": 1e-5}, "epsilon": 9.0},
    arms=_arms(0.25, 1e-3, 0.55, (0.8559, 0.8615, 0.8636, 0.8691, 0.8722)),
    metrics=_METRICS,
    tuned=True,
    trial=0.25,
    points=10,
    charts=_CHARTS,
    studies=_STUDIES,
    note=_NOTE + "The table says 40,000 examples: the first of the 60,000 are taken.",
    hours=2.5,
)
