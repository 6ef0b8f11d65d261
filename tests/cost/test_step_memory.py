"""Peak memory is what a step takes at once, above what stood before."""

import sys

import numpy as np
import pytest

from privet.cost import peak_elsewhere, peak_of
from privet.errors import PrivetError

MEGABYTE = 2**20
linux = pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
PROGRAM = """
import numpy
from privet.cost import peak_of
print("warming up")
print(peak_of(lambda: [numpy.ones({megabytes} * 2**20, dtype=numpy.uint8) for _ in range({at_once})] and None, steps=2))
"""


@linux
@pytest.mark.parametrize(("megabytes", "at_once"), [(40, 2), (90, 1)])
def test_it_is_that_of_what_is_held_at_the_same_time(megabytes, at_once):
    program = PROGRAM.format(megabytes=megabytes, at_once=at_once)
    assert peak_elsewhere([sys.executable, "-c", program]) == pytest.approx(megabytes * at_once, abs=3)


@linux
def test_what_stood_before_does_not_count():
    held = np.ones(200 * MEGABYTE, dtype=np.uint8)
    assert peak_of(lambda: None) < 20
    assert held.all()


def test_a_process_that_fails_is_quoted():
    with pytest.raises(PrivetError, match="peak memory could not be measured: ValueError: no memory of that"):
        peak_elsewhere([sys.executable, "-c", "raise ValueError('no memory of that')"])
