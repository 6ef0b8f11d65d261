"""Fashion-MNIST: 70,000 images of clothing in the format of MNIST.

Source: Xiao, Rasul & Vollgraf 2017, "Fashion-MNIST: a novel image dataset for benchmarking machine learning
algorithms".
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from privet.data.download.packages import Place, debian_files
from privet.data.sets.image_set import Arrays, ImageSet, from_address, from_idx

_NAME = "fashion-mnist"
_PACKAGE = "dataset-fashion-mnist"
_INSTALLED = Path("usr/share/datasets/fashion-mnist")
_ADDRESS = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"


def _from_debian() -> Arrays:
    files = debian_files(_PACKAGE, _INSTALLED)
    return from_idx(lambda file: files[f"{file}.gz"])


FASHION_MNIST: ImageSet = ImageSet(
    name=_NAME,
    description="images of clothing, 28×28 grey",
    licence="MIT",
    obtained=f"Debian package {_PACKAGE} (apt-get download; no root), else its download address",
    examples=(60_000, 10_000),
    side=28,
    classes=10,
    white=255,
    # Widely published constants, not computed here: the mean of private data would be a release.
    mean=0.2860,
    std=0.3530,
    # MD5 sums of the uncompressed files: Debian recompresses them, so the .gz files differ between publishers.
    md5=(
        "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "9018921c3c673c538a1fc5bad174d6f9",
        "8181f5470baa50b63fa0f6fddb340f0a",
        "15d484375f8d13e6eb1aabb0c3f46965",
    ),
    # As the authors' description names them.
    class_names=(
        "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
    ),
    evidence="its four IDX files have the published MD5 sums",
    places=(
        Place(f"the folder /{_INSTALLED}", lambda: FASHION_MNIST.from_folder(Path("/") / _INSTALLED)),
        Place("Keras' data folder", lambda: FASHION_MNIST.from_folder(Path.home() / ".keras" / "datasets" / _NAME)),
        Place(f"the Debian package {_PACKAGE}", _from_debian),
        Place(_ADDRESS, partial(from_address, _ADDRESS)),
    ),
)  # fmt: skip
