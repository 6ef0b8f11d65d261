"""Kinds of tasks: training for labels or targets, training on many users' data, and gradient flow."""

from __future__ import annotations

__all__ = ["TASKS", "TaskKind", "machine", "perform"]

import importlib.metadata
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from privet_experiments.tasks.arm_config import ArmConfig
from privet_experiments.tasks.federated.clients import size
from privet_experiments.tasks.federated.training import train_users
from privet_experiments.tasks.federated.user_config import UserConfig
from privet_experiments.tasks.gradient_flow import FlowConfig, flow
from privet_experiments.tasks.job import Advance, Job, TaskExamples, TaskResult, read
from privet_experiments.tasks.run_record import RunRecord
from privet_experiments.tasks.train_task import CLASSIFICATION, REGRESSION


@dataclass(frozen=True)
class TaskKind:
    """A kind of task.

    Args:
        settings: type of an arm's settings, a frozen dataclass that implements `TaskConfig`.
        perform: executes a run.
        trains: whether it trains on a data set with a plan.
        size: returns the number of training examples, or of users.
    """

    settings: type[Any]
    perform: Callable[[Job, Advance], TaskResult]
    trains: bool = True
    size: Callable[[TaskExamples], int] = lambda examples: len(read(examples).train)


TASKS = {
    "classification": TaskKind(ArmConfig, CLASSIFICATION),
    "regression": TaskKind(ArmConfig, REGRESSION),
    "federated": TaskKind(UserConfig, train_users, size=size),
    "gradient flow": TaskKind(FlowConfig, flow, trains=False),
}


def perform(job: Job, advance: Advance) -> RunRecord:
    """Execute a run and return its record; `advance` is called with the number of steps since its last call."""
    started = time.monotonic()
    found = TASKS[job.task].perform(job, advance)
    return RunRecord(
        recipe=job.recipe,
        arm=job.arm,
        settings=job.settings.described(),
        rate=job.rate,
        seed=job.seed,
        examples=job.size,
        seconds=round(time.monotonic() - started, 2),
        machine=machine(),
        versions={"privet": importlib.metadata.version("privet"), "torch": torch.__version__},
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
        **vars(found),
    )


def machine() -> str:
    """Return the processor's name and the number of cores."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} cores"
