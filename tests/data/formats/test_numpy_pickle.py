import collections
import functools
import io
import os
import pickle

import numpy as np
import pytest

from privet.data.formats import numpy_pickle


class Malicious:
    def __init__(self, function, *arguments):
        self.parts = (function, arguments)

    def __reduce__(self):
        return self.parts


@pytest.mark.parametrize("protocol", [3, 4])
def test_arrays_in_tuples_are_read(protocol):
    arrays = (np.arange(6, dtype=np.float32).reshape(2, 3), np.array([1, 2], dtype=np.int64))
    floats, integers = numpy_pickle.load(io.BytesIO(pickle.dumps(arrays, protocol=protocol)))
    assert np.array_equal(floats, arrays[0])
    assert np.array_equal(integers, arrays[1])


def test_strings_of_python_2_are_read_byte_for_byte():
    assert numpy_pickle.load(io.BytesIO(b"\x80\x02U\x02\x00\xff.")) == "\x00\xff"


def test_the_names_of_numpy_1_are_read_too():
    pickled = pickle.dumps(np.arange(3), protocol=3).replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    assert numpy_pickle.load(io.BytesIO(pickled)).tolist() == [0, 1, 2]


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
        numpy_pickle.load(io.BytesIO(pickle.dumps((np.zeros(2), attack), protocol=4)))


def test_a_malicious_pickle_does_nothing_before_it_is_refused(tmp_path):
    marker = tmp_path / "marker"
    with pytest.raises(pickle.UnpicklingError):
        numpy_pickle.load(io.BytesIO(pickle.dumps(Malicious(os.mkdir, str(marker)))))
    assert not marker.exists()
