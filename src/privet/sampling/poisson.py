"""Poisson sampling, in which each example joins each step independently, and its variant with a maximum batch size."""

from __future__ import annotations

__all__ = ["Poisson", "TruncatedPoisson"]

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from privet import accounting
from privet._utils.randomness import Words
from privet._utils.registry import register
from privet.accounting import Event
from privet.accounting.events import Release
from privet.errors import InvalidArgumentError, count, positive
from privet.sampling.draws import Indices, binomial, distinct, uniform
from privet.sampling.scheme import Scheme, check_size


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
        while True:
            yield self.draw(examples, words)

    def draw(self, examples: int, words: Words) -> Indices:
        """Return the sorted indices of one step's examples; their number varies and can be 0."""
        return distinct(binomial(examples, self.rate(examples), uniform(words)), examples, words)

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
            raise InvalidArgumentError(
                "sampling.cap", self.cap, f"at least the batch size, {self.batch_size}",
                "Six standard deviations above it, batch_size + 6·√batch_size, costs next to nothing.",
            )  # fmt: skip

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
