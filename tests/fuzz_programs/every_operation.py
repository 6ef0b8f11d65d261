"""The whole table: importing this module enters every operation."""

import operations_control
import operations_indexing
import operations_layers
import operations_numerics
import operations_parameters
import operations_recurrent
import operations_shapes
from operations import OPERATIONS

__all__ = [
    "OPERATIONS",
    "operations_control",
    "operations_indexing",
    "operations_layers",
    "operations_numerics",
    "operations_parameters",
    "operations_recurrent",
    "operations_shapes",
]
