"""Sparsification: public masks that select the coordinates of a step's release."""

from privet.sparsification.kinds import Random, Ranked, Sparsification

__all__ = ["Random", "Ranked", "Sparsification"]
