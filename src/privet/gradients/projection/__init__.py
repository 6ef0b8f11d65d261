"""Norms estimated from random projections."""
