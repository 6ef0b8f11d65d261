"""Programs that would couple simulated clients are refused, or trained one client after another; valid ones are trained right."""

import functools
import itertools
import random

import numpy as np
import pytest
import torch
from test_simulation import clients_of, gathered, loss_fn, small_model, told_by
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import ConcatDataset, TensorDataset

from privet.errors import InvalidArgumentError, UnsupportedModelError
from privet.federated import LocalSteps, Simulation
from privet.units import Users
from rounding import assert_equal_up_to_rounding

LOCAL = LocalSteps(learning_rate=0.3, steps=3)


def simulate(model, loss=loss_fn, clients=None, **settings):
    return Simulation(model, loss, clients_of() if clients is None else clients, LOCAL, **settings)


class Applied(nn.Module):
    """A linear layer whose input, or whose self, goes through a function first."""

    def __init__(self, function, **attributes):
        super().__init__()
        self.function, self.head = function, nn.Linear(4, 3)
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x):
        return self.head(self.function(self, x))


def average(module, x):
    module.mean.data.lerp_(x.detach().mean(0), 0.5)
    return x - module.mean


def call_backward(model, batch):
    losses = loss_fn(model, batch)
    losses.sum().backward()
    return losses


def update_teacher(teacher):
    def loss(model, batch):
        teacher.weight.lerp_(batch[0].mean(0).expand_as(teacher.weight), 0.5)
        return loss_fn(model, batch)

    return loss


WRITING = {
    "a renormalised table": lambda: (
        nn.Sequential(nn.Embedding(9, 2, max_norm=0.1), nn.Flatten(), nn.Linear(8, 3)),
        lambda model, batch: nn.functional.cross_entropy(model(batch[0].abs().long().clamp(max=8)), batch[1], reduction="none"),
    ),
    "a frozen average": lambda: (Applied(average, mean=nn.Parameter(torch.zeros(4), requires_grad=False)), loss_fn),
    "a teacher in a closure": lambda: (small_model(), update_teacher(nn.Linear(4, 3).requires_grad_(False))),
    "gradients": lambda: (small_model(), call_backward),
}


@pytest.mark.parametrize("case", WRITING)
def test_writing_to_parameters_is_refused(case):
    with pytest.raises(UnsupportedModelError):
        simulate(*WRITING[case]())


def test_a_trained_parameter_that_is_written_to_is_the_clients_own_copy():
    model = Applied(average, mean=nn.Parameter(torch.zeros(4)))
    simulate(model)
    assert not model.mean.any()


def with_own_generator():
    generator = np.random.default_rng(0)
    return lambda module, x: x * generator.random(4).astype(np.float32)[0]


def with_a_counter():
    """Return a function that multiplies by the number of its call, which no one restores."""
    calls = itertools.count(1)
    return lambda module, x: x * next(calls)


def test_updates_that_depend_on_earlier_clients_are_refused():
    with pytest.raises(InvalidArgumentError, match="depends on those before it"):
        simulate(Applied(with_a_counter()))
    with pytest.raises(InvalidArgumentError, match="a random generator of its own"):
        simulate(Applied(with_own_generator()))


SHARED = {
    "NumPy's generator": lambda module, x: x * float(np.random.rand()),
    "Python's generator": lambda module, x: x * random.random(),
}


@pytest.mark.parametrize("case", SHARED)
def test_code_that_would_share_random_numbers_trains_clients_one_by_one(case):
    model = Applied(SHARED[case])
    simulation = simulate(model, clients=[clients_of((4,))[0] for _ in range(3)])
    assert not simulation.vectorised
    updates = [gathered(simulation, told_by(model), [client])["head.weight"] for client in range(3)]
    assert not torch.equal(updates[0], updates[1])
    with pytest.raises(InvalidArgumentError, match="a generator that clients would share"):
        simulate(model, clients=[clients_of((4,))[0] for _ in range(3)], vectorise=True)


def test_clients_that_would_differ_together_are_not_trained_together():
    torch.manual_seed(2)
    model = Applied(lambda module, x: x * (1 if torch._C._functorch.peek_interpreter_stack() is None else 2))
    assert not simulate(model).vectorised
    with pytest.raises(InvalidArgumentError, match="other updates"):
        simulate(model, vectorise=True)


def test_a_client_belongs_to_one_entry():
    client = clients_of((4,))[0]
    with pytest.raises(InvalidArgumentError, match="one object twice"):
        simulate(small_model(), clients=[client, *clients_of((3, 2)), client])
    rows = TensorDataset(torch.randn(4, 4), torch.zeros(4, dtype=torch.long))
    with pytest.raises(InvalidArgumentError, match="occurs twice"):
        simulate(small_model(), clients=Users(ConcatDataset([rows, rows]), [0, 0, 1, 1, 2, 2, 3, 3], 2))


def test_checkpointed_parts_run_again_with_the_parameters_of_their_step():
    plain, model = small_model(), small_model()
    inner = model[0]
    inner.forward = functools.partial(checkpoint, inner.forward, use_reentrant=False)
    expected = gathered(simulate(plain, vectorise=False), told_by(plain), [0])
    found = gathered(simulate(model, vectorise=False), told_by(plain), [0])
    for name, value in expected.items():
        assert_equal_up_to_rounding(found[name], value)


def test_a_loss_without_gradient_is_an_update_of_zero():
    def loss(model, batch):
        return torch.zeros(len(batch[1]))

    found = gathered(simulate(small_model(), loss, vectorise=False), told_by(small_model()), [0, 1])
    assert not any(value.any() for value in found.values())


def test_a_loss_may_use_the_model_that_it_captured():
    model = small_model()
    found = gathered(simulate(model, lambda _, batch: loss_fn(model, batch)), told_by(model), [0])
    expected = gathered(simulate(model), told_by(model), [0])
    for name, value in expected.items():
        assert_equal_up_to_rounding(found[name], value)


def test_parameters_that_copies_would_not_replace_are_refused():
    model = small_model()
    weight = [model[0].weight]
    with pytest.raises(UnsupportedModelError, match="outside the modules"):
        simulate(model, lambda model, batch: loss_fn(model, batch) + weight[0].sum())
    model[0].weight.register_hook(lambda gradient: gradient * 0)
    with pytest.raises(UnsupportedModelError, match="hook"):
        simulate(model)


def _fallback(compute, kinds):
    def loss(model, batch):
        try:
            return loss_fn(model, batch) + 0 * compute(batch[0]).sum()
        except kinds:
            return -loss_fn(model, batch)

    return loss


CAUGHT = {
    "cholesky": _fallback(lambda x: torch.linalg.cholesky(torch.eye(4) * (60 - x.amax())), torch.linalg.LinAlgError),
    "control flow": _fallback(lambda x: torch.ones(()) if x.abs().max() < 60 else 1 / 0, Exception),
    "text": lambda model, batch: loss_fn(model, batch) * (2.0 if "90." in str(batch[0]) else 1.0),
}


@pytest.mark.parametrize("loss", CAUGHT.values(), ids=list(CAUGHT))
def test_an_error_that_a_loss_catches_for_one_client_changes_no_other(loss):
    clients = clients_of()
    odd = tuple(each.clone() for each in clients[1])
    odd[0][:] = 90.0
    model = small_model()
    together = simulate(model, loss, [clients[0], odd, *clients[2:]])
    without = simulate(model, loss, [clients[0], *clients[2:]])
    told = told_by(model)
    whole = together.gather(told, np.arange(len(clients)))
    rest, alone = without.gather(told, np.arange(len(clients) - 1)), together.gather(told, np.array([1]))
    for name, value in whole.tensors.items():
        torch.testing.assert_close(value, rest.tensors[name] + alone.tensors[name], rtol=1e-3, atol=1e-5)
