"""Peak memory is the most that a step holds at once, above the memory in use before."""

import sys

import numpy as np
import pytest

from privet.cost import memory, peak_elsewhere, peak_is_measurable, peak_of
from privet.errors import PrivetError

MEGABYTE = 2**20
measurable = pytest.mark.skipif(not peak_is_measurable(), reason="this system does not report peak memory")
PROGRAM = """
import numpy
from privet.cost import peak_of
print("warming up")
print(peak_of(lambda: [numpy.ones(40 * 2**20, dtype=numpy.uint8) for _ in range(2)] and None, steps=2))
"""


@measurable
def test_it_counts_memory_held_at_the_same_time():
    assert peak_elsewhere([sys.executable, "-c", PROGRAM]) == pytest.approx(2 * 40, rel=0.1)


@measurable
def test_memory_in_use_before_does_not_count():
    held = np.ones(200 * MEGABYTE, dtype=np.uint8)
    assert peak_of(lambda: None) < 20
    assert held.all()


def test_an_unsupported_system_raises_an_error(monkeypatch, tmp_path):
    (tmp_path / "status").write_text("VmRSS: 3 kB\n", encoding="utf-8")
    for status in (tmp_path / "nowhere", tmp_path / "status"):
        monkeypatch.setattr(memory, "_STATUS", status)
        with pytest.raises(PrivetError, match="only on Linux, and not in every container"):
            peak_of(lambda: None)


def test_a_process_that_fails_is_quoted():
    with pytest.raises(PrivetError, match="peak memory could not be measured: ValueError: no memory of that"):
        peak_elsewhere([sys.executable, "-c", "raise ValueError('no memory of that')"])
