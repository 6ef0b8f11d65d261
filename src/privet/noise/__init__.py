"""Noise: sources of randomness, and the Gaussian mechanism."""

from privet.noise.compiled import arithmetic
from privet.noise.gaussian import Gaussian, release
from privet.noise.keystream import Keystream
from privet.noise.sources import SOURCES, FastSource, FixedSource, SecureSource, Source
from privet.noise.token import Token

__all__ = [
    "SOURCES",
    "FastSource",
    "FixedSource",
    "Gaussian",
    "Keystream",
    "SecureSource",
    "Source",
    "Token",
    "arithmetic",
    "release",
]
