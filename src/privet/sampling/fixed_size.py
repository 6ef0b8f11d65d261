"""Schemes whose steps all have the same public number of examples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privet import accounting
from privet._utils.randomness import Words
from privet._utils.registry import register
from privet.accounting import Event, Release
from privet.errors import count
from privet.sampling.draws import Indices, distinct
from privet.sampling.scheme import Scheme, checked_size


@register
@dataclass(frozen=True)
class FullBatch(Scheme):
    """Every example takes part in every step: gradient descent, with no amplification by sampling.

    Guarantee:
        T steps are T Gaussian mechanisms on all the data, whose composition is one Gaussian mechanism of multiplier σ/√T: ε is
        exact for all neighbours.

    Source:
        Dong, Roth, Su 2022, "Gaussian Differential Privacy", Corollary 3.3.

    >>> FullBatch().rate(examples=1599)
    1.0
    """

    def expected_batch_size(self, examples: int) -> float:
        """Return the number of examples."""
        return float(examples)

    def draws(self, examples: int, words: Words) -> Iterator[Indices]:
        """Yield everybody, at every step."""
        everybody = np.arange(examples, dtype=np.int64)
        while True:
            yield everybody

    def event(self, examples: int, noise_multiplier: float, count: int) -> Event:
        """Return releases on all the data."""
        return Event(1.0, noise_multiplier, count)


@register
@dataclass(frozen=True)
class FixedSize(Scheme):
    """A uniform subset of exactly `batch_size` examples, without replacement, drawn anew for every step.

    Args:
        batch_size: number of examples in a step, a whole number ≥ 1.

    Guarantee:
        Every subset is equally likely at every step, independently. The neighbours that suit it are those where one example is
        replaced by another: of two data sets of the same size, the draws are the same. ε is much larger than for Poisson sampling
        with add-remove neighbours, as the sum can move by twice the bound.

    Source:
        Balle, Barthe, Gaboardi 2018, "Privacy Amplification by Subsampling: Tight Analyses via Couplings and Divergences".

    >>> FixedSize(batch_size=256).rate(examples=60_000)
    0.004266666666666667
    """

    batch_size: int

    refused: ClassVar[Mapping[str, str]] = {
        "add-remove": "Where one is missing, another takes its place in the draw, so the sum moves as if it were replaced.",
        "zero-out": "It is covered only as a case of 'replace-one', whose larger ε holds for it too.",
    }

    def __post_init__(self) -> None:
        count("sampling.batch_size", self.batch_size, fix="It is the exact number of examples in a step.")

    def expected_batch_size(self, examples: int) -> float:
        """Return the batch size."""
        return checked_size(self.batch_size, examples)

    def event(self, examples: int, noise_multiplier: float, count: int) -> Release:
        """Return the releases on fresh subsets of one size."""
        return accounting.FixedSize(self.rate(examples), noise_multiplier, count)

    def draws(self, examples: int, words: Words) -> Iterator[Indices]:
        """Yield an independent subset for every step."""
        while True:
            yield distinct(self.batch_size, examples, words)
