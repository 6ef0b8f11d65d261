"""The networks of the papers that Privet reproduces, built for any input shape that fits them.

None has batch normalisation, which would let one example change the gradient of another.
"""

from privet.models.networks import NAMES, build

__all__ = ["NAMES", "build"]
