"""Audit Opacus as an external trainer: `python examples/audit_opacus.py`.

An audit needs one function: it trains by a plan on a probe's data and returns the releases.
"""

from __future__ import annotations

import numpy as np
import torch
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from torch import nn

import privet
from privet.audit import Probe, Trace, mechanism


def train(probe: Probe) -> Trace:
    """Train a linear model on the probe by Opacus; the gradient of an example is its row."""
    plan, size = probe.plan, sum(probe.sizes.values())
    assert isinstance(plan.clipping, privet.clipping.Flat), "this adapter clips all parameters together"
    model = GradSampleModule(nn.Linear(size, 1, bias=False), loss_reduction="sum")
    rate = 0.25
    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=rate),
        noise_multiplier=plan.noise_multiplier,
        max_grad_norm=plan.clipping.bound,
        expected_batch_size=plan.divisor,
        loss_reduction="sum",
    )
    sampler = UniformWithReplacementSampler(num_samples=plan.examples, sample_rate=plan.sampling_rate, steps=plan.total_steps)
    released, drawn = [], []
    for indices in map(np.array, sampler):
        optimizer.zero_grad()
        before = model._module.weight.detach().clone()
        model(probe.data.read(indices.astype(np.int64))).sum().backward()
        optimizer.step()
        released.append((before - model._module.weight.detach()).double() / rate)
        drawn.append(indices)
        nn.init.zeros_(model._module.weight)  # so that differences stay precise
    return Trace(probe.by_parameter(torch.cat(released).numpy()), drawn)


if __name__ == "__main__":
    claim = privet.Plan(
        examples=10_000,
        sampling=privet.sampling.Poisson(batch_size=100),
        steps=1000,
        clipping=privet.clipping.Flat(bound=0.7),
        delta=1e-5,
    ).calibrate(epsilon=4.0)
    print(mechanism(claim, train, observations=200_000))
