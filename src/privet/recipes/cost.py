"""What a private step costs over a plain one: time and peak memory, of clipping alone.

Noise is left out, as it is the same whatever the norms come from.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch  # with the part of it that optimizers import when first used: code, and not a step's memory
import torch._dynamo

from privet import models
from privet.errors import PrivetError
from privet.gradients import clipped_sum
from privet.plan import Plan
from privet.setups import cross_entropy

if TYPE_CHECKING:
    from privet.data import DataSet
    from privet.recipes.job import Job

Step = Callable[[], object]
_ROUNDS, _STEPS_FOR_MEMORY = 15, 3
_RATE = 0.01


def paired_ratio(step: Step, plain: Step, rounds: int = _ROUNDS) -> float:
    """Return the median, over rounds in which the two alternate, of how much more processor time one step takes than the other.

    Time of the processor and not of the clock, as others may share the machine.

    Args:
        step: what is measured; called once before, to warm up.
        plain: what it is compared to; likewise.
        rounds: how many, ≥ 1.
    """
    step()
    plain()
    return statistics.median(_seconds(step) / _seconds(plain) for _ in range(rounds))


def peak_of(step: Step, steps: int = _STEPS_FOR_MEMORY) -> float:
    """Return the peak memory of some steps above what stood before, in MB, in this process (Linux only)."""
    status = Path("/proc/self/status")

    def read(field: str) -> int:
        line = next(line for line in status.read_text().splitlines() if line.startswith(field))
        return int(line.split()[1])

    Path("/proc/self/clear_refs").write_text("5")
    before = read("VmRSS")
    for _ in range(steps):
        step()
    return (read("VmHWM") - before) / 1024


def time_ratio(job: Job, plan: Plan, data: DataSet, method: str) -> float:
    """Return how many plain steps one step with the plan's clipping takes, for a batch of the expected size."""
    described = _described(job, plan, data, method)
    return paired_ratio(_step(described, private=True), _step(described, private=False))


def memory_ratio(job: Job, plan: Plan, data: DataSet, method: str) -> float:
    """Return the peak memory of a step with the plan's clipping over that of a plain step, each in a fresh process.

    Raises:
        PrivetError: a process fails, as everywhere but on Linux.
    """
    described = _described(job, plan, data, method)
    return _peak_elsewhere(described, private=True) / _peak_elsewhere(described, private=False)


def _described(job: Job, plan: Plan, data: DataSet, method: str) -> dict[str, Any]:
    return {
        "model": job.settings.model, "options": dict(job.settings.model_options), "shape": data.input_shape,
        "classes": data.classes, "plan": plan.to_dict(), "method": method,
    }  # fmt: skip


def _step(described: dict[str, Any], *, private: bool) -> Step:
    """Return a step on made-up examples, clipped or plain."""
    plan, shape, classes = Plan.from_dict(described["plan"]), tuple(described["shape"]), described["classes"]
    examples = max(1, round(plan.examples * plan.sampling_rate))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = models.build(described["model"], shape, classes, **described["options"])
        batch = torch.randn(examples, *shape), torch.randint(0, classes, (examples,))
    optimizer = torch.optim.SGD(model.parameters(), lr=_RATE)

    def plain() -> None:
        optimizer.zero_grad()
        cross_entropy(model, batch).mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    def clipped() -> None:
        optimizer.zero_grad()
        found = clipped_sum(model, cross_entropy, batch, plan.clipping, method=described["method"])
        for name, parameter in model.named_parameters():
            parameter.grad = found.tensors[name].div_(examples)
        optimizer.step()

    return clipped if private else plain


def _seconds(step: Step) -> float:
    start = time.process_time()
    step()
    return time.process_time() - start


def _peak_elsewhere(described: dict[str, Any], *, private: bool) -> float:
    """Return `peak_of` a step from a fresh process that hands freed memory straight back."""
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}
    command = [sys.executable, "-m", __name__, json.dumps({"described": described, "private": private})]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise PrivetError(f"peak memory cannot be measured here, which takes Linux: {last}")
    return float(done.stdout.split()[-1])


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    print(peak_of(_step(asked["described"], private=asked["private"])))
