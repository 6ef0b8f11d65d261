"""Sampling schemes: which examples join each step, and the exact random draws behind them.

Amplification by sampling relies on the secrecy of the draw, so the random words come from the same class of source as the noise.
They are an argument, so tests can supply their own.
"""

from privet._utils.randomness import Words as Words
from privet.sampling.draws import Indices as Indices
from privet.sampling.draws import below as below
from privet.sampling.draws import binomial as binomial
from privet.sampling.draws import distinct as distinct
from privet.sampling.draws import permutation as permutation
from privet.sampling.fixed_size import FixedSize, FullBatch
from privet.sampling.partitions import BallsInBins, FixedOrder, Shuffle
from privet.sampling.poisson import CyclicPoisson, Poisson, TruncatedPoisson
from privet.sampling.scheme import ByEpoch as ByEpoch
from privet.sampling.scheme import Scheme

__all__ = [
    "BallsInBins",
    "CyclicPoisson",
    "FixedOrder",
    "FixedSize",
    "FullBatch",
    "Poisson",
    "Scheme",
    "Shuffle",
    "TruncatedPoisson",
]
