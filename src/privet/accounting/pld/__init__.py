"""Privacy loss distributions: tight ε and δ of composed events by Fourier transforms."""

from privet.accounting.pld.accountant import delta, deltas, epsilon, grid_width

__all__ = ["delta", "deltas", "epsilon", "grid_width"]
