"""Where the host waits for the device, and what it sends to it: the places are listed here, with how often and how much.

The host waits once for each physical batch, and never for a layer or a parameter. It sends the examples and at most 64 bytes for
each tensor; noise apart, which is drawn on the host.
"""

import both_devices
import cases
import pytest
import torch
import trainings_on_device

# The host has to know whether a norm left the range of float32: once for each physical batch.
PER_BATCH = {"gradients/methods/tape.py:weigh_examples", "gradients/projection/clipping.py:clip_projected"}
# Bounds that adapt to released counts, and the learning rate and weights of torch's schedulers and averages.
PER_STEP = {
    "clipping/adaptive.py:AdaptiveQuantile.adapt", "training/callbacks.py:Observers.describe",
    "training/state.py:TrainingState.update",
}  # fmt: skip
# A program asks for a value of its examples: once for each time that it asks, to compare them, and to find groups.
READING = {
    "gradients/core/consensus.py:agree", "gradients/layers/indexing.py:_value_rule",
    "gradients/methods/calls.py:GuardedCalls.call",
}  # fmt: skip
READS = {"groups", "raising"}

INPUTS = "gradients/core/examples.py:Examples.to"
# Random numbers that are drawn on the host: 8 bytes for each; and random directions, in the type of the parameter.
NOISE = {
    "noise/reference.py:add_noise", "gradients/projection/directions.py:Directions._draw",
    "gradients/projection/subspace.py:find_subspace", "noise/correlated/past_toeplitz.py:PastBands._step",
    "noise/correlated/past_toeplitz.py:PastBuffers._step", "noise/correlated/tree.py:PastTree._step",
}  # fmt: skip
# Numbers of a rule, and positions of examples.
SMALL = {
    "clipping/adaptive.py:AdaptiveQuantile.statistics", "gradients/per_example_momentum.py:Averages.of_examples",
    "training/state.py:TrainingState.update",
}  # fmt: skip
# Positions of the examples of a group, and of all groups.
OF_GROUPS = {"gradients/core/examples.py:Examples.select", "gradients/engine.py:RunningSum.norms"}
GROUPED = {*READS, "different lengths"}
MOST_BYTES = 64
QUICK = {"SGD", "adaptive quantile", "projected", "GEP", "PerExample", "groups", "banded noise", "AdamW, average, scheduler"}
NAMES = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
    for name in trainings_on_device.CASES
    if not name.endswith("rows")
]


@pytest.mark.parametrize("name", NAMES)
def test_a_step_waits_once_for_a_physical_batch_and_sends_its_inputs(name, on_device):
    step = on_device(trainings_on_device.trace_step, name)
    assert step.waits.keys() <= PER_BATCH | PER_STEP | (READING if name in READS else set())
    if name not in READS:  # parts of a batch are weighed apart
        assert sum(times for place, (times, _) in step.waits.items() if place in PER_BATCH) <= step.batches
    assert all(times <= 2 for place, (times, _) in step.waits.items() if place in PER_STEP)
    copies = dict(step.copies)
    assert copies.pop(INPUTS, (0, 0))[1] == step.inputs
    noise = [copies.pop(place, (0, 0)) for place in NOISE]
    assert any(size for _, size in noise) or name in {"no noise", "empty steps"}
    assert copies.keys() <= SMALL | (OF_GROUPS if name in GROUPED else set())
    small = sum(size for place, (_, size) in copies.items() if place in SMALL)
    assert small <= MOST_BYTES * step.tensors * max(1, step.batches)


def test_noise_is_eight_bytes_a_parameter(on_device):
    step = on_device(trainings_on_device.trace_step, "SGD")
    assert step.copies["noise/reference.py:add_noise"][1] == 8 * step.numbers


@pytest.mark.parametrize("case", cases.slow_unless_typical([
    case for case in cases.FOLLOWED
    if not case.grouped and "packed" not in case.name and "offsets" not in case.name and not case.name.startswith("ragged")
]), ids=str)  # fmt: skip
def test_a_sum_waits_once_whatever_the_layers(case, on_device):
    waits, copies = on_device(both_devices.waits_and_copies, case.name, torch.float32)
    assert waits == {"gradients/methods/tape.py:weigh_examples": (1, 0)}
    assert sum(size for _, size in copies.values()) <= 2 * MOST_BYTES
