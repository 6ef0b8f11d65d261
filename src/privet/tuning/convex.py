"""Default regularisation of convex training, from public facts: see docs/results/convex.md."""

from __future__ import annotations

__all__ = ["choose_regularisation"]

from privet.errors import choice, positive

# Λ·ε, measured on tables of 1,279 to 464,810 rows.
_STRENGTHS = {"objective": 4.0, "output": 64.0}


def choose_regularisation(mechanism: str, epsilon: float | None) -> float:
    """Return Λ for the sum of the losses of rows of norm at most 1; ε = None counts as 1. Only the target is used, no data.

    Noise on the objective moves the weights by about σ·L/(H + Λ) in a direction of curvature H, and σ grows as 1/ε; noise on the
    minimiser is σ·L/Λ in all directions, which calls for more.
    """
    return _STRENGTHS[choice("mechanism", mechanism, _STRENGTHS)] / positive("epsilon", 1.0 if epsilon is None else epsilon)
