"""Noise: sources of randomness, and the Gaussian mechanism, with noise that is independent or correlated over the steps."""

from privet.noise.base import NoiseMechanism, Participation
from privet.noise.compiled import arithmetic
from privet.noise.correlated import Banded, BufferedToeplitz, Correlated, Tree
from privet.noise.gaussian import Gaussian, release
from privet.noise.keystream import Keystream
from privet.noise.past import PastNoise
from privet.noise.sources import SOURCES, FastSource, FixedSource, SecureSource, Source
from privet.noise.token import Token

__all__ = [
    "SOURCES",
    "Banded",
    "BufferedToeplitz",
    "Correlated",
    "FastSource",
    "FixedSource",
    "Gaussian",
    "Keystream",
    "NoiseMechanism",
    "Participation",
    "PastNoise",
    "SecureSource",
    "Source",
    "Token",
    "Tree",
    "arithmetic",
    "release",
]
