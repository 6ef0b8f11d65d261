"""Correlated noise: mechanisms in which later steps take back part of the noise of earlier ones."""

from privet.noise.correlated.correlated import Correlated
from privet.noise.correlated.toeplitz import Banded, BufferedToeplitz
from privet.noise.correlated.tree import Tree

__all__ = ["Banded", "BufferedToeplitz", "Correlated", "Tree"]
