"""Several processes of one command: how it starts them, and how each finds the others."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import distributed

from privet.distributed.world import World, count_processes

_PATIENCE = 2.0  # seconds in which rank 0 prints its error, before the launcher learns of another rank's and stops all


def launch(processes: int, arguments: Sequence[str]) -> int:
    """Run `python -m privet` with these arguments in several processes of torch's launcher; return its exit status."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // processes)))
    logging.disable()  # rank 0 says what went wrong
    settings = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=processes, rdzv_backend="c10d", rdzv_endpoint="localhost:0",
        run_id=os.urandom(8).hex(), max_restarts=0,
    )  # fmt: skip
    try:
        elastic_launch(settings, sys.executable)("-m", "privet", *arguments)
    except ChildFailedError as failure:
        return abs(failure.get_first_failure()[1].exitcode) or 1
    except SignalException as stopped:
        return 128 + int(stopped.sigval)
    return 0


@contextmanager
def joined(device: str) -> Iterator[World]:
    """Return a context with the processes that torch's launcher started, or this one alone; only rank 0 prints in it."""
    if count_processes() == 1:
        yield World()
        return
    if device.startswith("cuda"):
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    if not distributed.is_initialized():
        distributed.init_process_group("nccl" if device.startswith("cuda") else "gloo")
    world = World.here()
    if not world.first:
        sys.stdout = sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - until the process ends
    try:
        yield world
    except BaseException:
        if not world.first:
            time.sleep(_PATIENCE)
        raise
