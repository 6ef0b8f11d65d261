"""Per-example gradients: norms first, gradients never."""

from privet.gradients.engine import METHODS, clipped_sum, per_example_gradients, per_example_norms, trainable

__all__ = ["METHODS", "clipped_sum", "per_example_gradients", "per_example_norms", "trainable"]
