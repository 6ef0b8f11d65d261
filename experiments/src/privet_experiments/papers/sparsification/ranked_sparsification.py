"""Ranked against random masks on Fashion-MNIST: accuracy, and how often each coordinate is dropped."""

from __future__ import annotations

__all__ = ["RS_RANKED"]

from privet.clipping import Flat
from privet.plan.mechanism import epochs
from privet.sampling import Poisson
from privet.sparsification import Random, Ranked
from privet_experiments.claims import Claim
from privet_experiments.papers.sources import ZHU
from privet_experiments.recipe import Arm, Chart, Recipe

_BATCH, _RATE = 2048, 0.9
# An epoch has 29.3 steps, so this many masks per epoch give every step its own.
_EVERY_STEP = 30
_KINDS = {"random": Random, "ranked": Ranked}
_REFRESHES = {"each epoch": 1, "each step": _EVERY_STEP}

RS_RANKED = Recipe(
    name="rs-ranked",
    title="Ranked and random sparsification on Fashion-MNIST",
    source=f"{ZHU}, App. I and Figure 12",
    data="fashion-mnist",
    task="classification",
    common={
        "plan": {"clipping": Flat(1.0), "sampling": Poisson(_BATCH), "steps": epochs(10), "delta": 1e-5},
        "model": "logistic",
        "epsilon": 1.0,
        "learning_rate": 1.0,
        "momentum": 0.9,
    },
    arms=tuple(
        Arm(
            f"{name}, a mask {refreshed}",
            {"plan": {"sparsification": kind(_RATE, refresh)}},
            at={"masks": name, "a mask": refreshed},
        )
        for refreshed, refresh in _REFRESHES.items()
        for name, kind in _KINDS.items()
    ),
    metrics=("accuracy", "mask_count_deviation", "mask_count_spread"),
    seeds=3,
    charts=(Chart("accuracy", "arms", "accuracy"), Chart("mask-counts", "arms", "mask_count_spread")),
    claims=(
        Claim(
            "Ranked masks are not more accurate than random ones, with a mask each epoch", "accuracy",
            "ranked, a mask each epoch", "not higher", "random, a mask each epoch", row="Appendix I: accuracy",
        ),
        Claim(
            "Ranked masks are not less accurate than random ones, with a mask each epoch", "accuracy",
            "ranked, a mask each epoch", "not lower", "random, a mask each epoch", row="Appendix I: accuracy",
        ),
        Claim(
            "Ranked masks drop coordinates as evenly as random ones, with a mask each epoch", "mask_count_spread",
            "ranked, a mask each epoch", "not higher", "random, a mask each epoch", row="Figure 12: mask counts",
        ),
    ),
    rates="1 for all arms, set by hand",
    note=(
        f"Final rate {_RATE:g}, gradual cooling. The mask count deviation is the standard deviation over the coordinates of the "
        "number of masks that dropped one; the spread is its ratio to that of random masks with the same rates. Ranked masks "
        "are ranked by the dense release of the last block of steps, an epoch or a step, and applied to the release. A linear "
        "model in 10 epochs is a small setting of ours; the paper counts over 100 epochs of a convolutional network."
    ),
    remark="The paper refreshes ranked masks each epoch; masks of each step are our addition.",
    hours=0.05,
)  # fmt: skip
