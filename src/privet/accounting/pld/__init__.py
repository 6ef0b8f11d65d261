"""Privacy loss distributions: tight ε and δ of composed events, by the fast Fourier transform."""

from privet.accounting.pld.accountant import DIRECTION, delta, deltas, epsilon, grid_width

__all__ = ["DIRECTION", "delta", "deltas", "epsilon", "grid_width"]
