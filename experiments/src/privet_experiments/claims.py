"""Claims of papers as data, and the rule that computes verdicts on them from a recipe's runs."""

from __future__ import annotations

__all__ = [
    "CONFIDENCE",
    "DIRECTIONS",
    "OF_THE_CURVE",
    "RULE",
    "VERDICTS",
    "Arms",
    "Claim",
    "Finding",
    "PublishedNumber",
    "contrast",
    "judge",
    "overall",
]

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from scipy.stats import t as student

from privet.errors import InvalidArgumentError, choice, positive, real
from privet_experiments.tasks.run_record import RunRecord

REPRODUCED, HALF, NOT, CONTRADICTED = VERDICTS = ("reproduced", "half", "not", "contradicted")
DIRECTIONS = ("higher", "lower", "not higher", "not lower", "always", "not always")
CONFIDENCE = 0.95
# The rule in words, for the pages that show its verdicts.
RULE = (
    "Let *d* be the difference of two means in the claimed direction, with its 95 % confidence interval by Welch's t. Standard "
    "errors come from the runs of each arm; a published number counts as exact.",
    "*reproduced*: the interval lies above 0 and, if the paper states a size, reaches at least half of it. *half*: it lies "
    "above 0 but below half of the stated size. *contradicted*: it lies below 0. *not*: it contains 0. A claim that "
    "something is *not worse* is reproduced unless the interval lies on the wrong side of 0. A property that a theorem "
    "guarantees is reproduced if it holds in every run, and contradicted otherwise. A property that is not guaranteed is "
    "reproduced if some run violates it.",
    "A row is *reproduced* if all its claims are; *half* if some are, or are half; otherwise *contradicted* if at least half "
    "of its claims are contradicted, and else *not*.",
)  # fmt: skip
Arms = str | tuple[str, ...]


@dataclass(frozen=True)
class Claim:
    """A statement about arms that runs confirm or contradict.

    Args:
        statement: the claim, in one sentence without our numbers.
        metric: a metric of the recipe, or a name in `OF_THE_CURVE`.
        arm: the arm whose mean is compared; of several names, the one with the best mean.
        direction: "higher", "lower", "not higher" or "not lower" than the baseline; for properties, whose metric is 1 where they
            hold and 0 elsewhere, "always" or "not always".
        baseline: the arm to compare with (of several names, the one with the best mean), or a published number; None for a
            property.
        size: the difference that the paper states, > 0, in the metric's unit; None if it states none.
        beyond: arm and baseline of a second difference, which is subtracted from the first.
        row: row of the index that the claim belongs to, if a recipe has several.

    Raises:
        InvalidArgumentError: an argument is out of range.
    """

    statement: str
    metric: str
    arm: Arms
    direction: str
    baseline: Arms | float | None = None
    size: float | None = None
    beyond: tuple[str, str] | None = None
    row: str = ""

    def __post_init__(self) -> None:
        for name in ("arm", "baseline", "beyond"):  # TOML files contain lists
            if isinstance(value := getattr(self, name), list):
                object.__setattr__(self, name, tuple(value))
        choice("claim.direction", self.direction, DIRECTIONS)
        if (self.baseline is None) != self.of_a_property:
            raise InvalidArgumentError("claim.baseline", self.baseline, "given for a comparison, and left out for a property")
        if isinstance(self.baseline, int | float):
            real("claim.baseline", self.baseline)
        if self.size is not None:
            positive("claim.size", self.size)

    @property
    def of_a_property(self) -> bool:
        """Whether the claim is about a property, which holds in a run or does not."""
        return self.direction in ("always", "not always")

    @property
    def sign(self) -> int:
        """1 if a higher metric supports the claim, −1 if a lower one does."""
        return 1 if self.direction in ("higher", "not lower") else -1

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of all arms in the claim."""
        sides = (self.arm, self.baseline if isinstance(self.baseline, str | tuple) else ())
        return (*(name for side in sides for name in _names(side)), *(self.beyond or ()))


@dataclass(frozen=True)
class PublishedNumber:
    """A published number for comparison, whether it is higher or lower than ours.

    Args:
        value: the number, in the metric's unit (an accuracy of 98.7 % is 0.987).
        method: model and features.
        epsilon: ε of the published training; None without privacy.
        source: paper and table.
        arm: the recipe's arm to compare it with.
        metric: the metric.
    """

    value: float
    method: str
    epsilon: float | None
    source: str
    arm: str
    metric: str = "accuracy"

    def __post_init__(self) -> None:
        real("published.value", self.value)
        if self.epsilon is not None:
            positive("published.epsilon", self.epsilon)


@dataclass(frozen=True)
class Finding:
    """The verdict of runs on a claim.

    Args:
        verdict: one of `VERDICTS`; None if an arm has too few runs.
        difference: difference of the means, arm minus baseline, in the metric's unit; for a property, the number of runs in
            which it held.
        low, high: ends of the difference's confidence interval.
        runs: number of runs of the compared arm.
    """

    claim: Claim
    verdict: str | None
    difference: float = math.nan
    low: float = math.nan
    high: float = math.nan
    runs: int = 0


def judge(claim: Claim, records: Iterable[RunRecord]) -> Finding:
    """Return the verdict of a recipe's runs, without those of the search, on a claim.

    Let d be the difference of the means, arm minus baseline, times −1 if "lower" is claimed, and [l, h] its 95 % confidence
    interval (Welch's t with the degrees of freedom of Welch and Satterthwaite; a published number counts as exact). The verdict
    is

    - reproduced: l > 0, and h ≥ size / 2 if the paper states a size;
    - half: l > 0 and h < size / 2;
    - contradicted: h < 0;
    - not otherwise, because the interval contains 0;
    - None if a compared arm has fewer than two runs, or for a property no run.

    "not higher" and "not lower" are contradicted if the interval lies on the wrong side of 0, and reproduced otherwise. "always"
    is reproduced if the metric is 1 in every run of the arm, and contradicted otherwise; "not always" is reproduced if it is 0 in
    some run, and "not" otherwise.
    """
    samples = {name: [_value(one, claim.metric) for one in found] for name, found in _by_arm(records, claim.arms).items()}
    if claim.of_a_property:
        return _judge_property(claim, samples)
    if any(len(found) < 2 for found in samples.values()):
        return Finding(claim, None)
    arm = _best(claim.arm, samples, claim.sign)
    sides = [(1, samples[arm])]
    if isinstance(claim.baseline, int | float):
        sides.append((-1, [float(claim.baseline)]))
    elif claim.baseline is not None:
        sides.append((-1, samples[_best(claim.baseline, samples, claim.sign)]))
    if claim.beyond is not None:
        sides += [(-1, samples[claim.beyond[0]]), (1, samples[claim.beyond[1]])]
    difference, low, high = contrast(sides)
    ends = sorted((claim.sign * low, claim.sign * high))
    return Finding(claim, _verdict(claim, *ends), difference, low, high, len(samples[arm]))


def overall(verdicts: Sequence[str | None]) -> str | None:
    """Return the verdict on a row of several claims.

    Reproduced if all claims are; half if one is reproduced or half; contradicted if none is and at least half are
    contradicted; otherwise not. None if there are no claims or runs are missing.

    >>> overall(["reproduced", "not"]), overall(["contradicted", "not"]), overall(["contradicted", "not", "not"])
    ('half', 'contradicted', 'not')
    """
    if not verdicts or None in verdicts:
        return None
    if set(verdicts) == {REPRODUCED}:
        return REPRODUCED
    if {REPRODUCED, HALF} & set(verdicts):
        return HALF
    return CONTRADICTED if 2 * verdicts.count(CONTRADICTED) >= len(verdicts) else NOT


def contrast(sides: Sequence[tuple[int, Sequence[float]]]) -> tuple[float, float, float]:
    """Return a signed sum of means and the ends of its 95 % interval by Welch's t; all NaN if a value is not finite.

    Args:
        sides: pairs of a sign and a sample; a sample of one value counts as exact.
    """
    difference = math.fsum(sign * float(np.mean(values)) for sign, values in sides)
    if not math.isfinite(difference):
        return math.nan, math.nan, math.nan
    parts = [(float(np.var(values, ddof=1)) / len(values), len(values) - 1) for _, values in sides if len(values) > 1]
    variance = math.fsum(part for part, _ in parts)
    if variance == 0:
        return difference, difference, difference
    freedom = variance**2 / math.fsum(part**2 / degrees for part, degrees in parts)
    reach = float(student.ppf((1 + CONFIDENCE) / 2, freedom)) * math.sqrt(variance)
    return difference, difference - reach, difference + reach


def _verdict(claim: Claim, low: float, high: float) -> str:
    if claim.direction.startswith("not"):
        return CONTRADICTED if high < 0 else REPRODUCED
    if high < 0:
        return CONTRADICTED
    if not low > 0:  # also if it is NaN
        return NOT
    return HALF if claim.size is not None and high < claim.size / 2 else REPRODUCED


def _judge_property(claim: Claim, samples: Mapping[str, Sequence[float]]) -> Finding:
    (held,) = samples.values()
    if not held:
        return Finding(claim, None)
    everywhere = all(value == 1 for value in held)
    broken = CONTRADICTED if claim.direction == "always" else NOT
    return Finding(claim, REPRODUCED if everywhere == (claim.direction == "always") else broken, sum(held), runs=len(held))


def _best(names: Arms, samples: Mapping[str, Sequence[float]], sign: int) -> str:
    # Both sides of a comparison get their best learning rate, in the direction of the claim.
    return max(_names(names), key=lambda name: sign * float(np.mean(samples[name])))


def _names(side: Arms) -> tuple[str, ...]:
    return (side,) if isinstance(side, str) else side


def _by_arm(records: Iterable[RunRecord], names: Sequence[str]) -> dict[str, list[RunRecord]]:
    found: dict[str, list[RunRecord]] = {name: [] for name in names}
    for record in records:
        if record.arm in found:
            found[record.arm].append(record)
    return found


def _value(record: RunRecord, metric: str) -> float:
    return OF_THE_CURVE[metric](record) if metric in OF_THE_CURVE else record.value(metric)


def _largest_rise(record: RunRecord) -> float:
    losses = [point["mean_squared_error"] for point in record.curve]
    return max(loss - lowest for loss, lowest in zip(losses, accumulate(losses, min), strict=True))


# Metric → function that computes it from the curve of a run.
OF_THE_CURVE: Mapping[str, Callable[[RunRecord], float]] = {"largest rise of the mean squared error": _largest_rise}
