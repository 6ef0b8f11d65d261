"""Closed forms: the Gaussian mechanism, Gaussian DP, composition theorems and the bound of shuffling."""
