import mmap
import sys

import numpy as np
import pytest

from privet.cost import memory, peak_elsewhere, peak_is_measurable, peak_of
from privet.errors import PrivetError

MEGABYTE = 2**20
measurable = pytest.mark.skipif(not peak_is_measurable(), reason="this system does not report peak memory")


@measurable
def test_it_counts_memory_held_at_the_same_time():
    def touched():
        """Fresh pages of the system, whatever this process has freed before."""
        pages = np.frombuffer(mmap.mmap(-1, 40 * MEGABYTE), dtype=np.uint8)
        pages.fill(1)
        return pages

    assert peak_of(lambda: [touched() for _ in range(2)] and None, steps=2) == pytest.approx(2 * 40, rel=0.1)


def test_the_last_number_of_a_process_that_returns_freed_memory_at_once_is_its_answer():
    program = "import os; print('warming up', os.environ['MALLOC_TRIM_THRESHOLD_'], os.environ['MALLOC_MMAP_THRESHOLD_'])"
    assert peak_elsewhere([sys.executable, "-c", program]) == 65536


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
