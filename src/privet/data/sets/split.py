"""The division of public data sets that were published in one part."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def public_split(examples: int, test_examples: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the row numbers of the training and of the test part, the same on every machine.

    Only positions and the public number of rows decide, so that the division tells nothing about the data.

    Args:
        examples: how many rows there are.
        test_examples: how many of them go to the test part, in [0, examples].
    """
    # RandomState, because NumPy froze its streams for good; those of Generator may change between versions.
    order = np.random.RandomState(0).permutation(examples)
    return order[test_examples:], order[:test_examples]
