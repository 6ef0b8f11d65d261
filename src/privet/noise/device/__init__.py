"""Secure noise where the sum is: one pass over a tensor on a CUDA device draws, rounds, adds and scales.

Imported only for sums on a CUDA device. Triton comes with torch's CUDA builds; without it, noise is drawn on the host.
"""

from privet.noise.device.definition import NoisePart as NoisePart
from privet.noise.device.stream import CLAIM as CLAIM
from privet.noise.device.stream import own_stream as own_stream
from privet.noise.device.stream import serves as serves
