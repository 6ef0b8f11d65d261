"""Rényi differential privacy: divergence curves, which add up under composition, and their conversion to ε."""

from privet.accounting.rdp.accountant import DIRECTION, ORDERS, covers, curve, divergences, epsilon, to_epsilon

__all__ = ["DIRECTION", "ORDERS", "covers", "curve", "divergences", "epsilon", "to_epsilon"]
