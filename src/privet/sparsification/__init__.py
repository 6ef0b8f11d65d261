"""Sparsification: public masks that select the coordinates of a step's release, and rows of embedding tables."""

from privet.sparsification.embeddings import FEST, AdaFEST
from privet.sparsification.kinds import Random, Ranked, Sparsification

__all__ = ["FEST", "AdaFEST", "Random", "Ranked", "Sparsification"]
