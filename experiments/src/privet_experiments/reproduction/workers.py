"""Execution of runs in this process or in several."""

from __future__ import annotations

__all__ = ["Run", "performing"]

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

import torch

from privet._utils import malloc
from privet_experiments.tasks.job import Advance, Job
from privet_experiments.tasks.kinds import perform
from privet_experiments.tasks.run_record import RunRecord

Run = Callable[[Job, Advance], RunRecord]


@contextmanager
def performing(jobs: int) -> Iterator[tuple[Run, Callable[..., Iterator[Any]]]]:
    """Yield a function that makes one run, and a map that makes `jobs` runs at a time; with one job, all in this process."""
    if jobs == 1:
        yield perform, map
        return
    threads = max(1, (os.cpu_count() or 1) // jobs)
    # Spawned, not forked: a fork would share threads' locks and torch's state.
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_begin, initargs=(threads,))

    def run(job: Job, advance: Advance) -> RunRecord:
        record = pool.submit(perform, job, _unheard).result()
        advance(job.steps)
        return record

    with pool, ThreadPoolExecutor(jobs) as waiting:
        yield run, waiting.map


def _begin(threads: int) -> None:
    """Prepare a worker process."""
    torch.set_num_threads(threads)
    malloc.keep_freed_memory()


def _unheard(steps: int) -> None:
    """Ignore steps: in another process, the bar advances when a run is finished."""
