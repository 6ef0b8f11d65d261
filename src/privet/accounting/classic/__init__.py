"""Closed forms: the Gaussian mechanism, Gaussian DP, composition theorems and the lower bound for shuffling."""
