"""Divisions into training and test part."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

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


def split_by_user(users: Sequence[str], share: float) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the row numbers of the training and of the test part, each user being in one of them as a whole.

    A hash of the user's own id decides, so that nobody's part depends on who else is there; the test part is about that large.

    Args:
        users: whose each row is.
        share: of the users that goes to the test part, in [0, 1).
    """
    tested = {user for user in set(users) if _hash(user) < share}
    test = np.array([user in tested for user in users], dtype=np.bool_)
    return np.flatnonzero(~test), np.flatnonzero(test)


def _hash(text: str) -> float:
    """Return a number in [0, 1) that is the same on every machine."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6]) / 2**48
