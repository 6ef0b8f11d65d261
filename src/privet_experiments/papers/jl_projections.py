"""What clipping by estimated norms costs and saves: time, memory, and accuracy at the same (ε, δ)."""

from __future__ import annotations

from typing import Any

from privet.clipping import Flat, Projected
from privet.plan import epochs
from privet.sampling import Poisson
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
    title="Exact norms against norms estimated from r random projections",
    source="Bu et al. 2021, “Fast and memory efficient differentially private-SGD via JL projections”; the arms are ours",
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
        Chart("noise", "sweep", "noise_multiplier", x="projections", series="model", logarithmic=True),
    ),
    note=(
        "Time (of the processor) and peak memory are those of a clipped step without noise over a plain step, for a batch of "
        "256; memory is each in a process of its own. An estimate can be too small, so its ε is averaged over the law of the "
        "estimates: the same (ε, δ) takes more noise with fewer projections. Two epochs on 6,000 images compare arms, and are "
        "not what these networks can reach."
    ),
    hours=0.5,
)
