"""Who takes part in a step: sampling schemes and the exact draws behind them.

Amplification by sampling is only as good as the secrecy of the draw, so the random words come from the same class of source
as the noise; they are handed in, which also lets a test hand in words of its own.
"""

from privet._utils.randomness import Words
from privet.sampling.draws import Indices, below, binomial, distinct, permutation
from privet.sampling.fixed_size import FixedSize, FullBatch
from privet.sampling.partitions import BallsInBins, Shuffle
from privet.sampling.poisson import Poisson, TruncatedPoisson
from privet.sampling.scheme import ByEpoch, Scheme

__all__ = [
    "BallsInBins",
    "ByEpoch",
    "FixedSize",
    "FullBatch",
    "Indices",
    "Poisson",
    "Scheme",
    "Shuffle",
    "TruncatedPoisson",
    "Words",
    "below",
    "binomial",
    "distinct",
    "permutation",
]
