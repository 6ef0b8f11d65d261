"""Sampling schemes with a fixed, public number of examples per step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privet import accounting
from privet._utils.randomness import Words
from privet._utils.registry import register
from privet.accounting import Event
from privet.accounting.events import Release
from privet.errors import count
from privet.noise import Participation
from privet.sampling.draws import Indices, distinct
from privet.sampling.scheme import Scheme, check_size


@register
@dataclass(frozen=True)
class FullBatch(Scheme):
    """Every example takes part in every step: gradient descent, with no amplification by sampling.

    Guarantee:
        T steps are T Gaussian mechanisms on all the data, whose composition is one Gaussian mechanism of multiplier σ/√T: ε is
        exact for every adjacency.

    Source:
        Dong, Roth, Su 2022, "Gaussian Differential Privacy", Corollary 3.3.

    >>> FullBatch().rate(examples=1599)
    1.0
    """

    def expected_batch_size(self, examples: int) -> float:
        """Return the number of examples."""
        return float(examples)

    def draws(self, examples: int, words: Words) -> Iterator[Indices]:
        """Yield all examples at every step."""
        everything = np.arange(examples, dtype=np.int64)
        while True:
            yield everything

    def pattern(self, examples: int, steps: int) -> Participation:
        """Return that an example takes part in every step."""
        return Participation(steps, times=steps, separation=1, epoch=1)

    def event(self, examples: int, noise_multiplier: float, count: int) -> Event:
        """Return the event of `count` releases on all the data."""
        return Event(1.0, noise_multiplier, count)


@register
@dataclass(frozen=True)
class FixedSize(Scheme):
    """A fresh uniform subset of exactly `batch_size` examples for every step, without replacement.

    Args:
        batch_size: number of examples in a step, an integer ≥ 1.

    Guarantee:
        Every subset is equally likely at every step, independently. It supports replace-one neighbours: data sets of equal size
        have the same draws. ε is much larger than for Poisson sampling with add-remove neighbours, because the sum can move by
        twice the bound.

    Source:
        Balle, Barthe, Gaboardi 2018, "Privacy Amplification by Subsampling: Tight Analyses via Couplings and Divergences".

    >>> FixedSize(batch_size=256).rate(examples=60_000)
    0.004266666666666667
    """

    batch_size: int

    refused: ClassVar[Mapping[str, str]] = {
        "add-remove": "If an example is missing, another takes its place in the draw, so the sum moves as if it were replaced.",
        "zero-out": "It is only covered as a case of 'replace-one', whose larger ε also holds for it.",
    }

    def __post_init__(self) -> None:
        count("sampling.batch_size", self.batch_size, fix="It is the exact number of examples in a step.")

    def expected_batch_size(self, examples: int) -> float:
        """Return the batch size."""
        return check_size(self.batch_size, examples)

    def event(self, examples: int, noise_multiplier: float, count: int) -> Release:
        """Return the event of `count` releases on fresh fixed-size subsets."""
        return accounting.FixedSizeEvent(self.rate(examples), noise_multiplier, count)

    def draws(self, examples: int, words: Words) -> Iterator[Indices]:
        """Yield an independent subset for every step."""
        while True:
            yield distinct(self.batch_size, examples, words)
