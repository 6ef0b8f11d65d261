"""On a device, every case of the conformance battery has the sums, norms, passes and method that it has on the CPU."""

import both_devices
import cases
import pytest
import torch

ALL = [*cases.FOLLOWED, *cases.UNFOLLOWED]
# Torch takes lengths only from the CPU; passes over several examples do without.
LENGTHS_ON_THE_HOST = {
    "rnn, packed", "relu rnn, packed", "gru, packed", "lstm, packed", "lstm, packed and sorted", "lstm, packed, time first",
    "lstm, packed from given states", "lstm, packed data changed", "gru, packed twice",
}  # fmt: skip
ALONE = [case for case in ALL if case.name not in LENGTHS_ON_THE_HOST]
# Kernels are the CPU's; but what runs on a device may be summed in another order.
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-10}


def check(on_device, case, dtype, method):
    (host, device), sums, norms = on_device(both_devices.compare, case.name, dtype, method)
    assert device == host
    assert sums <= TOLERANCE[dtype]
    assert norms <= TOLERANCE[dtype]


@pytest.mark.parametrize("case", ALL, ids=str)
def test_sums_norms_and_passes_are_those_of_the_cpu(case, on_device):
    check(on_device, case, torch.float64, "auto")


@pytest.mark.parametrize("case", cases.slow_unless_typical(ALL), ids=str)
def test_float32_is_off_by_rounding_alone(case, on_device):
    check(on_device, case, torch.float32, "auto")


@pytest.mark.parametrize("case", cases.slow_unless_typical(ALONE), ids=str)
def test_the_loop_agrees_too(case, on_device):
    check(on_device, case, torch.float64, "loop")


@pytest.mark.parametrize("case", cases.slow_unless_typical(ALONE), ids=str)
def test_the_check_before_the_first_step_chooses_the_same_method(case, on_device):
    host, device = on_device(both_devices.methods_of, case.name)
    assert device == host


@pytest.mark.parametrize("name", sorted(LENGTHS_ON_THE_HOST)[:2])
def test_a_program_that_torch_refuses_on_a_gpu_is_refused_here(name, on_device):
    with pytest.raises(AssertionError, match="should be a 1D CPU int64 tensor"):
        on_device(both_devices.compare, name, torch.float64, "loop")


def test_every_program_that_is_placed_by_default_needs_it():
    assert {case.name for case in ALL} >= both_devices.PLACED_BY_DEFAULT
