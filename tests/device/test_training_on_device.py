"""On a device, whole trainings come to the parameters that they come to on the CPU, with the same noise."""

import pytest
import trainings_on_device

# Autocast rounds other operations on a GPU than on a CPU.
TOLERANCE = {"autocast": 1e-3}
# Of rules, samplers, kinds of noise and ways to read, one or two each.
QUICK = {
    "SGD", "AdamW, average, scheduler", "adaptive layerwise", "noise per group", "projected", "GEP", "random masks", "users",
    "Shuffle", "FixedSize", "banded noise", "tree noise", "raising", "groups", "autocast", "bfloat16", "PSASC",
    "counted rows",
}  # fmt: skip


NAMES = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in trainings_on_device.CASES]


@pytest.mark.parametrize("name", NAMES)
def test_parameters_passes_and_method_are_those_of_the_cpu(name, on_device):
    host, device = on_device(trainings_on_device.train_on_both, name)
    assert device.method == host.method
    assert device.ways == host.ways
    assert (device.parameters - host.parameters).abs().max() <= TOLERANCE.get(name, 1e-6)
