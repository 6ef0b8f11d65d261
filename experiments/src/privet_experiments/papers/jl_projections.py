"""Clipping by estimated norms: time, memory, and accuracy at the same (ε, δ)."""

from __future__ import annotations

__all__ = ["JL_SPEED"]

from typing import Any

from privet.clipping import Flat, Projected
from privet.plan.mechanism import epochs
from privet.sampling import Poisson
from privet_experiments.claims import Claim
from privet_experiments.papers.sources import OVERVIEW
from privet_experiments.recipe import Arm, Chart, Recipe

_FLAT = Flat(0.1)
_PROJECTIONS = (10, 30, 100)
_MODELS = {"logistic": 4.0, "mlp": 2.0, "cnn": 2.0}


def _arm(model: str, rate: float, projections: int | None) -> Arm:
    rule: Any = _FLAT if projections is None else Projected(_FLAT, projections)
    norms = "exact" if projections is None else f"r = {projections}"
    at: dict[str, float | str] = {"model": model} if projections is None else {"model": model, "projections": projections}
    return Arm(f"{model}, {norms}", {"model": model, "learning_rate": rate, "plan": {"clipping": rule}}, at=at)


JL_SPEED = Recipe(
    name="jl-speed",
    title="Exact norms against norms estimated by r random projections",
    source=(
        f"Bu et al. 2021, “Fast and memory efficient differentially private-SGD via JL projections”, and {OVERVIEW}, who "
        "credit it with “faster training time and smaller memory footprint”; the arms are ours"
    ),
    data="mnist",
    task="classification",
    examples=6_000,
    common={"plan": {"sampling": Poisson(256), "steps": epochs(2), "delta": 1e-5}, "epsilon": 3.0, "momentum": 0.9},
    arms=tuple(_arm(model, rate, number) for model, rate in _MODELS.items() for number in (None, *_PROJECTIONS)),
    metrics=("accuracy", "noise_multiplier", "time_ratio", "memory_ratio"),
    seeds=3,
    charts=(
        Chart("accuracy", "arms", "accuracy"),
        Chart("time", "arms", "time_ratio", logarithmic=True),
        Chart("memory", "arms", "memory_ratio"),
        # The same for every model: it depends only on the number of projections.
        Chart("noise", "sweep", "noise_multiplier", x="projections", where={"model": "mlp"}, logarithmic=True),
    ),
    note=(
        "CPU time and peak memory are those of a clipped step without noise, relative to a plain step, for a batch of 256. "
        "Each memory is measured in its own process. An estimated norm can be too small, so the accountant averages over the "
        "distribution of the estimates: with fewer projections the same (ε, δ) needs more noise. Two epochs on 6,000 images "
        "compare arms; these networks can reach higher accuracies."
    ),
    claims=tuple(
        Claim(
            f"Ten projections take less {what} than exact norms ({model})", metric, f"{model}, r = 10", "lower", f"{model}, exact"
        )
        for model in _MODELS
        for what, metric in (("time", "time_ratio"), ("memory", "memory_ratio"))
    ),
    rates="set by hand for each model, the same for exact and estimated norms",
    remark=(
        "The paper compares with stored per-example gradients. Privet computes exact norms from activations and output "
        "gradients and stores none, so projections save little. The runs of the CNN predate its channels-last layout, which "
        "makes the plain step faster."
    ),
    hours=0.5,
)
