"""Poisson sampling, in which each example joins each step independently; with a maximum batch size; and in cycles."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from privet import accounting
from privet._utils.randomness import Words
from privet._utils.registry import register
from privet.accounting import Event
from privet.accounting.events import Release
from privet.errors import InvalidArgumentError, count, positive
from privet.noise import Participation
from privet.sampling.draws import Indices, below, binomial, distinct, uniform
from privet.sampling.scheme import Scheme, check_size, least_of
from privet.schedules import Factors


@register
@dataclass(frozen=True)
class Poisson(Scheme):
    """Each example joins each step independently with probability q = batch_size / examples.

    Args:
        batch_size: expected number of examples in a step, > 0 and at most the number of examples. The actual number varies
            around it and stays private.

    Guarantee:
        Inclusion is independent across examples and steps, as amplification by Poisson sampling assumes (covered by the
        accountants "pld", "rdp" and, approximately, "gdp"). Drawing k ~ Binomial(N, q) and then k distinct indices has the same
        distribution as N independent coin flips.

    Source:
        Abadi et al. 2016; Mironov, Talwar, Zhang 2019, "Rényi Differential Privacy of the Sampled Gaussian Mechanism".

    >>> Poisson(batch_size=512).rate(examples=60_000)
    0.008533333333333334
    """

    batch_size: float

    def __post_init__(self) -> None:
        positive("sampling.batch_size", self.batch_size, "It is the expected number of examples in a step.")

    def expected_batch_size(self, examples: int) -> float:
        """Return the batch size."""
        return check_size(self.batch_size, examples)

    def rate(self, examples: int) -> float:
        """Return the sampling rate q for a data set of this size.

        Raises:
            InvalidArgumentError: the expected batch is larger than the data set.
        """
        check_size(self.batch_size, examples)
        return self.batch_size / examples

    def draws(self, examples: int, words: Words) -> Iterator[Indices]:
        """Yield an independent draw for every step."""
        rate = self.rate(examples)
        while True:
            yield distinct(binomial(examples, rate, uniform(words)), examples, words)

    def event(self, examples: int, noise_multiplier: float, count: int) -> Event:
        """Return the event of `count` releases on Poisson samples."""
        return Event(self.rate(examples), noise_multiplier, count)


@register
@dataclass(frozen=True)
class TruncatedPoisson(Scheme):
    """Poisson sampling with a maximum batch size: of a larger sample, a uniform subset of `cap` examples is kept.

    Args:
        batch_size: expected number of examples before truncation, > 0.
        cap: largest number of examples in a step, an integer of at least `batch_size`. Six standard deviations above it costs
            next to nothing in ε and bounds the memory and time of every step.

    Guarantee:
        Steps are independent, and each has exactly the distribution that Ganesh analyses for add-remove neighbours. Other
        adjacencies are refused: in a full batch, an example's presence affects which others are in it, and no analysis is known
        for an example that only changes its content.

    Source:
        Ganesh 2025, "Tighter Privacy Analysis for Truncated Poisson Sampling", arXiv 2508.15089.

    >>> TruncatedPoisson(batch_size=512, cap=650).rate(examples=60_000)
    0.008533333333333334
    """

    batch_size: float
    cap: int

    refused: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("replace-one", "zero-out"),
        "The members of a full batch depend on which other examples were drawn; only add-remove accounting covers that.",
    )

    def __post_init__(self) -> None:
        positive("sampling.batch_size", self.batch_size, "It is the expected number of examples in a step.")
        count("sampling.cap", self.cap, fix="It is the largest number of examples in a step.")
        if self.cap < self.batch_size:
            fix = "Six standard deviations above it, batch_size + 6·√batch_size, costs next to nothing."
            raise InvalidArgumentError("sampling.cap", self.cap, f"at least the batch size, {self.batch_size}", fix)

    def expected_batch_size(self, examples: int) -> float:
        """Return the batch size before truncation."""
        return check_size(self.batch_size, examples)

    def event(self, examples: int, noise_multiplier: float, count: int) -> Release:
        """Return the event of `count` releases on samples truncated at the cap."""
        return accounting.TruncatedPoissonEvent(self.rate(examples), noise_multiplier, count, examples, self.cap)

    def draws(self, examples: int, words: Words) -> Iterator[Indices]:
        """Yield an independent draw for every step.

        A uniform `cap`-subset of a uniform k-subset is a uniform `cap`-subset, so the number is truncated before the draw.
        """
        while True:
            number = binomial(examples, self.rate(examples), uniform(words))
            yield distinct(min(number, self.cap), examples, words)


@register
@dataclass(frozen=True)
class CyclicPoisson(Scheme):
    """Poisson sampling from one group of the data after the other, for `noise.Banded`.

    Every example is assigned to one of `cycle` groups, uniformly and independently, once per run. Step t takes group t mod cycle,
    each of whose members joins with probability cycle · batch_size / examples.

    Args:
        batch_size: expected number of examples in a step, > 0; cycle · batch_size is at most the number of examples.
        cycle: number of groups, an integer ≥ 1; at least the number of bands of the noise. 1 is Poisson sampling.

    Guarantee:
        An example takes part in steps that are a multiple of `cycle` apart, each time independently. So it is in ⌈T/cycle⌉
        Poisson-sampled releases, whichever its group; as groups are drawn independently of the other examples, every adjacency
        is supported. A run that lost its groups continues at the next cycle with new ones, which costs nothing: the first
        cycles and the later ones have ⌈T/cycle⌉ releases together.

    Source:
        Choquette-Choo et al. 2023, "(Amplified) Banded Matrix Factorization: A unified approach to private training",
        Algorithm 2 and Theorem 4.

    >>> CyclicPoisson(batch_size=500, cycle=8).event(examples=50_000, noise_multiplier=1.7, count=250)
    Event(sampling_rate=0.08, noise_multiplier=1.7, count=250, projections=None)
    """

    batch_size: float
    cycle: int

    def __post_init__(self) -> None:
        positive("sampling.batch_size", self.batch_size, "It is the expected number of examples in a step.")
        count("sampling.cycle", self.cycle, fix="It is the number of groups, at least the bands of the noise.")

    def expected_batch_size(self, examples: int) -> float:
        """Return the batch size."""
        check_size(self.batch_size, examples)
        if self.cycle * self.batch_size > examples:
            allowed = f"at most examples / batch_size = {examples / self.batch_size:.4g}"
            fix = "A step takes its batch from one of that many groups."
            raise InvalidArgumentError("sampling.cycle", self.cycle, allowed, fix)
        return float(self.batch_size)

    def draws(self, examples: int, words: Words) -> Iterator[Indices]:
        """Yield the draws of one cycle after the other, from the beginning of the first."""
        groups, rate = below(self.cycle, examples, words), self._rate_in_group(examples)
        while True:
            for group in range(self.cycle):
                chosen = distinct(binomial(examples, rate, uniform(words)), examples, words)
                yield chosen[groups[chosen] == group]

    def participation(self, examples: int, steps: int) -> int:
        """Return the number of cycles that the first `steps` steps touch."""
        return math.ceil(steps / self.cycle)

    def pattern(self, examples: int, steps: int) -> Participation:
        """Return that an example takes part at random, once per cycle, always at the same place."""
        return Participation(steps, self.participation(examples, steps), self.cycle, self._rate_in_group(examples))

    def resumes_at(self, step: int, examples: int) -> int:
        """Return the first step of the first cycle that begins at or after `step`."""
        return step + (1 - step) % self.cycle

    def event(self, examples: int, noise_multiplier: float, count: int) -> Event:
        """Return the event of `count` cycles with the same noise multiplier."""
        return Event(self._rate_in_group(examples), noise_multiplier, count)

    def events(self, examples: int, multipliers: Factors) -> tuple[Release, ...]:
        """Return the events of the cycles, each with the smallest multiplier of its steps, equal ones merged."""
        return super().events(examples, least_of(multipliers, self.cycle))

    def _rate_in_group(self, examples: int) -> float:
        self.expected_batch_size(examples)
        return min(1.0, self.cycle * self.batch_size / examples)
