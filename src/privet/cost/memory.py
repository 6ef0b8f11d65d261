"""Peak memory of a step."""

from __future__ import annotations

import importlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import torch

from privet.cost.steps import TimedStep
from privet.errors import PrivetError

# Environment of a process that hands freed memory straight back, so that its size is what it uses.
_UNCACHED = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}
_STEPS = 3
_STATUS, _FORGET = Path("/proc/self/status"), Path("/proc/self/clear_refs")  # proc(5)


def peak_of(step: TimedStep, steps: int = _STEPS, device: torch.device | None = None) -> float:
    """Return the peak memory of some steps above what stood before, in MB.

    On a CPU that of this process, which is to be a fresh one as `peak_elsewhere` starts it.

    Args:
        step: what is taken.
        steps: how often, ≥ 1.
        device: whose memory is meant; None for the CPU's.

    Raises:
        PrivetError: the system does not tell the memory of a process, as everywhere but on Linux.
    """
    # Slow to import, and imported by optimizers when they are first used: code, and not a step's memory.
    importlib.import_module("torch._dynamo")
    if device is not None and device.type == "cuda":
        return _peak_of_allocations(step, steps, device)
    if not peak_is_measurable():
        raise PrivetError("peak memory is read from /proc, which only Linux has, and not every container")

    def read(field: str) -> int:
        line = next(line for line in _STATUS.read_bytes().splitlines() if line.startswith(field.encode()))
        return int(line.split()[1])

    _FORGET.write_bytes(b"5")
    before = read("VmRSS")
    for _ in range(steps):
        step()
    return (read("VmHWM") - before) / 1024


def peak_is_measurable() -> bool:
    """Return whether this system tells a process of its peak memory, and can be made to forget it."""
    try:
        return b"VmHWM" in _STATUS.read_bytes() and _FORGET.write_bytes(b"5") == 1
    except OSError:
        return False


def peak_elsewhere(command: Sequence[str]) -> float:
    """Return what a command prints last, a `peak_of`, from a fresh process that hands freed memory straight back.

    Args:
        command: program and arguments.

    Raises:
        PrivetError: it fails; its own last words are quoted.
    """
    ended = subprocess.run(command, capture_output=True, text=True, env=os.environ | _UNCACHED, check=False)
    if ended.returncode:
        last = (ended.stderr.strip() or "no message").splitlines()[-1]
        raise PrivetError(f"peak memory could not be measured: {last}")
    return float(ended.stdout.split()[-1])


def _peak_of_allocations(step: TimedStep, steps: int, device: torch.device) -> float:
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    for _ in range(steps):
        step()
    return (torch.cuda.max_memory_allocated(device) - before) / 2**20
