"""What is accounted: Gaussian releases by how their examples were drawn, and whose data may differ between neighbours."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from privet.errors import InvalidArgumentError, between, choice, count, real

# Neighbouring data sets differ in one example, which is …
ADJACENCIES = {
    "add-remove": "added or removed",
    "replace-one": "replaced by another",
    "zero-out": "replaced by a placeholder that contributes nothing",
}
EVERY = tuple(ADJACENCIES)
FEWEST_PROJECTIONS = 10
MULTIPLIER_RANGE = (1e-3, 1e6)


@dataclass(frozen=True)
class Event:
    """`count` independent releases of a Gaussian mechanism, each on a fresh Poisson sample.

    Args:
        sampling_rate: q in (0, 1]; 1 takes everybody (full batch).
        noise_multiplier: σ, 0 or in [1e-3, 1e6]: noise standard deviation over the norm bound C of one example's contribution.
            C, not 2C, also for replace-one neighbours: the accountant knows that those can move the sum by twice the bound.
        count: number of releases.
        projections: if the norms that contributions are clipped by were estimated from this many random projections
            (Johnson–Lindenstrauss), fresh at every step and shared by its examples: ≥ 10. None for exact norms.
    """

    sampling_rate: float
    noise_multiplier: float
    count: int = 1
    projections: int | None = None

    def __post_init__(self) -> None:
        _check(self.noise_multiplier, self.count)
        _check_rate(self.sampling_rate)
        if self.projections is not None:
            fix = "With fewer, the estimate is so often far too small that no useful ε holds; 30 or more cost little."
            count("projections", self.projections, minimum=FEWEST_PROJECTIONS, fix=fix)

    @property
    def adjacencies(self) -> tuple[str, ...]:
        """Neighbours that the accounting of this event is valid for."""
        return EVERY if self.projections is None else ("add-remove", "zero-out")


@dataclass(frozen=True)
class FixedSize:
    """`count` Gaussian releases, each on a fresh sample of fixed size without replacement.

    Args:
        sampling_rate: batch size over number of examples, in (0, 1].
        noise_multiplier: σ, as for `Event`: over the norm bound C, not over the 2C by which replacing moves the sum.
        count: number of releases.
    """

    sampling_rate: float
    noise_multiplier: float
    count: int = 1
    # Adding or removing an example changes the size of the data set, on which every inclusion depends.
    adjacencies: ClassVar[tuple[str, ...]] = ("replace-one",)

    def __post_init__(self) -> None:
        _check(self.noise_multiplier, self.count)
        _check_rate(self.sampling_rate)


@dataclass(frozen=True)
class TruncatedPoisson:
    """`count` Gaussian releases, each on a fresh Poisson sample, of which a random `largest_batch` are kept if there are more.

    Args:
        sampling_rate: q in (0, 1), before truncation.
        noise_multiplier: σ, as for `Event`.
        count: number of releases.
        examples: public number of examples N.
        largest_batch: most examples that take part in a step, in [1, N].
    """

    sampling_rate: float
    noise_multiplier: float
    count: int = 1
    examples: int = 0
    largest_batch: int = 0
    adjacencies: ClassVar[tuple[str, ...]] = ("add-remove",)

    def __post_init__(self) -> None:
        _check(self.noise_multiplier, self.count)
        between("sampling_rate", self.sampling_rate, 0.0, 1.0, "A full batch needs no truncation.")
        count("examples", self.examples, minimum=2)
        if count("largest_batch", self.largest_batch) > self.examples:
            raise InvalidArgumentError("largest_batch", self.largest_batch, f"at most the number of examples, {self.examples}")


@dataclass(frozen=True)
class Shuffled:
    """`count` epochs, each of which deals all examples into batches of fixed size by a fresh secret shuffle.

    Args:
        noise_multiplier: the smallest σ of the epoch's steps, as for `Event`.
        count: number of epochs, begun ones included.
        steps: number of steps of an epoch, ≥ 2; only what is said about pretending that it was Poisson sampling depends on it.

    Guarantee:
        No amplification is claimed. Every example takes part in exactly one step of an epoch, whichever; conditioned on which,
        the other steps are the same for both neighbours, so an epoch costs what one Gaussian release costs.
    """

    noise_multiplier: float
    count: int = 1
    steps: int | None = None
    # Removing an example moves others to other batches.
    adjacencies: ClassVar[tuple[str, ...]] = ("replace-one", "zero-out")

    def __post_init__(self) -> None:
        _check(self.noise_multiplier, self.count)
        if self.steps is not None:
            count("steps", self.steps, minimum=2, fix="One step takes everybody: leave it out.")


@dataclass(frozen=True)
class BallsInBins:
    """`count` epochs, in each of which every example independently draws the one step that it takes part in.

    Args:
        noise_multiplier: the smallest σ of the epoch's steps, as for `Event`.
        count: number of epochs, begun ones included.
        steps: number of steps of an epoch, for the amplification by random allocation; None claims none.

    Guarantee:
        As for `Shuffled`, and as nobody's step depends on who else is there, adding and removing is covered too. The accountant
        "pld" knows besides that nobody sees which step was drawn (`allocation`), unless one example is replaced by another.

    Source:
        Chua et al. 2025, "Balls-and-Bins Sampling for DP-SGD"; Feldman, Shenfeld 2025, "Privacy Amplification by Random
        Allocation".
    """

    noise_multiplier: float
    count: int = 1
    steps: int | None = None
    adjacencies: ClassVar[tuple[str, ...]] = EVERY

    def __post_init__(self) -> None:
        _check(self.noise_multiplier, self.count)
        if self.steps is not None:
            count("steps", self.steps, minimum=2, fix="One step takes everybody: leave it out.")


Release = Event | FixedSize | TruncatedPoisson | Shuffled | BallsInBins


def combined(multipliers: Iterable[float]) -> float:
    """Return the multiplier of all that was released at one step from one subsample: 1/√Σσᵢ⁻², one Gaussian release.

    The parts share who was sampled, so they are one sampled release; composed as separate ones they would cost too little.

    Args:
        multipliers: σᵢ > 0, each part's noise standard deviation over its own sensitivity.

    >>> round(combined([1.1, 10.0]), 4)
    1.0934
    """
    values = [real("noise_multiplier", value) for value in multipliers]
    if not values or min(values) < 0:
        raise InvalidArgumentError("multipliers", values, "one or more numbers that are at least 0")
    return 0.0 if min(values) == 0 else 1 / math.sqrt(math.fsum(value**-2 for value in values))


def epochs(multipliers: Iterable[float], steps: int, kind: type[Shuffled] | type[BallsInBins]) -> tuple[Release, ...]:
    """Return one event for every epoch of `steps` steps, begun ones included, with the epoch's smallest multiplier.

    Args:
        multipliers: σ of every step, in order.
        steps: number of steps of an epoch, ≥ 1.
        kind: `Shuffled` or `BallsInBins`.

    >>> epochs([2.0, 1.5, 3.0], 2, Shuffled)
    (Shuffled(noise_multiplier=1.5, count=1, steps=2), Shuffled(noise_multiplier=3.0, count=1, steps=2))
    """
    values, length = list(multipliers), None if count("steps", steps) == 1 else steps
    return tuple(kind(min(values[first : first + steps]), steps=length) for first in range(0, len(values), steps))


def merged(events: Iterable[Release], amplified: bool = True) -> tuple[Release, ...]:
    """Return the events with equal mechanisms counted together; composition does not depend on order.

    An epoch without amplification becomes the full-batch Gaussian that it costs as much as.

    Args:
        events: in any order.
        amplified: whether random allocation amplifies; otherwise its epochs are without amplification, too.
    """
    return counted(
        Event(1.0, event.noise_multiplier, event.count) if _is_whole_epoch(event, amplified) else event for event in events
    )


def counted(events: Iterable[Release]) -> tuple[Release, ...]:
    """Return the events with equal ones counted together."""
    counts: dict[tuple[object, ...], int] = {}
    first: dict[tuple[object, ...], Release] = {}
    for event in events:
        key = (type(event), *(value for name, value in vars(event).items() if name != "count"))
        counts[key] = counts.get(key, 0) + event.count
        first.setdefault(key, event)
    return tuple(
        event if event.count == counts[key] else replace(event, count=counts[key]) for key, event in first.items() if counts[key]
    )


def rounded_down(events: Iterable[Release], per_octave: int) -> tuple[Release, ...]:
    """Return the events with multipliers rounded down to powers of 2^(1/n): never less ε, and fewer.

    Args:
        events: with noise.
        per_octave: n ≥ 1, how many multipliers there are between one and its double; multiples of it only add some.
    """
    least = MULTIPLIER_RANGE[0]
    return merged(replace(event, noise_multiplier=max(_ladder(event.noise_multiplier, per_octave), least)) for event in events)


def finely_rounded(events: Sequence[Release]) -> tuple[Release, ...]:
    """Return the events with multipliers rounded down and rates up, by less than a millionth; by 3.4e-4 where there are many.

    Args:
        events: with noise.
    """
    fine = rounded_down((_at_higher_rate(event) for event in events), _FINE)
    return fine if len(fine) <= _MANY else rounded_down(fine, _COARSE)


_FINE, _COARSE, _MANY = 2**20, 2**11, 2048


def _at_higher_rate(event: Release) -> Release:
    if isinstance(event, (Event, FixedSize, TruncatedPoisson)) and event.sampling_rate < 1:
        return replace(event, sampling_rate=1 / _ladder(1 / event.sampling_rate, _FINE))
    return event


def _ladder(value: float, per_octave: int) -> float:
    """Return the largest power of 2^(1/n) that is not above the value."""
    power = math.floor(math.log2(value) * per_octave)
    rung = 2.0 ** (power / per_octave)
    return float(rung if rung <= value else 2.0 ** ((power - 1) / per_octave))


def _is_whole_epoch(event: Release, amplified: bool) -> bool:
    return isinstance(event, Shuffled) or (isinstance(event, BallsInBins) and (event.steps is None or not amplified))


def as_if_poisson(events: Iterable[Release]) -> tuple[Release, ...]:
    """Return the events as if every step were on a fresh Poisson sample at the same rate, which is no bound on what they cost."""
    return tuple(
        Event(event.sampling_rate, event.noise_multiplier, event.count)
        if isinstance(event, (FixedSize, TruncatedPoisson))
        else Event(1 / event.steps, event.noise_multiplier, event.count * event.steps)
        if isinstance(event, (Shuffled, BallsInBins)) and event.steps is not None
        else event
        for event in events
    )


def check_query(delta: float, adjacency: str) -> None:
    """Refuse a δ outside (0, 1) and unknown neighbours."""
    between("delta", delta, 0.0, 1.0, "It is usually well below 1 / examples, such as 1e-5.")
    choice("adjacency", adjacency, ADJACENCIES)


def _check(noise_multiplier: float, number: int) -> None:
    low, high = MULTIPLIER_RANGE
    if real("noise_multiplier", noise_multiplier) != 0 and not low <= noise_multiplier <= high:
        raise InvalidArgumentError("noise_multiplier", noise_multiplier, f"0 or between {low:g} and {high:g}")
    count("steps", number, minimum=0)


def _check_rate(sampling_rate: float) -> None:
    if not 0 < real("sampling_rate", sampling_rate) <= 1:
        raise InvalidArgumentError("sampling_rate", sampling_rate, "greater than 0 and at most 1")
