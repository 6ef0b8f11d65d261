"""State that is too large to be copied for every pass is read-only in a pass, or refused; what examples share is state."""

import array
import threading

import numpy as np
import pytest
import torch
from torch import nn

from privet.clipping import Flat
from privet.errors import UnsupportedModelError
from privet.gradients import clipped_sum, per_example_norms
from rounding import assert_equal_up_to_rounding

LARGE = 70_000
BOUND = 0.3


def losses(model, batch):
    return model(batch).square().sum(1)


@pytest.mark.parametrize("method", ["ghost", "loop"])
@pytest.mark.parametrize(
    "held", [lambda x: x, lambda x: [x[10:], x], lambda x: {"a": x, "b": x[::2][3:]}], ids=["array", "view", "views"]
)
def test_a_large_array_is_read_only_in_a_pass_and_as_before_after_it(held, method):
    bank = np.zeros(LARGE)
    model = nn.Linear(3, 2)
    model.bank = held(bank)
    model.fixed = np.zeros(LARGE)
    model.fixed.flags.writeable = False

    def write(m, batch):
        bank[12] += 1.0
        return losses(m, batch)

    per_example_norms(model, losses, torch.randn(3, 3), method=method)
    with pytest.raises(ValueError, match="read-only"):
        per_example_norms(model, write, torch.randn(3, 3), method=method)
    assert not bank.any()
    assert bank.flags.writeable
    assert not model.fixed.flags.writeable
    bank[0] = 1.0


def test_arrays_over_files_and_buffers_are_writable_again(tmp_path):
    model = nn.Linear(3, 2)
    mapped = np.memmap(tmp_path / "bank", dtype=np.float64, mode="w+", shape=LARGE)
    model.held = [mapped, mapped[5:], np.frombuffer(bytearray(LARGE), dtype=np.uint8), np.ones(LARGE).reshape(2, -1).T]
    per_example_norms(model, losses, torch.randn(3, 3))
    assert all(each.flags.writeable for each in model.held)


@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_a_small_view_of_a_large_array_is_restored(method):
    bank = np.zeros(LARGE)
    model = nn.Linear(3, 2)
    model.held = [memoryview(bank)[4:8], memoryview(bank.reshape(2, -1))]
    model.held[1].release()

    def write(m, batch):
        m.held[0][1] += 1.0
        return losses(m, batch) * (1 + m.held[0][1])

    found = per_example_norms(model, write, torch.ones(4, 3), method=method)
    assert_equal_up_to_rounding(found, found[:1].expand(4))
    assert not bank.any()
    assert bank.flags.writeable


@pytest.mark.parametrize("kind", ["parameter", "capsule", "view", "bytes", "numbers"])
def test_what_cannot_be_restored_is_refused(kind):
    model = nn.Linear(3, LARGE)
    model.held = {
        "parameter": lambda: model.weight.detach().numpy().reshape(-1),
        "capsule": lambda: np.from_dlpack(torch.zeros(LARGE)),
        "view": lambda: memoryview(np.zeros(LARGE)),
        "bytes": lambda: bytearray(5_000_000),
        "numbers": lambda: array.array("d", bytes(8 * 5_000_000)),
    }[kind]()
    with pytest.raises(UnsupportedModelError, match="holds a"):
        per_example_norms(model, losses, torch.randn(3, 3))


class Normaliser:
    """An object that cannot be copied, such as with a lock."""

    def __init__(self):
        self.lock, self.largest = threading.Lock(), 1.0

    def __call__(self, x):
        with self.lock:
            self.largest = max(self.largest, float(x.detach().abs().max()))
        return x / self.largest


@pytest.mark.parametrize("method", ["auto", "loop"])
def test_an_object_that_examples_share_is_restored(method):
    model, x, shared = nn.Linear(3, 1), torch.randn(4, 3), Normaliser()
    x[0] *= 1e3

    def loss(m, batch):
        return m(batch[1](batch[0])).square().sum(1)

    found = [clipped_sum(model, loss, (rows, shared), Flat(BOUND), method=method).tensors for rows in (x, x[1:])]
    assert shared.largest == 1.0
    assert torch.cat([(found[0][name] - found[1][name]).flatten() for name in found[0]]).norm() <= BOUND * (1 + 1e-6)
