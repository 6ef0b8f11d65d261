import gc
import subprocess
import sys
import threading
import time

import pytest
import torch
from scipy import stats

from privet.clipping.clipped_sum import ClippedSum
from privet.noise import SecureSource, Token, release, sources
from privet.noise.prefetch import Prefetcher
from privet.noise.sources import BLOCK

SIZE = 5 * BLOCK - 3


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    monkeypatch.setattr(sources, "_cores", lambda: 2)


def threads():
    gc.collect()
    return [thread for thread in threading.enumerate() if thread.name == "privet-noise"]


def wait_until(true):
    deadline = time.monotonic() + 300  # for a thread of a busy machine
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def full(source):
    """Wait until the source has drawn all that it may for releases of SIZE, and return how many blocks that is."""
    wait_until(lambda: source._prefetcher.full.qsize() >= 3)
    time.sleep(0.02)  # for a block too many
    return source._prefetcher.full.qsize()


@pytest.fixture
def source():
    source = SecureSource()
    source.draw_ahead(SIZE)
    return source


def test_the_stock_is_half_a_release_and_no_more(source):
    for _ in range(3):
        assert full(source) == 3
        release(ClippedSum({"w": torch.zeros(SIZE)}, 0.7, torch.zeros(0)), Token(1, 2.3), source)


def test_what_is_drawn_ahead_is_standard_normal_and_used_once(source, holds_twice):
    def experiment():
        drawn = []
        for size in (SIZE, 10, SIZE, 2 * SIZE):
            full(source)
            drawn.append(source.normal(size))
        x = torch.cat(drawn)
        assert len(x.unique()) >= len(x) - 1  # two of a million 52-bit numbers may be the same by chance
        square = stats.chi2.sf((x**2).sum(), len(x))
        return {"distribution": stats.kstest(x[:200_000], "norm").pvalue, "square": 2 * min(square, 1 - square)}

    holds_twice(experiment)


def test_every_block_is_redrawn_before_it_is_reused():
    drawn = iter(range(10**6))
    ahead = Prefetcher.start(lambda block: block.fill_(next(drawn)), [torch.empty(2) for _ in range(3)])
    taken = []
    while len(taken) < 50:
        block = ahead.take()
        if block is not None:
            taken.append(block[0].item())
            ahead.give_back(block)
    assert taken == list(range(50))


def test_a_release_that_breaks_off_gives_its_block_back(source):
    full(source)
    pieces = source.normals(SIZE)
    first = next(pieces).clone()
    pieces.close()
    assert full(source) == 3
    assert not torch.isin(first, source.normal(SIZE)).any()


def test_threads_that_share_a_source_never_get_the_same_numbers(source):
    found = []
    workers = [threading.Thread(target=lambda: found.append(source.normal(2 * BLOCK + 1))) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    drawn = torch.cat(found)
    assert len(drawn.unique()) >= len(drawn) - 1


def test_errors_in_the_thread_are_raised_where_noise_is_drawn(monkeypatch):
    source, real = SecureSource(), sources._draw

    def fails_elsewhere(stream, block):
        if threading.current_thread() is not threading.main_thread():
            raise MemoryError("no room in the thread")
        real(stream, block)

    monkeypatch.setattr(sources, "_draw", fails_elsewhere)
    source.draw_ahead(SIZE)
    wait_until(lambda: not source._prefetcher.full.empty())
    with pytest.raises(MemoryError, match="no room in the thread"):
        source.normal(SIZE)
    assert len(source.normal(SIZE)) == SIZE  # from now on by itself


def test_a_dropped_source_ends_its_thread():
    source = SecureSource()
    source.draw_ahead(SIZE)
    source.normal(SIZE)
    assert len(threads()) == 1
    del source
    assert threads() == []


def test_prefetching_restarts_and_ends_on_request(source, monkeypatch):
    source.draw_ahead(2 * SIZE)
    assert len(threads()) == 1
    source.draw_ahead(0)
    assert threads() == []
    source.draw_ahead(49_999)  # too small to be worth a thread
    monkeypatch.setattr(sources, "_cores", lambda: 1)
    source.draw_ahead(10**6)
    assert threads() == []
    assert len(source.normal(SIZE)) == SIZE


# Its children raise, or draw from what they inherited and from threads of their own; loaders fork while it draws.
PROGRAM = """
import os, sys, time, torch
from torch.utils.data import DataLoader, TensorDataset
from privet.noise import SecureSource, sources
sources._cores = lambda: 2
torch.set_num_threads(1)  # in a fork of a process that has used several, OpenMP waits for ever
if os.fork() == 0:
    os.environ["PRIVET_KERNELS"] = "0"
    source = SecureSource()
    source.draw_ahead(1_000_000)
    raise ValueError
assert os.waitstatus_to_exitcode(os.wait()[1]) == 1
source = SecureSource()
source.draw_ahead(1_000_000)
time.sleep(0.1)
def draw():
    return torch.cat([source.normal(70_000)[:200] for _ in range(3)])
read, write = os.pipe()
for _ in range(2):
    if os.fork() == 0:
        inherited = draw()
        source.draw_ahead(200_000)  # a child may have a thread of its own
        os.write(write, torch.cat([inherited, draw()]).numpy().tobytes())
        sys.exit(0)
    assert os.wait()[1] == 0
children = torch.frombuffer(bytearray(os.read(read, 30_000)), dtype=torch.float64)
drawn = torch.cat([children, *(source.normal(70_000) for _ in range(8))])
assert len(children) == 2400 and len(drawn.unique()) >= len(drawn) - 1
data = DataLoader(TensorDataset(torch.randn(64, 3)), batch_size=8, num_workers=2)
for _ in data:
    source.normal(200_000)
sys.exit(3)
"""


def test_a_process_that_forks_or_raises_while_drawing_ends_cleanly():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 3, done.stderr
