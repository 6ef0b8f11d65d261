"""Rényi differential privacy: divergence curves, which add up under composition, and their conversion to ε."""

from privet.accounting.rdp.accountant import (
    LARGEST_MOMENT,
    ORDERS,
    covers,
    curve,
    divergences,
    epsilon,
    moments_epsilon,
    to_epsilon,
)

__all__ = ["LARGEST_MOMENT", "ORDERS", "covers", "curve", "divergences", "epsilon", "moments_epsilon", "to_epsilon"]
