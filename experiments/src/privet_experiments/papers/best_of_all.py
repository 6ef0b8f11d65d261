"""Linear models on normalised scattering coefficients, compared with published accuracies at the same (ε, δ); ablations."""

from __future__ import annotations

__all__ = ["BETTER_FASHION", "BETTER_FASHION_PARTS", "BETTER_MNIST", "BETTER_MNIST_PARTS"]

from typing import Any

from privet.clipping import Flat
from privet.sampling import Poisson
from privet.schedules import ToZero
from privet_experiments.claims import Claim, PublishedNumber
from privet_experiments.papers.sources import HUANG, TRAMER_BONEH, ZHU
from privet_experiments.recipe import Arm, Chart, Recipe

# Examples have length 10, so a gradient is 10 times as long as the error of the probabilities, which is at most √2.
_BOUND = 5.0
_COMMON: dict[str, Any] = {"model": "logistic", "features": "normalised scattering", "momentum": 0.9}
_FASHION: dict[str, Any] = {
    **_COMMON, "learning_rate": 0.15,
    "plan": {"sampling": Poisson(2048), "steps": 400, "delta": 1e-5, "clipping": Flat(_BOUND)},
}  # fmt: skip
_NOTE = (
    "Settings were chosen by validation accuracy: models of the first 50,000 training images, evaluated on the last 10,000. "
    "The test set had been used once before, with {before}. ε does not include this choice; nor does that of the papers."
)


_ABLATION = "Each arm removes one ingredient. Rates are adjusted where this alters the length of the steps, but not tuned again."
_RATES = "chosen by hand with the other settings, on the last 10,000 training images; ε does not include the choice"


def _above(epsilon: float, published: float, method: str) -> Claim:
    return Claim(
        f"More accurate than the strongest published number at ε ≤ {epsilon:g} ({method})", "accuracy",
        f"ε = {epsilon:g}", "higher", published,
        row="Our own claim, above the strongest published number",
    )  # fmt: skip


def _goal(epsilon: float, reported: float, **settings: Any) -> Arm:
    return Arm(f"ε = {epsilon:g}", {"epsilon": epsilon, **settings}, {"accuracy": reported})


def _less() -> tuple[Arm, ...]:
    """Return an arm without each ingredient."""
    fewer: dict[str, dict[str, Any]] = {
        "no roots": {"features": "normalised scattering, no roots"},
        "not whitened": {"features": "normalised scattering, not whitened"},
        "not local": {"features": "normalised scattering, not local"},
        "groups normalised instead": {"features": "scattering in groups of length 10"},
        "rate that decays to zero": {"rate_schedule": ToZero(), "learning_rate": 0.3},
        "averaged parameters": {"average": "ema"},
        "no momentum": {"momentum": 0.0, "learning_rate": 1.5},
        "batches of 8,192": {"plan": {"sampling": Poisson(8192), "steps": 100}, "learning_rate": 0.6},
    }
    return tuple(Arm(name, settings) for name, settings in fewer.items())


BETTER_FASHION = Recipe(
    name="better-fashion",
    title="Linear models on scattering coefficients of Fashion-MNIST",
    source=f"ours; beside it {TRAMER_BONEH} (ε = 3), {ZHU}, Table 2 (ε = 3 and 1), and {HUANG}, Table III (ε = 9)",
    data="fashion-mnist",
    task="classification",
    common=_FASHION,
    arms=(
        _goal(3.0, 0.897),
        _goal(1.0, 0.882, learning_rate=0.04),
        _goal(9.0, 0.897, learning_rate=0.6, plan={"sampling": Poisson(8192), "steps": 200}),
    ),
    metrics=("accuracy",),
    charts=(Chart("accuracy", "arms", "accuracy"),),
    note=_NOTE.format(before="rates that decayed to zero and batches of 8,192 throughout")
    + " Huang et al. report 40,000 training examples for their 87.22 %; ours use all 60,000.",
    claims=(
        _above(3.0, 0.897, "scattering + linear, 89.7 %"), _above(1.0, 0.882, "H-CNN/S with sparsification, 88.2 %"),
        _above(9.0, 0.897, "scattering + linear at ε = 3, 89.7 %"),
    ),
    published=(
        PublishedNumber(0.897, "linear model on scattering coefficients", 3.0, TRAMER_BONEH, "ε = 3"),
        PublishedNumber(0.895, "H-CNN/S with random sparsification", 3.0, f"{ZHU}, Table 2", "ε = 3"),
        PublishedNumber(0.882, "H-CNN/S with random sparsification", 1.0, f"{ZHU}, Table 2", "ε = 1"),
        PublishedNumber(0.897, "linear model on scattering coefficients", 3.0, TRAMER_BONEH, "ε = 9"),
        PublishedNumber(0.8722, "PSASC* on a CNN, 40,000 examples", 9.0, f"{HUANG}, Table III", "ε = 9"),
    ),
    rates=_RATES,
    remark=(
        "This is not a reproduction: the features are ours, normalised with statistics of synthetic images. The model is "
        "linear, like that of Tramèr and Boneh. A guarantee at ε = 3 also holds at ε = 9, so their 89.7 % is the number to "
        "beat at both."
    ),
    hours=0.3,
)  # fmt: skip

BETTER_FASHION_PARTS = Recipe(
    name="better-fashion-parts",
    title="Ablation of better-fashion at ε = 3",
    source="ours",
    data="fashion-mnist",
    task="classification",
    common={**_FASHION, "epsilon": 3.0},
    arms=(Arm("all"), *_less()),
    metrics=("accuracy",),
    seeds=2,
    charts=(Chart("accuracy", "arms", "accuracy"),),
    note=_ABLATION,
    hours=0.4,
)

# A small bound gives all examples about the same weight, whether or not they are classified well.
_MNIST: dict[str, Any] = {
    **_COMMON, "features": "normalised scattering, upright", "learning_rate": 250.0, "rate_schedule": ToZero(),
    "plan": {"sampling": Poisson(8192), "steps": 200, "delta": 1e-5, "clipping": Flat(0.1)},
}  # fmt: skip
BETTER_MNIST = Recipe(
    name="better-mnist",
    title="A linear model on scattering coefficients of upright MNIST digits",
    source=f"ours; beside it {TRAMER_BONEH}, and {HUANG}, Table III",
    data="mnist",
    task="classification",
    common=_MNIST,
    arms=(_goal(3.0, 0.987),),
    metrics=("accuracy",),
    points=4,
    charts=(Chart("accuracy", "curve", "accuracy"), Chart("published", "arms", "accuracy")),
    note=_NOTE.format(before="the same features without deslanting, 100 steps and a bound of 2.5")
    + " Deslanting shears every digit upright before its coefficients are computed. It uses one image at a time and costs no ε.",
    claims=(_above(3.0, 0.987, "scattering + linear, 98.7 %"),),
    published=(
        PublishedNumber(0.987, "linear model on scattering coefficients", 3.0, TRAMER_BONEH, "ε = 3"),
        PublishedNumber(0.9865, "PSASC* on a CNN", 3.0, f"{HUANG}, Table III", "ε = 3"),
    ),
    rates=_RATES,
    remark=(
        "This is not a reproduction: the features are ours and include a preprocessing step (deslanting) that the others lack. "
        "Five runs barely resolve the margin over 98.7 %."
    ),
    hours=0.2,
)

BETTER_MNIST_PARTS = Recipe(
    name="better-mnist-parts",
    title="Ablation of better-mnist",
    source="ours",
    data="mnist",
    task="classification",
    common={**_MNIST, "epsilon": 3.0},
    arms=(
        Arm("all"),
        Arm("not upright", {"features": "normalised scattering"}),
        Arm("bound of 2.5", {"plan": {"clipping": Flat(2.5)}, "learning_rate": 10.0}),
        Arm("100 steps", {"plan": {"steps": 100}}),
    ),
    metrics=("accuracy",),
    seeds=2,
    charts=(Chart("accuracy", "arms", "accuracy"),),
    note=_ABLATION,
    hours=0.2,
)
