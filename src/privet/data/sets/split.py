"""Train-test split of public data sets that are published without one."""

from __future__ import annotations

__all__ = ["public_split"]

import numpy as np
from numpy.typing import NDArray


def public_split(examples: int, test_examples: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the row numbers of the training and test splits, the same on every machine.

    The split depends only on the public number of rows, so it reveals nothing about the data.

    Args:
        examples: number of rows.
        test_examples: number of test rows, in [0, examples].
    """
    # The streams of RandomState are frozen; those of Generator may change between versions of NumPy.
    order = np.random.RandomState(0).permutation(examples)
    return order[test_examples:], order[:test_examples]
