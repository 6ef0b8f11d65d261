"""Random sparsification on Fashion-MNIST: Table 2, the grid over noise and dimension, ablations, and learning rates."""

from __future__ import annotations

__all__ = ["RS_FASHION"]

from itertools import pairwise
from typing import Any

from privet.clipping import Flat, Unclipped
from privet.noise import Gaussian
from privet.plan.mechanism import epochs
from privet.sampling import Poisson, Shuffle
from privet.sparsification import Random
from privet_experiments.claims import Claim, PublishedNumber
from privet_experiments.papers.sources import TRAMER_BONEH, ZHU
from privet_experiments.recipe import Arm, Chart, Recipe

_BOUND, _LEARNING_RATE = 0.1, 4.0
_RATES, _FEWER, _ENDS = (0.0, 0.5, 0.7, 0.9), (0.0, 0.5, 0.9), (0.0, 0.9)
_SHORT = epochs(5)
_MULTIPLIERS, _WIDTHS = (1.0, 4.0, 16.0), (32, 128, 512)
# A mask removes noise, and with it part of the step. So does a lower learning rate, which may explain the whole gain.
_LOWER, _NOISY = (1.0, 2.0), 1.0
# Runs of an arm without a number in the paper's table.
_SWEPT = 3


def _reported(baseline: float, gain: float) -> dict[float, float]:
    """Return r → accuracy; the paper does not say which r has the gain."""
    return dict(zip(_ENDS, (baseline, baseline + gain), strict=True))


# Network → its settings, and the paper's accuracies by ε.
_NETWORKS: dict[str, tuple[dict[str, Any], dict[float, dict[float, float]]]] = {
    "DP-CNN/S": ({"model": "cnn"}, {3.0: _reported(0.874, 0.008), 1.0: _reported(0.845, 0.013)}),
    "H-CNN/S": (
        {"model": "scattering-cnn", "features": "scattering"}, {3.0: _reported(0.892, 0.003), 1.0: _reported(0.870, 0.012)},
    ),
}  # fmt: skip
# The multiplier at which 40 epochs of Poisson batches of 2,048 cost ε = 3 by PLD at δ = 1e-5.
_MULTIPLIER = 1.81


def _sparse(rate: float, **plan: Any) -> dict[str, Any]:
    return {"plan": plan if rate == 0 else {**plan, "sparsification": Random(rate)}}


def _at(network: str, epsilon: float, rate: float, learning_rate: float) -> dict[str, float | str]:
    """Return the coordinates of a network's run in the chart of learning rates, if it belongs there."""
    swept = epsilon == _NOISY and rate in _ENDS
    return {"learning rate": learning_rate, "model": f"{network}, r = {rate:g}"} if swept else {}


def _table() -> list[Arm]:
    return [
        Arm(
            f"{network}, ε = {epsilon:g}, r = {rate:g}",
            {**settings, **_sparse(rate), "epsilon": epsilon},
            {"accuracy": reported[rate]} if rate in reported else {},
            {
                "study": "table",
                "final sparsification rate r": rate,
                "network": f"{network}, ε = {epsilon:g}",
                **_at(network, epsilon, rate, _LEARNING_RATE),
            },
            seeds=None if rate in reported else _SWEPT,
        )
        for network, (settings, accuracies) in _NETWORKS.items()
        for epsilon, reported in accuracies.items()
        for rate in _RATES
    ]


def _learning_rate() -> list[Arm]:
    return [
        Arm(
            f"{network}, ε = {_NOISY:g}, learning rate {learning_rate:g}, r = {rate:g}",
            {**settings, **_sparse(rate), "epsilon": _NOISY, "learning_rate": learning_rate},
            at=_at(network, _NOISY, rate, learning_rate),
            seeds=_SWEPT,
        )
        for network, (settings, _) in _NETWORKS.items()
        for learning_rate in _LOWER
        for rate in _ENDS
    ]


def _noise() -> list[Arm]:
    plan = {"steps": _SHORT, "sampling": Poisson(512)}
    return [
        Arm(
            f"σC/B = {multiplier * _BOUND / 512:.3g}, r = {rate:g}",
            {"model": "cnn", **_sparse(rate, **plan, noise=Gaussian(multiplier))},
            at={"study": "grid", "final sparsification rate r": rate, "panel": f"CNN, σC/B = {multiplier * _BOUND / 512:.3g}"},
            seeds=_SWEPT,
        )
        for multiplier in _MULTIPLIERS
        for rate in _FEWER
    ]


def _dimension() -> list[Arm]:
    plan = {"steps": _SHORT, "sampling": Poisson(512), "noise": Gaussian(4.0)}
    return [
        Arm(
            f"MLP of width {width}, r = {rate:g}",
            {"model": "mlp", "model_options": {"width": width}, **_sparse(rate, **plan)},
            at={"study": "grid", "final sparsification rate r": rate, "panel": f"MLP of width {width}, σ = 4"},
            seeds=_SWEPT,
        )
        for width in _WIDTHS
        for rate in _FEWER
    ]


def _ablations() -> list[Arm]:
    kinds: dict[str, tuple[float, dict[str, Any]]] = {
        "noise, no clipping": (0.1, {"clipping": Unclipped(1.0, non_private=True), "noise": Gaussian(4.0)}),
        "clipping, no noise": (_LEARNING_RATE, {"noise": Gaussian(0.0, non_private=True)}),
    }
    return [
        Arm(
            f"{name}, r = {rate:g}",
            {"model": "cnn", "learning_rate": learning_rate, **_sparse(rate, steps=_SHORT, sampling=Poisson(512), **plan)},
            at={"study": "ablation", "final sparsification rate r": rate, "with": name},
            seeds=_SWEPT,
        )
        for name, (learning_rate, plan) in kinds.items()
        for rate in _FEWER
    ]


def _sampling() -> list[Arm]:
    schemes: dict[str, dict[str, Any]] = {
        "Poisson": {"sampling": Poisson(2048)},
        "shuffle": {"sampling": Shuffle(2048), "adjacency": "zero-out"},
    }
    return [
        Arm(
            f"{name}, the same noise, r = {rate:g}",
            {"model": "cnn", **_sparse(rate, noise=Gaussian(_MULTIPLIER), **plan)},
            at={"study": "sampling", "final sparsification rate r": rate, "sampling": name},
            seeds=_SWEPT,
        )
        for name, plan in schemes.items()
        for rate in _ENDS
    ]


def _claims_of_table() -> list[Claim]:
    return [
        Claim(
            f"Random sparsification improves {network} at ε = {epsilon:g}, at the learning rate of the baseline",
            "accuracy", f"{network}, ε = {epsilon:g}, r = 0.9", "higher", f"{network}, ε = {epsilon:g}, r = 0",
            size=round(reported[0.9] - reported[0.0], 6), row="Table 2, at the baselines' published learning rate",
        )
        for network, (_, accuracies) in _NETWORKS.items()
        for epsilon, reported in accuracies.items()
    ]  # fmt: skip


def _claims_of_best_rate() -> list[Claim]:
    def rates(network: str, rate: float) -> tuple[str, ...]:
        start = f"{network}, ε = {_NOISY:g}"
        lower = (f"{start}, learning rate {learning_rate:g}, r = {rate:g}" for learning_rate in _LOWER)
        return f"{start}, r = {rate:g}", *lower

    return [
        Claim(
            f"Random sparsification improves {network} at ε = {_NOISY:g}, each at the best of three learning rates", "accuracy",
            rates(network, 0.9), "higher", rates(network, 0.0), size=round(reported[0.9] - reported[0.0], 6),
            row="Table 2 at ε = 1, at the best of three learning rates",
        )
        for network, (_, accuracies) in _NETWORKS.items()
        for reported in [accuracies[_NOISY]]
    ]  # fmt: skip


def _claims_of_grid() -> list[Claim]:
    noise = [(f"σ = {value:g}", f"σC/B = {value * _BOUND / 512:.3g}") for value in _MULTIPLIERS]
    width = [(f"width {value}", f"MLP of width {value}") for value in _WIDTHS]
    claims = []
    for what, series in (("noise", noise), ("the number of parameters", width)):
        for (less, small), (more, large) in pairwise(series):
            claims.append(
                Claim(
                    f"The gain grows with {what}: larger at {more} than at {less}", "accuracy", f"{large}, r = 0.9", "higher",
                    f"{large}, r = 0", beyond=(f"{small}, r = 0.9", f"{small}, r = 0"), row=_GRID,
                )
            )  # fmt: skip
        last, arm = series[-1]
        claims.append(
            Claim(f"Sparsification gains at {last}", "accuracy", f"{arm}, r = 0.9", "higher", f"{arm}, r = 0", row=_GRID)
        )
    return claims


def _claims_of_ablations() -> list[Claim]:
    rows = {
        "noise, no clipping": "Figure 3 and Theorem 3.2: noise without clipping",
        "clipping, no noise": "Figure 3 and Theorem 3.4: clipping without noise",
    }
    return [
        Claim(
            f"With {name}, sparsification (r = {rate:g}) lowers the accuracy", "accuracy", f"{name}, r = {rate:g}", "lower",
            f"{name}, r = 0", row=row,
        )
        for name, row in rows.items()
        for rate in _FEWER[1:]
    ]  # fmt: skip


def _claims_of_sampling() -> list[Claim]:
    row = "Appendix K: shuffling against Poisson sampling, at the same noise"
    return [
        Claim(
            f"Shuffled batches are no more accurate than Poisson batches (r = {rate:g})", "accuracy",
            f"shuffle, the same noise, r = {rate:g}", "not higher", f"Poisson, the same noise, r = {rate:g}", row=row,
        )
        for rate in _ENDS
    ]  # fmt: skip


_GRID = "Figure 2: gains by noise and number of parameters"


def _panels(name: str, study: str, series: str) -> Chart:
    return Chart(name, "panels", "accuracy", x="final sparsification rate r", series=series, where={"study": study})


RS_FASHION = Recipe(
    name="rs-fashion",
    title="Random sparsification on Fashion-MNIST",
    source=f"{ZHU}, Table 2, Figures 2 and 3, App. K",
    data="fashion-mnist",
    task="classification",
    common={
        "plan": {"clipping": Flat(_BOUND), "sampling": Poisson(2048), "steps": epochs(40), "delta": 1e-5},
        "learning_rate": _LEARNING_RATE,
        "momentum": 0.9,
    },
    arms=(*_table(), *_noise(), *_dimension(), *_ablations(), *_sampling(), *_learning_rate()),
    metrics=("accuracy",),
    charts=(
        _panels("table", "table", "network"), _panels("grid", "grid", "panel"), _panels("ablation", "ablation", "with"),
        Chart("sampling", "sweep", "accuracy", x="final sparsification rate r", series="sampling", where={"study": "sampling"}),
        Chart("learning-rate", "sweep", "accuracy", x="learning rate", series="model", logarithmic=True),
        Chart("reliability", "reliability", where={"study": "table", "final sparsification rate r": (0.0, 0.9)}),
    ),
    claims=(
        *_claims_of_table(), *_claims_of_best_rate(), *_claims_of_grid(), *_claims_of_ablations(), *_claims_of_sampling(),
    ),
    published=(
        PublishedNumber(0.897, "linear model on scattering coefficients", 3.0, TRAMER_BONEH, "H-CNN/S, ε = 3, r = 0.9"),
        PublishedNumber(0.895, "H-CNN/S with random sparsification", 3.0, f"{ZHU}, Table 2", "H-CNN/S, ε = 3, r = 0.9"),
        PublishedNumber(0.882, "H-CNN/S with random sparsification", 1.0, f"{ZHU}, Table 2",
                  f"H-CNN/S, ε = 1, learning rate {_LOWER[1]:g}, r = 0.9"),
    ),
    rates=(
        "4, as Tramèr and Boneh use for these networks, not tuned; also 1 and 2 at ε = 1; 0.1 without clipping, set by hand"
    ),
    remark=(
        "According to the paper, random sparsification always slows convergence without noise or without clipping (Figure 3, "
        "Theorems 3.2 and 3.4). Our runs agree where there is no noise. Without clipping we see the opposite: masks raise the "
        "accuracy of noisy SGD, which contradicts the paper. The learning rate of that ablation may be the reason: we chose it "
        "once and did not tune it, and masks also shorten the steps. The same holds for Table 2 at ε = 1. At the published "
        "learning rate of 4, masks gain about as much as the paper reports, but that rate is too large at this noise. With the "
        "best of three rates for each, the gain is not resolved. The paper tunes the bound and the epochs of baseline and "
        "sparsified runs; we do not."
    ),
    note=(
        "We read Table 2 as baseline and gain. The paper searches the final sparsification rate and does not state the best "
        "one; we show its number at r = 0.9. Batch size, learning rate, bound and epochs are those of Tramèr and Boneh "
        "(2021) for these networks, not tuned; the lower learning rates at ε = 1 are ours. The grids take 5 epochs with "
        "batches of 512. The paper shuffles the data and accounts for Poisson sampling (RDP). Here batches are Poisson "
        "samples at the paper's ε; two arms shuffle with the same noise and state the ε of shuffling, which is far larger. "
        "H-CNN/S needs kymatio."
    ),
    hours=4,
)  # fmt: skip
