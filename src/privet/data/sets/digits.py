"""Digits: 1,797 handwritten digits of 8×8 pixels, included in scikit-learn.

Source: Alpaydin & Kaynak 1998, "Optical recognition of handwritten digits", the test part of the UCI data set.
"""

from __future__ import annotations

import numpy as np

from privet.data.dataset import public_split
from privet.data.download.packages import Place
from privet.data.sets.image_set import Arrays, ImageSet

_TRAIN, _TEST = 1437, 360


def _from_scikit_learn() -> Arrays:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise RuntimeError("it is not installed; run: pip install 'privet[data]'") from None
    digits = load_digits()
    pixels, labels = digits.images.astype(np.uint8), digits.target.astype(np.uint8)
    train, test = public_split(_TRAIN + _TEST, _TEST)
    return Arrays(pixels[train], labels[train], pixels[test], labels[test])


DIGITS = ImageSet(
    name="digits",
    description="handwritten digits, 8×8 grey",
    licence="CC BY 4.0",
    obtained="scikit-learn, which includes it: pip install 'privet[data]'",
    examples=(_TRAIN, _TEST),
    side=8,
    classes=10,
    # Pixels count the ink in 4×4 cells, 0 to 16. No other scaling is applied.
    white=16,
    mean=0.0,
    std=1.0,
    # MD5 sums of the two splits as IDX files. They are not published; they pin the data and the split between versions.
    md5=(
        "b6914fe641c4a524b91dee84c44aab7d",
        "4759a176af6e200d507a5acf55a91e89",
        "6e7c2d2c013a668ac4e87d088af7d9a3",
        "84d705bc98470357af1276db3874a876",
    ),
    evidence="both splits have the pinned MD5 sums",
    places=(Place("scikit-learn", _from_scikit_learn),),
)
