import gzip

import numpy as np
import tiny

from privet.data.sets import fashion_mnist
from privet.data.sets.image_set import IDX_FILES, encode_idx

PLACES = {place.description: place.get for place in fashion_mnist.FASHION_MNIST.places}


def test_the_debian_package_is_read_by_file_name(monkeypatch):
    files = {f"{name}.gz": gzip.compress(encode_idx(a)) for name, a in zip(IDX_FILES, tiny.ARRAYS, strict=True)}
    monkeypatch.setattr(fashion_mnist, "debian_files", lambda package, under: files)
    for found, expected in zip(PLACES["the Debian package dataset-fashion-mnist"](), tiny.ARRAYS, strict=True):
        assert np.array_equal(found, expected)


def test_local_folders_are_tried_before_packages_and_packages_before_the_web():
    assert [description.split()[0] for description in PLACES] == ["the", "Keras'", "the", fashion_mnist._ADDRESS]
