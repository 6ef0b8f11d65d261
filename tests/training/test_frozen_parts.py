import math

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import TensorDataset

import privet
from one_layer import RATE, D, N, linear_loss, plan, stop_after
from privet.errors import LedgerError
from privet.training import checkpoint
from privet.training.manifest import frozen_digest
from privet.training.state import ChangedTensors

DATA = TensorDataset(torch.randn(N, D))
WIDE = 400


class Adapted(nn.Module):
    """A frozen base under a small trained adapter, with a buffer, and one frozen parameter under two names."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.base = nn.Linear(D, WIDE).requires_grad_(False)
        self.again = self.base
        self.adapter = nn.Linear(WIDE, 1)
        self.register_buffer("shift", torch.randn(D))

    def forward(self, x):
        return self.adapter(torch.tanh(self.base(x + self.shift)))[:, 0]


def made(directory, *, resume=False, seed=0, averaged=False):
    model = Adapted(seed)
    given = (model, linear_loss, torch.optim.SGD(model.adapter.parameters(), lr=RATE), DATA)
    average = {"average": AveragedModel(model)} if averaged else {}
    if resume:
        return privet.Training.resume(directory, *given, **average)
    return privet.Training(plan(steps=6), *given, directory, **average)


@pytest.mark.parametrize("averaged", [False, True])
def test_checkpoints_hold_what_is_trained_and_buffers(tmp_path, averaged):
    first = stop_after(made(tmp_path, averaged=averaged), 3)
    state = checkpoint.read(tmp_path / checkpoint.NAME)
    assert state["model"].keys() == {"adapter.weight", "adapter.bias", "shift"}
    assert (tmp_path / checkpoint.NAME).stat().st_size < D * WIDE  # a quarter of the base
    again = made(tmp_path, resume=True, averaged=averaged)
    expected = first.model.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in again.model.state_dict().items())
    if averaged:
        assert state["average"].keys() == {"n_averaged", "module.adapter.weight", "module.adapter.bias", "module.shift"}
        expected = first.averaged_model.state_dict()
        assert all(torch.equal(value, expected[name]) for name, value in again.averaged_model.state_dict().items())
    again.run()
    assert again.steps_spent == 6


def test_a_model_with_another_base_is_refused_before_anything_is_restored(tmp_path):
    stop_after(made(tmp_path), 3)
    with pytest.raises(LedgerError, match=r"frozen parameters that the run was started with → others .*load the same weights"):
        made(tmp_path, resume=True, seed=1)
    assert made(tmp_path, resume=True).steps_left == 3


def test_a_frozen_parameter_that_follows_the_trained_ones_is_saved(tmp_path):
    training = made(tmp_path)
    for step in training:
        training.model.base.bias.data.lerp_(training.model.adapter.weight.detach()[0], 0.5)
        if step.number == 3:
            break
    training.close()
    again = made(tmp_path, resume=True)
    assert torch.equal(again.model.base.bias, training.model.base.bias)
    assert not torch.equal(again.model.base.bias, Adapted().base.bias)


def test_a_checkpoint_without_a_trained_tensor_or_with_an_unknown_one_is_refused(tmp_path):
    stop_after(made(tmp_path), 3)
    state = checkpoint.read(tmp_path / checkpoint.NAME)
    held = state["model"]
    for changed in ({"adapter.bias": held["adapter.bias"]}, {**held, "more": held["shift"]}):
        torch.save({**state, "model": changed}, tmp_path / checkpoint.NAME)
        with pytest.raises(LedgerError, match=r"does not fit.*(adapter\.weight is missing|more is unknown)"):
            made(tmp_path, resume=True)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.int8, torch.bool, torch.complex64])
@pytest.mark.parametrize("shape", [(), (0,), (3, 5), (300, 400)])
def test_the_digest_is_of_every_tensor(dtype, shape):
    """Also of one that is too large to be read whole, and of one that is not contiguous."""

    def module(value):
        held, full = nn.Module(), torch.full(shape, value).to(dtype)
        held.one = nn.Parameter(torch.zeros(7), requires_grad=False)
        held.other = nn.Parameter(full.T if len(shape) == 2 else full, requires_grad=False)
        return held

    assert frozen_digest(module(1.0)) == frozen_digest(module(1.0))
    assert (frozen_digest(module(1.0)) != frozen_digest(module(0.0))) == (math.prod(shape) > 0)
    one, other = module(1.0), module(1.0)
    other.other.requires_grad_(dtype.is_floating_point)
    assert (frozen_digest(one) == frozen_digest(other)) == (not dtype.is_floating_point)


def test_a_large_base_is_compared_over_its_whole_length():
    module = nn.Linear(3000, 3000, bias=False).requires_grad_(False)
    before = frozen_digest(module)
    for part in (slice(0, 2), slice(1500, 1502), slice(2998, 3000)):
        kept = module.weight[part].clone()
        module.weight[part] += 1
        assert frozen_digest(module) != before
        module.weight[part] = kept
    assert frozen_digest(module) == before


def test_a_model_that_is_trained_whole_has_no_digest():
    assert frozen_digest(nn.Linear(2, 1)) is None
    assert ChangedTensors(nn.Linear(2, 1)).state_dict().keys() == {"weight", "bias"}
