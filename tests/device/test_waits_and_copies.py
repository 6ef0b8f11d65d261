"""Where the host waits for the device, and what it sends to it: the places are listed here, with how often and how much.

The host waits once for each physical batch, and never for a layer or a parameter. It sends the examples and at most 64 bytes
for each tensor; noise apart, which is drawn on the host.
"""

import both_devices
import cases
import pytest
import torch
import trainings_on_device
from real_models import REAL_MODELS

# The host has to know whether a norm left the range of float32: once for each physical batch.
PER_BATCH = {"gradients/methods/tape.py:weigh_examples", "gradients/projection/clipping.py:clip_projected"}
# Bounds that adapt to released counts, and the learning rate and weights of torch's schedulers and averages.
PER_STEP = {
    "clipping/adaptive.py:AdaptiveQuantile.adapt", "training/callbacks.py:Observers.describe",
    "training/state.py:TrainingState.update",
}  # fmt: skip
# A program asks for a value or for positions: once for each time that it asks, to compare examples, and to find groups.
READING = {
    "gradients/core/consensus.py:agree", "gradients/layers/indexing.py:_value_rule",
    "gradients/methods/calls.py:GuardedCalls.call", "gradients/methods/example_calls.py:ExampleCalls._call_shared",
    "gradients/layers/indexing.py:nonzero_indices",
}  # fmt: skip
READS = {"groups", "raising"}
# The rows of a table that are looked up are found and counted: for each table, a few times for each physical batch.
OF_TABLES = {
    "gradients/masking/embedding_rows.py:SparseSumGrad.weighted_sum", "sparsification/selected_rows.py:SelectedRows.count",
    "noise/row_selection.py:select_rows", "noise/row_selection.py:take_rows",
}  # fmt: skip
TABLES = {"counted rows"}

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
    "training/state.py:TrainingState.update", "noise/row_selection.py:select_rows",
}  # fmt: skip
# Positions of the examples of a group, and of all groups.
OF_GROUPS = {"gradients/core/examples.py:Examples.select", "gradients/engine.py:RunningSum.norms"}
GROUPED = {*READS, "different lengths", "public rows", "counted rows"}
MOST_BYTES = 64
QUICK = {
    "SGD",
    "adaptive quantile",
    "projected",
    "GEP",
    "PerExample",
    "groups",
    "banded noise",
    "AdamW, average, scheduler",
    "counted rows",
}
NAMES = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in trainings_on_device.CASES]


@pytest.mark.parametrize("name", NAMES)
def test_a_step_waits_once_for_a_physical_batch_and_sends_its_inputs(name, on_device):
    step = on_device(trainings_on_device.trace_step, name)
    more = READING if name in READS else OF_TABLES if name in TABLES else set()
    assert step.waits.keys() <= PER_BATCH | PER_STEP | more
    assert name in READS or sum(times for place, (times, _) in step.waits.items() if place in more) <= 6 * step.batches
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
    for scarce in (False, True):
        waits, copies = on_device(both_devices.waits_and_copies, case.name, torch.float32, scarce)
        assert waits == {"gradients/methods/tape.py:weigh_examples": (1, 0)}
        assert sum(size for _, size in copies.values()) <= 2 * MOST_BYTES


@pytest.mark.slow
@pytest.mark.parametrize("real", REAL_MODELS, ids=str)
def test_real_models_have_the_sums_of_the_cpu_and_wait_once(real, on_device):
    sums, norms, waits, copies = on_device(both_devices.compare_real_model, real.name)
    assert sums <= 2e-5
    assert norms <= 2e-5
    reads = waits.keys() & READING  # such as whether an attention mask hides anything
    assert waits.keys() <= {"gradients/methods/tape.py:weigh_examples", *reads}
    assert waits["gradients/methods/tape.py:weigh_examples"][0] <= (4 if real.steered else 2 if reads else 1)  # groups of four
    assert real.steered or sum(times for times, _ in waits.values()) <= 16
    assert sum(size for place, (_, size) in copies.items() if place not in OF_GROUPS) <= MOST_BYTES
