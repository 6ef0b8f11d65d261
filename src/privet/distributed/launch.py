"""Several processes of one command: how it starts them, how each finds the others, and how they refuse together."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import torch
from torch import distributed

from privet._utils.tensors import check_device
from privet.distributed.world import World, WorldError, count_processes
from privet.errors import InvalidArgumentError, PrivetError

_LAUNCHER = "PRIVET_LAUNCHER"  # variable with the process that started this one
_PATIENCE = 2.0  # seconds in which rank 0 prints its error, before the launcher learns of another rank's and stops all


def launch(processes: int, arguments: Sequence[str], device: str) -> int:
    """Run `python -m privet` with these arguments in several processes of torch's launcher; return its exit status.

    Raises:
        InvalidArgumentError: the processes cannot have this device.
        WorldError: a process ended, and rank 0 could not say so.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    _check_devices(processes, device)
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // processes)))
    os.environ[_LAUNCHER] = str(os.getpid())
    logging.disable()  # rank 0 says what went wrong
    settings = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=processes, rdzv_backend="c10d", rdzv_endpoint="localhost:0",
        run_id=os.urandom(8).hex(), max_restarts=0,
    )  # fmt: skip
    # An interrupt waits for `joined` in processes, which inherit what this thread blocks. Here, another thread takes it.
    Thread(target=Event().wait, daemon=True).start()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        elastic_launch(settings, sys.executable)("-m", "privet", *arguments)
    except ChildFailedError as failure:
        rank, found = failure.get_first_failure()
        if rank == 0 and found.exitcode > 0:
            return int(found.exitcode)
        how = signal.Signals(-found.exitcode).name if found.exitcode < 0 else f"status {found.exitcode}"
        raise WorldError(f"rank {rank} ended with {how}; steps that were begun stay spent") from None
    except SignalException as stopped:
        return 128 + int(stopped.sigval)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return 0


def _check_devices(processes: int, device: str) -> None:
    """Refuse a device that torch cannot use, and GPUs of which not each process has its own."""
    check_device("--device", device)
    if device.startswith("cuda") and (device != "cuda" or torch.cuda.device_count() < processes):
        allowed = f"'cpu' with --processes {processes}, or 'cuda' with as many GPUs"
        raise InvalidArgumentError("--device", device, allowed, f"Torch finds {torch.cuda.device_count()}.")


@contextmanager
def joined(device: str) -> Iterator[World]:
    """Return a context with the processes that torch's launcher started, or this one alone; only rank 0 prints in it."""
    if count_processes() == 1:
        yield World()
        return
    first = int(os.environ["RANK"]) == 0
    if not first:
        sys.stdout = sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - until the process ends
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        if os.environ.get(_LAUNCHER, parent := str(os.getppid())) != parent:  # torch forgets what it starts while it is stopped
            raise KeyboardInterrupt
        if device.startswith("cuda"):
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        if not distributed.is_initialized():
            distributed.init_process_group("nccl" if device.startswith("cuda") else "gloo")
            atexit.register(distributed.destroy_process_group)  # its threads abort a process that ends while they run
        yield World.here()
    except BaseException:
        if not first:
            time.sleep(_PATIENCE)
        raise


@contextmanager
def refuse_together(world: World) -> Iterator[None]:
    """Return `world.together()` for what the processes of a command prepare; rank 0 prints why another one could not.

    Ranks tell each other the text of Privet's errors alone. Here, any error of another rank is one: nobody sees its own.
    """
    with world.together():
        try:
            yield
        except Exception as error:
            if world.first or isinstance(error, PrivetError):
                raise
            raise PrivetError(f"{type(error).__name__}: {error}") from error
