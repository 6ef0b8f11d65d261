"""Poisson sampling, where everybody flips a coin of their own, and its variant with a largest batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from privet import accounting
from privet._utils.randomness import Words
from privet._utils.registry import register
from privet.accounting import Event, Release
from privet.errors import InvalidArgumentError, count, positive
from privet.sampling.draws import Indices, binomial, distinct, uniform
from privet.sampling.scheme import Scheme, checked_size


@register
@dataclass(frozen=True)
class Poisson(Scheme):
    """Every example takes part in every step independently with probability q = batch_size / examples.

    Args:
        batch_size: expected number of examples in a step, > 0 and at most the number of examples. The number really drawn
            varies around it and stays private.

    Guarantee:
        Inclusion is independent over examples and steps, which is what amplification by Poisson sampling assumes (covered by
        the accountants "pld", "rdp" and, approximately, "gdp"). Drawing k ~ Binomial(N, q) and then k distinct indices is
        the same distribution as N independent coins.

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
        return checked_size(self.batch_size, examples)

    def rate(self, examples: int) -> float:
        """Return the sampling rate q for a data set of this size.

        Raises:
            InvalidArgumentError: the expected batch is larger than the data set.
        """
        checked_size(self.batch_size, examples)
        return self.batch_size / examples

    def draws(self, examples: int, words: Words) -> Iterator[Indices]:
        """Yield an independent draw for every step."""
        while True:
            yield self.draw(examples, words)

    def draw(self, examples: int, words: Words) -> Indices:
        """Return the sorted indices of one step's examples; often not `batch_size` of them, possibly none."""
        return distinct(binomial(examples, self.rate(examples), uniform(words)), examples, words)

    def event(self, examples: int, noise_multiplier: float, count: int) -> Event:
        """Return releases on Poisson samples."""
        return Event(self.rate(examples), noise_multiplier, count)


@register
@dataclass(frozen=True)
class TruncatedPoisson(Scheme):
    """Poisson sampling with a largest batch: of a larger sample, `cap` examples are kept, chosen uniformly.

    Args:
        batch_size: expected number of examples before anything is cut off, > 0.
        cap: most examples in a step, a whole number of at least `batch_size`. Six standard deviations above costs next to
            nothing in ε and bounds the memory and the time of every step.

    Guarantee:
        Steps are independent of one another, and each has exactly the law that Ganesh analyses, for one example that is added or
        removed. Other neighbours are refused: in a batch that is full, an example's presence decides who else is in it, and
        nobody has analysed that for an example that changes only its content.

    Source:
        Ganesh 2025, "Tighter Privacy Analysis for Truncated Poisson Sampling", arXiv 2508.15089.

    >>> TruncatedPoisson(batch_size=512, cap=650).rate(examples=60_000)
    0.008533333333333334
    """

    batch_size: float
    cap: int

    refused: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("replace-one", "zero-out"),
        "Who is in a full batch depends on who else was drawn, which is accounted for added or removed examples only.",
    )

    def __post_init__(self) -> None:
        positive("sampling.batch_size", self.batch_size, "It is the expected number of examples in a step.")
        count("sampling.cap", self.cap, fix="It is the most examples that a step may have.")
        if self.cap < self.batch_size:
            raise InvalidArgumentError(
                "sampling.cap", self.cap, f"at least the batch size, {self.batch_size}",
                "Six standard deviations above it, batch_size + 6·√batch_size, cost next to nothing.",
            )  # fmt: skip

    def expected_batch_size(self, examples: int) -> float:
        """Return the batch size before anything is cut off."""
        return checked_size(self.batch_size, examples)

    def event(self, examples: int, noise_multiplier: float, count: int) -> Release:
        """Return the releases on samples that are cut off at the cap."""
        return accounting.TruncatedPoisson(self.rate(examples), noise_multiplier, count, examples, self.cap)

    def draws(self, examples: int, words: Words) -> Iterator[Indices]:
        """Yield an independent draw for every step.

        A uniform `cap`-subset of a uniform k-subset is a uniform `cap`-subset, so the number is cut before anybody is drawn.
        """
        while True:
            number = binomial(examples, self.rate(examples), uniform(words))
            yield distinct(min(number, self.cap), examples, words)
