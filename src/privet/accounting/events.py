"""Events for the accountants: Gaussian releases by sampling scheme, other mechanisms, and the adjacency relations."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from privet.errors import InvalidArgumentError, between, choice, count, positive, real

# Neighbouring data sets differ in one example, which is …
ADJACENCIES = {
    "add-remove": "added or removed",
    "replace-one": "replaced by another",
    "zero-out": "replaced by a placeholder that contributes nothing",
}
EVERY = tuple(ADJACENCIES)
FEWEST_PROJECTIONS = 10
MULTIPLIER_RANGE = (1e-3, 1e6)
_SCALE_RANGE, _LARGEST_EPSILON = (1e-2, 1e6), 100.0


@dataclass(frozen=True)
class _Sampled:
    """`count` releases with noise, each on a fresh sample."""

    sampling_rate: float
    noise_multiplier: float
    count: int = 1
    _multipliers: ClassVar[tuple[float, float]] = MULTIPLIER_RANGE

    def __post_init__(self) -> None:
        _check(self.noise_multiplier, self.count, self._multipliers)
        if not 0 < real("sampling_rate", self.sampling_rate) <= 1:
            raise InvalidArgumentError("sampling_rate", self.sampling_rate, "greater than 0 and at most 1")


@dataclass(frozen=True)
class _Epochs:
    """`count` epochs, in each of which every example takes part in one of `steps` steps."""

    noise_multiplier: float
    count: int = 1
    steps: int | None = None

    def __post_init__(self) -> None:
        _check(self.noise_multiplier, self.count)
        if self.steps is not None:
            count("steps", self.steps, minimum=2, fix="One step is a full batch: leave it out.")


@dataclass(frozen=True)
class Event(_Sampled):
    """`count` independent releases of a Gaussian mechanism, each on a fresh Poisson sample.

    Args:
        sampling_rate: q in (0, 1]; 1 is the full batch.
        noise_multiplier: σ, 0 or in [1e-3, 1e6]: noise standard deviation over the norm bound C of one example's contribution.
            C, not 2C, also for replace-one neighbours; the accountant accounts for their sensitivity of 2C.
        count: number of releases.
        projections: number of random projections (Johnson–Lindenstrauss) from which clipping norms were estimated, ≥ 10; drawn
            afresh at every step and shared by its examples. None for exact norms.
    """

    projections: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.projections is not None:
            fix = "With fewer, estimates are too often far too small for any useful ε; 30 or more cost little."
            count("projections", self.projections, minimum=FEWEST_PROJECTIONS, fix=fix)

    @property
    def adjacencies(self) -> tuple[str, ...]:
        """Adjacencies that the accounting of this event is valid for."""
        return EVERY if self.projections is None else ("add-remove", "zero-out")


@dataclass(frozen=True)
class FixedSizeEvent(_Sampled):
    """`count` Gaussian releases, each on a fresh fixed-size sample without replacement.

    Args:
        sampling_rate: batch size over number of examples, in (0, 1].
        noise_multiplier: σ, as for `Event`: over the norm bound C, not the sensitivity 2C of replacing.
        count: number of releases.
    """

    # Adding or removing an example changes the size of the data set, and with it every inclusion probability.
    adjacencies: ClassVar[tuple[str, ...]] = ("replace-one",)


@dataclass(frozen=True)
class TruncatedPoissonEvent(_Sampled):
    """`count` Gaussian releases, each on a fresh Poisson sample truncated to a random subset of at most `largest_batch`.

    Args:
        sampling_rate: q in (0, 1), before truncation.
        noise_multiplier: σ, as for `Event`.
        count: number of releases.
        examples: public number of examples N.
        largest_batch: maximum number of examples in a step, in [1, N].
    """

    examples: int = 0
    largest_batch: int = 0
    adjacencies: ClassVar[tuple[str, ...]] = ("add-remove",)

    def __post_init__(self) -> None:
        super().__post_init__()
        between("sampling_rate", self.sampling_rate, 0.0, 1.0, "A full batch needs no truncation.")
        count("examples", self.examples, minimum=2)
        if count("largest_batch", self.largest_batch) > self.examples:
            raise InvalidArgumentError("largest_batch", self.largest_batch, f"at most the number of examples, {self.examples}")


@dataclass(frozen=True)
class ShuffledEvent(_Epochs):
    """`count` epochs, each of which splits all examples into fixed-size batches by a fresh secret shuffle.

    Args:
        noise_multiplier: the smallest σ of the epoch's steps, as for `Event`.
        count: number of epochs, including an unfinished one.
        steps: number of steps per epoch, ≥ 2; only used to explain the error of accounting for it as Poisson sampling.

    Guarantee:
        No amplification is claimed. Every example takes part in exactly one step of an epoch. Given that step, the other steps
        are the same for both neighbours, so an epoch costs as much as one full-batch Gaussian release.
    """

    # Removing an example would move others to other batches.
    adjacencies: ClassVar[tuple[str, ...]] = ("replace-one", "zero-out")


@dataclass(frozen=True)
class BallsInBinsEvent(_Epochs):
    """`count` epochs, in each of which every example independently draws the one step that it takes part in.

    Args:
        noise_multiplier: the smallest σ of the epoch's steps, as for `Event`.
        count: number of epochs, including an unfinished one.
        steps: number of steps per epoch, for amplification by random allocation; None claims none.

    Guarantee:
        As for `ShuffledEvent`. Since no example's step depends on the other examples, adding and removing is covered too. Except
        for replacing, the accountant "pld" also uses that the drawn step is secret (`pld.random_allocation`).

    Source:
        Chua et al. 2025, "Balls-and-Bins Sampling for DP-SGD"; Feldman, Shenfeld 2025, "Privacy Amplification by Random
        Allocation".
    """

    adjacencies: ClassVar[tuple[str, ...]] = EVERY


@dataclass(frozen=True)
class LaplaceEvent(_Sampled):
    """`count` releases of a number with Laplace noise, each on a fresh Poisson sample.

    Args:
        sampling_rate: q in (0, 1]; 1 is the full batch.
        noise_multiplier: scale b of the noise over the bound of one example's contribution, in [1e-2, 1e6]; the bound, not twice
            the bound, also for replace-one neighbours.
        count: number of releases.
    """

    _multipliers: ClassVar[tuple[float, float]] = _SCALE_RANGE

    @property
    def adjacencies(self) -> tuple[str, ...]:
        """Adjacencies that the accounting of this event is valid for."""
        return EVERY if self.sampling_rate == 1.0 else ("add-remove", "zero-out")


@dataclass(frozen=True)
class RandomizedResponseEvent:
    """`count` answers of every example: its true value with some probability, else one of the other values, uniformly.

    Args:
        truthful: probability of the true value, at least 1/`answers` and below 1.
        answers: number of possible values, ≥ 2.
        count: number of releases.
    """

    truthful: float
    answers: int = 2
    count: int = 1
    # Who answers is public.
    adjacencies: ClassVar[tuple[str, ...]] = ("replace-one",)
    # There is no noise to multiply.
    noise_multiplier: ClassVar[float] = math.inf

    def __post_init__(self) -> None:
        count("answers", self.answers, minimum=2)
        if not 1 / self.answers <= real("truthful", self.truthful) < 1:
            raise InvalidArgumentError("truthful", self.truthful, f"at least 1/answers, {1 / self.answers:g}, and below 1")
        if self.epsilon > _LARGEST_EPSILON:
            raise InvalidArgumentError("truthful", self.truthful, f"a probability whose ε is at most {_LARGEST_EPSILON:g}")
        count("steps", self.count, minimum=0)

    @property
    def other(self) -> float:
        """Probability of each false value."""
        return (1 - self.truthful) / (self.answers - 1)

    @property
    def epsilon(self) -> float:
        """ε of one answer at δ = 0."""
        return max(0.0, math.log(self.truthful) - math.log(self.other))


@dataclass(frozen=True)
class EpsilonDeltaEvent:
    """`count` releases of which nothing is known but that each is (ε, δ)-differentially private.

    Args:
        epsilon: ε in (0, 100].
        delta: δ in [0, 1).
        count: number of releases.

    Guarantee:
        Randomised response that also reveals the example with probability δ dominates every such release.

    Source:
        Kairouz, Oh, Viswanath 2015, "The Composition Theorem for Differential Privacy".
    """

    epsilon: float
    delta: float = 0.0
    count: int = 1
    adjacencies: ClassVar[tuple[str, ...]] = EVERY
    noise_multiplier: ClassVar[float] = math.inf

    def __post_init__(self) -> None:
        if positive("epsilon", self.epsilon) > _LARGEST_EPSILON:
            raise InvalidArgumentError("epsilon", self.epsilon, f"at most {_LARGEST_EPSILON:g}")
        if not 0 <= real("delta", self.delta) < 1:
            raise InvalidArgumentError("delta", self.delta, "at least 0 and below 1")
        count("steps", self.count, minimum=0)


GaussianRelease = Event | FixedSizeEvent | TruncatedPoissonEvent | ShuffledEvent | BallsInBinsEvent
Release = GaussianRelease | LaplaceEvent | RandomizedResponseEvent | EpsilonDeltaEvent


def combined(multipliers: Iterable[float]) -> float:
    """Return the multiplier of one Gaussian release equivalent to all releases of one step from one subsample: 1/√Σσᵢ⁻².

    The parts share one subsample, so they form one sampled release; composing them as separate samples would understate ε.

    Args:
        multipliers: σᵢ > 0, each part's noise standard deviation over its sensitivity.

    >>> round(combined([1.1, 10.0]), 4)
    1.0934
    """
    values = [real("noise_multiplier", value) for value in multipliers]
    if not values or min(values) < 0:
        raise InvalidArgumentError("multipliers", values, "one or more numbers that are at least 0")
    return 0.0 if min(values) == 0 else 1 / math.sqrt(math.fsum(value**-2 for value in values))


def merge(events: Iterable[Release], amplified: bool = True) -> tuple[Release, ...]:
    """Merge events with equal mechanisms: composition does not depend on their order.

    An epoch that random allocation does not amplify becomes a full-batch Gaussian of the same cost.
    """
    whole = (Event(1.0, event.noise_multiplier, event.count) if _is_whole_epoch(event, amplified) else event for event in events)
    counts: Counter[Release] = Counter()
    for event in whole:
        counts[event if event.count == 1 else replace(event, count=1)] += event.count
    return tuple(event if number == 1 else replace(event, count=number) for event, number in counts.items() if number)


def round_multipliers_down(events: Iterable[Release], per_octave: int) -> tuple[Release, ...]:
    """Round multipliers down to powers of 2^(1/per_octave): fewer distinct events, never a smaller ε."""
    least = MULTIPLIER_RANGE[0]
    return merge(
        event
        if isinstance(event, (RandomizedResponseEvent, EpsilonDeltaEvent))
        else replace(event, noise_multiplier=max(_floor_to_ladder(event.noise_multiplier, per_octave), least))
        for event in events
    )


def round_finely(events: Sequence[Release]) -> tuple[Release, ...]:
    """Round multipliers down and rates up, by less than one part in a million; by 3.4e-4 if there are many events."""
    fine = round_multipliers_down((_round_rate_up(event) for event in events), _FINE)
    return fine if len(fine) <= _MANY else round_multipliers_down(fine, _COARSE)


_FINE, _COARSE, _MANY = 2**20, 2**11, 2048


def _round_rate_up(event: Release) -> Release:
    if isinstance(event, _Sampled) and event.sampling_rate < 1:
        return replace(event, sampling_rate=1 / _floor_to_ladder(1 / event.sampling_rate, _FINE))
    return event


def _floor_to_ladder(value: float, per_octave: int) -> float:
    """Return the largest power of 2^(1/n) that does not exceed the value."""
    power = math.floor(math.log2(value) * per_octave)
    rung = 2.0 ** (power / per_octave)
    return float(rung if rung <= value else 2.0 ** ((power - 1) / per_octave))


def _is_whole_epoch(event: Release, amplified: bool) -> bool:
    return isinstance(event, ShuffledEvent) or (isinstance(event, BallsInBinsEvent) and (event.steps is None or not amplified))


def as_if_poisson(events: Iterable[Release]) -> tuple[Release, ...]:
    """Treat every step as a fresh Poisson sample at the same rate; its ε is no bound on that of the events."""
    return tuple(
        Event(event.sampling_rate, event.noise_multiplier, event.count)
        if isinstance(event, (FixedSizeEvent, TruncatedPoissonEvent))
        else Event(1 / event.steps, event.noise_multiplier, event.count * event.steps)
        if isinstance(event, _Epochs) and event.steps is not None
        else event
        for event in events
    )


def check_query(delta: float, adjacency: str) -> None:
    """Refuse a δ outside (0, 1) and unknown adjacencies."""
    between("delta", delta, 0.0, 1.0, "It is usually well below 1 / examples, such as 1e-5.")
    choice("adjacency", adjacency, ADJACENCIES)


def _check(noise_multiplier: float, number: int, allowed: tuple[float, float] = MULTIPLIER_RANGE) -> None:
    low, high = allowed
    if real("noise_multiplier", noise_multiplier) != 0 and not low <= noise_multiplier <= high:
        raise InvalidArgumentError("noise_multiplier", noise_multiplier, f"0 or between {low:g} and {high:g}")
    count("steps", number, minimum=0)
