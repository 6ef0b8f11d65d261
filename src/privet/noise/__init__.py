"""Noise: sources of randomness, and the Gaussian mechanism, with noise that is independent or correlated over the steps."""

from privet.noise.base import NoiseMechanism as NoiseMechanism
from privet.noise.base import Participation as Participation
from privet.noise.compiled import arithmetic as arithmetic
from privet.noise.correlated import Banded, BufferedToeplitz, Tree
from privet.noise.correlated import Correlated as Correlated
from privet.noise.gaussian import Gaussian
from privet.noise.gaussian import claim_of as claim_of
from privet.noise.gaussian import noised_on_device as noised_on_device
from privet.noise.gaussian import release as release
from privet.noise.past import PastNoise as PastNoise
from privet.noise.sources import SOURCES as SOURCES
from privet.noise.sources import FixedSource as FixedSource
from privet.noise.sources import Keystream as Keystream
from privet.noise.sources import SecureSource as SecureSource
from privet.noise.sources import Source as Source
from privet.noise.token import Token as Token

__all__ = ["Banded", "BufferedToeplitz", "Gaussian", "Tree"]
