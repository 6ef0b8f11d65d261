"""Every algorithm of Privet in one setting, each with its own learning rate."""

from __future__ import annotations

__all__ = ["ALGORITHMS_FASHION"]

from typing import Any

from privet import clipping
from privet.momentum import InnerOuter
from privet.noise import Gaussian
from privet.plan.mechanism import epochs
from privet.sampling import Poisson
from privet.schedules import Geometric, Linear
from privet.sparsification import Random, Ranked
from privet_experiments.claims import Claim, PublishedNumber
from privet_experiments.papers.sources import TRAMER_BONEH
from privet_experiments.recipe import Arm, Chart, Recipe

_BOUND, _STABILITY, _SCALE = 0.25, 1e-3, 0.55  # of the experiments with scaling weights on this data set
_FLAT, _PSASC = clipping.Flat(_BOUND), clipping.PSASC(_BOUND, _SCALE, _STABILITY)
_FIXED = Gaussian(deviation="fixed")


def _arm(name: str, rule: clipping.Rule = _FLAT, settings: dict[str, Any] | None = None, **plan: Any) -> Arm:
    return Arm(name, {"plan": {"clipping": rule, **plan}, **(settings or {})})


def _better(name: str, than: str = "flat", what: str = "") -> Claim:
    return Claim(what or f"{name} is more accurate than {than}", "accuracy", name, "higher", than)


ALGORITHMS_FASHION = Recipe(
    name="algorithms-fashion",
    title="Every algorithm on Fashion-MNIST at (3, 1e-5)",
    source="ours",
    data="fashion-mnist",
    task="classification",
    common={
        "plan": {"sampling": Poisson(512), "steps": epochs(5), "delta": 1e-5}, "epsilon": 3.0, "model": "cnn",
        "momentum": 0.9, "learning_rate": 1.6,
    },
    arms=(
        _arm("flat"),
        _arm("normalised", clipping.Normalize(_BOUND)),
        _arm("Auto-S", clipping.Automatic(_BOUND, _STABILITY)),
        _arm("PSAC", clipping.PSAC(_BOUND, _STABILITY)),
        _arm("PSASC", _PSASC),
        _arm("PSASC, inner momentum", _PSASC, momentum=InnerOuter(inner=0.1, outer=0.9, length=1)),
        _arm("global", clipping.Global(_BOUND, 40 * _BOUND), {"learning_rate": 16.0}),
        _arm("layerwise, by parameter", clipping.Layerwise(_FLAT, by="parameter")),
        _arm("adaptive quantile", clipping.AdaptiveQuantile(_FLAT, quantile=0.5), {"learning_rate": 0.1}),
        _arm("bound shrinks linearly, noise with it", bound_schedule=Linear()),
        _arm("bound shrinks linearly, noise fixed", bound_schedule=Linear(), noise=_FIXED),
        _arm("bound shrinks geometrically, noise fixed", bound_schedule=Geometric(), noise=_FIXED),
        _arm("random sparsification, 0.5", sparsification=Random(0.5)),
        _arm("random sparsification, 0.9", sparsification=Random(0.9)),
        _arm("ranked sparsification, 0.5", sparsification=Ranked(0.5)),
        _arm("plain SGD", settings={"momentum": 0.0, "learning_rate": 16.0}),
        _arm("momentum 0.6", settings={"momentum": 0.6, "learning_rate": 6.4}),
        _arm("Nesterov", settings={"optimizer": "nesterov"}),
        _arm("Adam", settings={"optimizer": "adam", "learning_rate": 2e-3}),
        _arm("Adam, bias removed", settings={"optimizer": "adam-bc", "learning_rate": 2e-3}),
        _arm("flat, average of the parameters", settings={"average": "ema"}),
    ),
    metrics=("accuracy",),
    tuned=True,
    charts=(Chart("accuracy", "arms", "accuracy", bottom=80.0),),
    claims=(
        _better("Auto-S"), _better("PSAC"), _better("PSASC"), _better("PSASC", "PSAC"),
        _better("PSASC, inner momentum", "PSASC"),
        _better("bound shrinks linearly, noise fixed"),
        _better("bound shrinks geometrically, noise fixed"),
        _better("random sparsification, 0.5"), _better("random sparsification, 0.9"),
        Claim("Ranked sparsification is no better than random sparsification", "accuracy", "ranked sparsification, 0.5",
              "not higher", "random sparsification, 0.5"),
        _better("momentum 0.6", "flat", "Momentum 0.6 is more accurate than momentum 0.9"),
    ),
    published=(PublishedNumber(0.897, "linear model on scattering coefficients", 3.0, TRAMER_BONEH, "flat"),),
    note=(
        "SGD with momentum 0.9 in every arm unless its name says otherwise. The setting is ours and not from a paper: the "
        "claims are the rankings of the papers, tested at ε = 3 in five epochs."
    ),
    remark=(
        "One seed finds each arm's learning rate within about a factor of two. Five seeds resolve differences of about half a "
        "point. `algorithms.md`, next to the index, has the details and a second, smaller setting."
    ),
    hours=2,
)  # fmt: skip
