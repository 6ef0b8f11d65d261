"""Per-example gradients: their norms and clipped sums, in most cases without materialising them."""

from privet.gradients.core.handlers import register_handler
from privet.gradients.engine import METHODS, clipped_sum, empty_sum, per_example_gradients, per_example_norms
from privet.gradients.parameters import trainable
from privet.gradients.projection.estimates import estimated_norms

__all__ = [
    "METHODS", "clipped_sum", "empty_sum", "estimated_norms", "per_example_gradients", "per_example_norms", "register_handler",
    "trainable",
]  # fmt: skip
