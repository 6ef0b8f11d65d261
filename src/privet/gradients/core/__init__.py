"""Foundations of per-example gradients: isolated examples, dispatch to the physical batch, state, randomness, norms."""
