"""Gradient norms estimated from random projections."""
