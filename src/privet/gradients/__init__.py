"""Per-example gradients: what they are, each layer's, and ways to compute them without forming them."""

from privet.gradients.core.handlers import register_handler
from privet.gradients.core.parameters import trainable
from privet.gradients.engine import METHODS, clipped_sum, empty_sum, per_example_gradients, per_example_norms
from privet.gradients.projection.estimates import estimated_norms

__all__ = [
    "METHODS", "clipped_sum", "empty_sum", "estimated_norms", "per_example_gradients", "per_example_norms", "register_handler",
    "trainable",
]  # fmt: skip
