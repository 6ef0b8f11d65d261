"""Peak memory of a training step."""

from __future__ import annotations

import importlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import torch

from privet.cost.steps import TimedStep
from privet.errors import PrivetError

# Environment of a process that returns freed memory at once, so that its resident size is what it uses.
_UNCACHED = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}
_STEPS = 3
_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")  # see proc(5)


def peak_of(step: TimedStep, steps: int = _STEPS, device: torch.device | None = None) -> float:
    """Return the peak memory of some steps above the memory in use before, in MB; on the CPU, or on a device if given.

    On a CPU, this is the memory of this process, which should be a fresh one such as `peak_elsewhere` starts. Only Linux
    reports it; elsewhere this raises a PrivetError.
    """
    # Optimizers import this large module at first use; its memory does not belong to a step.
    importlib.import_module("torch._dynamo")
    if device is not None and device.type == "cuda":
        return _peak_of_allocations(step, steps, device)
    if not peak_is_measurable():
        raise PrivetError("peak memory is read from /proc, which exists only on Linux, and not in every container")

    def read(field: str) -> int:
        line = next(line for line in _STATUS.read_bytes().splitlines() if line.startswith(field.encode()))
        return int(line.split()[1])

    _RESET.write_bytes(b"5")
    before = read("VmRSS")
    for _ in range(steps):
        step()
    return (read("VmHWM") - before) / 1024


def peak_is_measurable() -> bool:
    """Return whether this system reports the peak memory of a process and can reset it."""
    try:
        return b"VmHWM" in _STATUS.read_bytes() and _RESET.write_bytes(b"5") == 1
    except OSError:
        return False


def peak_elsewhere(command: Sequence[str]) -> float:
    """Run a command in a fresh process that returns freed memory at once; return the last number that it prints."""
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
