"""Per-example gradients: their norms and clipped sums, in most cases without materialising them."""

from privet.gradients.core.handlers import register_handler
from privet.gradients.engine import clipped_sum, per_example_gradients, per_example_norms
from privet.gradients.engine import empty_sum as empty_sum
from privet.gradients.methods.passes import METHODS as METHODS
from privet.gradients.parameters import trainable as trainable

__all__ = [ "clipped_sum", "per_example_gradients", "per_example_norms", "register_handler",
]  # fmt: skip
