"""Layers, one module each: rule, kind of per-example gradient, and axes. Importing the package registers all rules."""

from privet.gradients.layers import attention, experts, indexing, linear, losses, matmul, normalisation, random, recurrent
from privet.gradients.layers.convolution import handlers
from privet.gradients.layers.embedding import embedding

__all__ = [
    "attention", "embedding", "experts", "handlers", "indexing", "linear", "losses", "matmul",
    "normalisation", "random", "recurrent",
]  # fmt: skip
