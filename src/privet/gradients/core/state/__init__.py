"""Isolation of state: what a model and a loss can reach is restored after each pass."""
