from functools import partial

import pytest
import torch
from torch import nn

import privet
from privet._utils.own_code import is_own_code
from privet.runs.tasks import AdjustedCrossEntropy, cross_entropy
from privet.units import averaged, grouped


class Mine(nn.Linear):
    """A layer of a user."""


def hooked(register):
    model = nn.Linear(2, 2)
    getattr(model, register)(lambda *_: None)
    return model


def replaced():
    model = nn.Linear(2, 2)
    model.forward = lambda x: x
    return model


OWN = [cross_entropy, AdjustedCrossEntropy((0.5, 0.5)), grouped(cross_entropy), partial(cross_entropy)]
FOREIGN = [
    lambda model, batch: cross_entropy(model, batch), grouped(lambda model, batch: model(batch)),
    averaged(cross_entropy, lambda batch: batch, 2), partial(lambda x, model, batch: x, 3), torch.nn.functional.cross_entropy,
]  # fmt: skip


@pytest.mark.parametrize("model", [nn.Sequential(nn.Linear(2, 2), nn.Tanh()), privet.models.build("table", (2,), 2)])
@pytest.mark.parametrize("loss", OWN)
def test_code_of_privet_is_its_own(model, loss):
    assert is_own_code(model, loss)


@pytest.mark.parametrize("loss", FOREIGN)
def test_a_loss_with_code_of_a_user_is_not(loss):
    assert not is_own_code(nn.Linear(2, 2), loss)


@pytest.mark.parametrize("model", [
    nn.Sequential(Mine(2, 2)), hooked("register_forward_hook"), hooked("register_full_backward_hook"), replaced(),
], ids=["class", "hook", "backward hook", "method"])  # fmt: skip
def test_a_network_with_code_of_a_user_is_not(model):
    assert not is_own_code(model, cross_entropy)
