"""Gradient embedding perturbation on Fashion-MNIST and CIFAR-10, alone and with random masks."""

from __future__ import annotations

__all__ = ["GEP_CIFAR10", "GEP_FASHION"]

from typing import Any

from privet.clipping import GEP, Flat
from privet.runs.config import DEAD_LEAVES
from privet.sampling import Poisson
from privet.sparsification import Random
from privet_experiments.claims import Claim
from privet_experiments.papers.sources import GEP_AUTHORS, ZHU
from privet_experiments.recipe import Arm, Chart, Recipe

_BOUND, _RESIDUAL = 1.0, 0.4  # 5 and 2 in the authors' code
_DIMENSIONS, _ANCHORS, _STEPS = 50, 100, 60
_RATES = (0.0, 0.7, 0.9)
_TABLES = "Tables 1 and 2: accuracy"


def _rule(public: str, *, residual: bool = True) -> GEP:
    return GEP(Flat(_BOUND), Flat(_RESIDUAL) if residual else None, _DIMENSIONS, _ANCHORS, public)


def _arm(name: str, rule: GEP | Flat, rate: float = 0.0) -> Arm:
    plan: dict[str, Any] = {"clipping": rule, **({"sparsification": Random(rate)} if rate else {})}
    return Arm(f"{name}, r = {rate:g}", {"plan": plan}, at={"final sparsification rate r": rate, "method": name})


def _arms(public: str) -> tuple[Arm, ...]:
    return (
        _arm("DP-SGD", Flat(_BOUND)),
        *(_arm("GEP", _rule(public), rate) for rate in _RATES),
        _arm("without a residual", _rule(public, residual=False)),
    )


def _claims() -> tuple[Claim, ...]:
    return (
        Claim("GEP is more accurate than DP-SGD", "accuracy", "GEP, r = 0", "higher", "DP-SGD, r = 0", row=_TABLES),
        Claim(
            "GEP is more accurate than without a residual", "accuracy", "GEP, r = 0", "higher", "without a residual, r = 0",
            row=_TABLES,
        ),
        *(
            Claim(
                f"With masks of final rate {rate:g}, GEP is as accurate", "accuracy", f"GEP, r = {rate:g}", "not lower",
                "GEP, r = 0", row="Zhu and Blaschko, Figure 4",
            )
            for rate in _RATES[1:]
        ),
    )  # fmt: skip


def _recipe(name: str, title: str, data: str, public: str, size: int, epsilon: float, learning_rate: float, why: str) -> Recipe:
    plan = {"sampling": Poisson(size), "steps": _STEPS, "delta": 1e-5}
    return Recipe(
        name=name,
        title=title,
        source=f"{GEP_AUTHORS}, Tables 1 and 2; {ZHU}, Figure 4",
        data=data,
        task="classification",
        common={"plan": plan, "epsilon": epsilon, "model": "logistic", "learning_rate": learning_rate, "momentum": 0.9},
        arms=_arms(public),
        metrics=("accuracy",),
        seeds=2,
        charts=(Chart("accuracy", "sweep", "accuracy", x="final sparsification rate r", series="method"),),
        claims=_claims(),
        rates=f"{learning_rate:g} for all arms, the better of a few that we tried by hand for DP-SGD and for GEP",
        note=(
            f"A linear model in {_STEPS} steps of {size:,} examples at ε = {epsilon:g}: a small setting of ours that a laptop "
            f"repeats in a minute. The paper trains ResNet-20 for 200 epochs with 1,000 dimensions and 2,000 anchors from "
            f"ImageNet; here there are {_DIMENSIONS} dimensions and {_ANCHORS} anchors a step. Anchors are {why}, with random "
            "labels. Bounds have the ratio of the authors' code."
        ),
        remark=(
            "A linear model of a few epochs is not the setting in which the paper gains: subspaces of 50 dimensions hold little "
            "of these gradients, and each part has √2 times the noise multiplier of DP-SGD. Neither bounds, dimensions nor "
            "shares were tuned."
        ),
        hours=0.05,
    )


GEP_FASHION = _recipe(
    "gep-fashion", "Gradient embedding perturbation on Fashion-MNIST", "fashion-mnist", "mnist", 512, 1.0, 1.0,
    "training images of MNIST",
)  # fmt: skip
GEP_CIFAR10 = _recipe(
    "gep-cifar10", "Gradient embedding perturbation on CIFAR-10", "cifar-10", DEAD_LEAVES, 128, 2.0, 0.3,
    "made-up images of ellipses and rectangles in random colours",
)  # fmt: skip
