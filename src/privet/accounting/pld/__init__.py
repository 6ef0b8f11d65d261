"""Privacy loss distributions: tight ε and δ of composed events by Fourier transforms."""

from privet.accounting.pld.accountant import DIRECTION, delta, deltas, epsilon, grid_width

__all__ = ["DIRECTION", "delta", "deltas", "epsilon", "grid_width"]
