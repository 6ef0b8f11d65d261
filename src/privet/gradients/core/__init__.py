"""What per-example gradients rest on: examples that are kept apart, the dispatch to a physical batch, state, randomness,
norms.
"""
