"""Cost of a clipped step relative to a plain one: time and peak memory.

Noise is excluded, because its cost does not depend on how norms are computed.
"""

from __future__ import annotations

__all__ = ["memory_ratio", "time_ratio"]

import json
import sys
import time
from typing import TYPE_CHECKING, Any

import torch

from privet import models
from privet.cost import TimedStep, alternating, paired_ratio, peak_elsewhere, peak_of
from privet.gradients import clipped_sum
from privet.plan import Plan
from privet.runs.tasks import cross_entropy

if TYPE_CHECKING:
    from privet.data import DataSet
    from privet_experiments.tasks.job import Job

_ROUNDS = 15
_RATE = 0.01


def time_ratio(job: Job, plan: Plan, data: DataSet, method: str) -> float:
    """Return the time of a step with the plan's clipping, in plain steps, for a batch of the expected size."""
    described = _described(job, plan, data, method)
    steps = {kind: _step(described, private=kind == "clipped") for kind in ("clipped", "plain")}
    # CPU time, because other runs may share the machine.
    times = alternating(steps, _ROUNDS, time.process_time)
    return paired_ratio(times["clipped"], times["plain"])


def memory_ratio(job: Job, plan: Plan, data: DataSet, method: str) -> float:
    """Return the peak memory of a step with the plan's clipping relative to a plain step, each in a fresh process.

    Raises:
        PrivetError: a process fails, as on every system except Linux.
    """
    described = _described(job, plan, data, method)
    return _peak_elsewhere(described, private=True) / _peak_elsewhere(described, private=False)


def _described(job: Job, plan: Plan, data: DataSet, method: str) -> dict[str, Any]:
    return {
        "model": job.settings.model, "options": dict(job.settings.model_options), "shape": data.input_shape,
        "classes": data.classes, "plan": plan.to_dict(), "method": method,
    }  # fmt: skip


def _step(described: dict[str, Any], *, private: bool) -> TimedStep:
    """Return a step on synthetic examples, clipped or plain."""
    plan, shape, classes = Plan.from_dict(described["plan"]), tuple(described["shape"]), described["classes"]
    examples = max(1, round(plan.examples * plan.sampling_rate))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = models.build(described["model"], shape, classes, **described["options"])
        batch = torch.randn(examples, *shape), torch.randint(0, classes, (examples,))
    optimizer = torch.optim.SGD(model.parameters(), lr=_RATE)

    def plain() -> None:
        optimizer.zero_grad()
        cross_entropy(model, batch).mean().backward()
        optimizer.step()

    def clipped() -> None:
        optimizer.zero_grad()
        found = clipped_sum(model, cross_entropy, batch, plan.clipping, method=described["method"])
        for name, parameter in model.named_parameters():
            parameter.grad = found.tensors[name].div_(examples)
        optimizer.step()

    return clipped if private else plain


def _peak_elsewhere(described: dict[str, Any], *, private: bool) -> float:
    return peak_elsewhere([sys.executable, "-m", __name__, json.dumps({"described": described, "private": private})])


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    print(peak_of(_step(asked["described"], private=asked["private"])))
