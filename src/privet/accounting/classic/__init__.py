"""Closed forms: the Gaussian mechanism, Gaussian DP, and composition theorems."""
