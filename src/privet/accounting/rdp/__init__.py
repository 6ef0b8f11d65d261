"""Rényi differential privacy: curves over the orders, which add up, and their conversion to ε."""

from privet.accounting.rdp.accountant import DIRECTION, ORDERS, converted, covers, curve, divergences, epsilon

__all__ = ["DIRECTION", "ORDERS", "converted", "covers", "curve", "divergences", "epsilon"]
