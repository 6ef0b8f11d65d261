"""Runs a function in several processes of one group."""

import multiprocessing
import os
import traceback
from datetime import timedelta

import torch

from privet.distributed import World

SECONDS = 60.0


def run_ranks(size, function, folder, *arguments, timeout=SECONDS, expected=None):
    """Return rank → exit code of processes that call `function(world, folder, *arguments)` and end; stop those that hang.

    By default they must all end well. What a rank raises is printed by its process.
    """
    # The server imports torch once for all tests of a process; its children are forks of a process without threads.
    start = multiprocessing.get_context("forkserver" if hasattr(os, "fork") else "spawn")
    start.set_forkserver_preload(["privet.training", "privet.units", "torch.distributed.tensor"])
    address = f"file://{folder}/group-{os.urandom(4).hex()}"
    processes = [
        start.Process(target=_run, args=(rank, size, address, function, folder, arguments, timeout)) for rank in range(size)
    ]
    for each in processes:
        each.start()
    for each in processes:
        each.join(4 * SECONDS)
    left = [rank for rank, each in enumerate(processes) if each.exitcode is None]
    for rank in left:
        processes[rank].kill()
        processes[rank].join()
    assert not left, f"ranks {left} hang"
    codes = [each.exitcode for each in processes]
    assert expected is not None or not any(codes), codes
    return codes


def _run(rank, size, address, function, folder, arguments, timeout):
    torch.set_num_threads(1)
    try:
        if size > 1:
            torch.distributed.init_process_group(
                "gloo", init_method=address, rank=rank, world_size=size, timeout=timedelta(seconds=SECONDS)
            )
        function(World.here(timeout), folder, *arguments)
        if size > 1:
            torch.distributed.barrier()
            torch.distributed.destroy_process_group()
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def announce(world):
    """Set what torchrun sets for a process of this group, as hosts look for it."""
    if world.size > 1:
        os.environ |= dict.fromkeys(("RANK", "LOCAL_RANK"), str(world.rank))
        os.environ |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(world.size))
        os.environ |= {"GROUP_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "test"}
