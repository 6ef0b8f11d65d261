"""Noise that is correlated over the steps against independent noise, at equal ε and epochs."""

from __future__ import annotations

__all__ = ["CORRELATED_CIFAR10", "CORRELATED_FASHION"]

from typing import Any

from privet.clipping import Flat
from privet.noise import Banded, BufferedToeplitz, NoiseMechanism, Tree
from privet.plan.mechanism import epochs
from privet.sampling import BallsInBins, CyclicPoisson, FixedOrder, Poisson, Scheme
from privet_experiments.claims import Claim
from privet_experiments.recipe import Arm, Chart, Recipe

# Features have length 10, so a gradient is 10 times as long as the error of the probabilities.
_BATCH, _BOUND, _BANDS, _EPSILONS = 256, 5.0, 8, (2.0, 4.0, 8.0)
_INDEPENDENT, _BANDED = "independent", f"{_BANDS} bands"


def _arm(name: str, epsilon: float, sampling: Scheme, noise: NoiseMechanism | None = None) -> Arm:
    plan: dict[str, Any] = {"sampling": sampling} if noise is None else {"sampling": sampling, "noise": noise}
    return Arm(f"{name}, ε = {epsilon:g}", {"epsilon": epsilon, "plan": plan}, at={"noise": name, "ε": epsilon})


def _recipe(name: str, data: str, title: str) -> Recipe:
    return Recipe(
        name=name,
        title=title,
        source="ours; the mechanism is Choquette-Choo et al. 2023, “(Amplified) Banded Matrix Factorization”",
        data=data,
        task="classification",
        common={
            "plan": {"steps": epochs(5), "delta": 1e-5, "clipping": Flat(_BOUND)}, "model": "logistic",
            "features": "oriented edges", "learning_rate": 0.1,
        },
        arms=(
            *(_arm(_INDEPENDENT, epsilon, Poisson(_BATCH)) for epsilon in _EPSILONS),
            *(_arm(_BANDED, epsilon, CyclicPoisson(_BATCH, cycle=_BANDS), Banded(bands=_BANDS)) for epsilon in _EPSILONS),
            _arm("3 buffers, fixed order", 8.0, FixedOrder(_BATCH), BufferedToeplitz(3)),
            _arm("trees", 8.0, BallsInBins(_BATCH), Tree()),
        ),
        metrics=("accuracy",),
        hours=0.4,
        tuned=True,
        trial=0.5,
        charts=(
            Chart("accuracy", "arms", "accuracy"),
            Chart("accuracy-by-epsilon", "sweep", "accuracy", x="ε", series="noise", logarithmic=True,
                  where={"noise": (_INDEPENDENT, _BANDED)}),
        ),
        claims=(
            *(
                Claim(f"Banded noise is more accurate than independent noise at ε = {epsilon:g}", "accuracy",
                      f"{_BANDED}, ε = {epsilon:g}", "higher", f"{_INDEPENDENT}, ε = {epsilon:g}")
                for epsilon in _EPSILONS
            ),
            Claim("Without amplification, buffers are less accurate than independent noise with Poisson sampling", "accuracy",
                  "3 buffers, fixed order, ε = 8", "lower", f"{_INDEPENDENT}, ε = 8"),
            Claim("Trees are less accurate than buffers", "accuracy", "trees, ε = 8", "lower", "3 buffers, fixed order, ε = 8"),
        ),
        note=(
            "All arms train for the same number of epochs with the same batches, bound and constant learning rate without "
            "momentum; each has its own search for the rate. Features are fixed edge filters, without weights from elsewhere."
        ),
        remark=(
            "The search compares single runs of half the length, so it can settle on half or double the best rate: on "
            "Fashion-MNIST at ε = 8 it gave banded noise 0.2 and independent noise 0.4. That difference says more about the rate "
            "than about the noise."
        ),
    )  # fmt: skip


CORRELATED_FASHION = _recipe(
    "correlated-fashion", "fashion-mnist", "Correlated against independent noise, linear models on edges of Fashion-MNIST"
)
CORRELATED_CIFAR10 = _recipe(
    "correlated-cifar10", "cifar-10", "Correlated against independent noise, linear models on edges of CIFAR-10"
)
