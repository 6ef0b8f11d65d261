"""Networks from the papers that Privet reproduces, for any suitable input shape.

None has batch normalisation, through which an example would change the gradients of others.
"""

from privet.models.networks import NAMES, build
from privet.models.norm_replacement import replace_batch_norm

__all__ = ["NAMES", "build", "replace_batch_norm"]
