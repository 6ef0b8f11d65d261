"""What all tests share: one thread each, interrupts, and how a statistical test fails."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping

import pytest
import torch

ALPHA = 1e-6


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """Keep to one thread: on many small models, threads only get in each other's way."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True, scope="session")
def interruptible() -> Iterator[None]:
    """Take interrupts, here and in children: what a shell starts in the background ignores them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def holds_twice() -> Callable[[Callable[[], Mapping[str, float]]], None]:
    """Run an experiment that returns p-values by name; what is rejected is tried again with fresh randomness before it fails."""

    def check(experiment: Callable[[], Mapping[str, float]]) -> None:
        rejected = {name: p for name, p in experiment().items() if not p >= ALPHA}
        if rejected:
            again = experiment()
            assert not [name for name in rejected if not again[name] >= ALPHA], (rejected, again)

    return check
