"""User code that torch calls inside an intercepted function is held to what model and loss are held to."""

import pytest
import torch
from recording import shift
from torch import nn
from torch.nn import functional as F

from privet.clipping import Flat
from privet.errors import UnsupportedModelError
from privet.gradients import clipped_sum, per_example_gradients
from privet.gradients.core.examples import split_batch
from privet.gradients.probe.probe import probe
from rounding import assert_equal_up_to_rounding

BOUND = 0.03


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.register_buffer("peak", torch.zeros(()))


def triplets(distance):
    def loss(m, x):
        h = m.layer(x)
        criterion = nn.TripletMarginWithDistanceLoss(distance_function=lambda a, b: distance(m, a, b), reduction="none")
        return criterion(h, h.flip(1), h - 1)

    return loss


def _with_a_peak(m, a, b):
    m.peak.copy_(torch.maximum(m.peak, a.detach().abs().amax()))
    return (a - b).square().sum(-1) * m.peak.clone()


def _with_text(m, a, b):
    return (a - b).square().sum(-1) * len(str(a))


@pytest.mark.parametrize("method", ["auto", "loop"])
@pytest.mark.parametrize("distance", [_with_a_peak, _with_text])
def test_a_distance_function_sees_one_example(distance, method):
    torch.manual_seed(0)
    model, x = Net(), torch.rand(5, 3)
    x[0] = 200.0
    assert shift(model, triplets(distance), x, Flat(BOUND), method=method) <= BOUND * 1.0001


def _at_the_second_attempt(m, x):
    """A distance function that fails once, and then remembers the largest of all numbers."""
    attempts, h = [], m.layer(x)

    def distance(a, b):
        attempts.append(1)
        if len(attempts) == 1:
            raise RuntimeError("not ready")
        m.largest = max(m.largest, float(a.abs().max()))
        return (a - b).square().sum(-1) * m.largest

    criterion = nn.TripletMarginWithDistanceLoss(distance_function=distance, margin=100.0, reduction="none")
    known = h.detach()
    try:
        weight = criterion(known, known.flip(1), known - 1)
    except RuntimeError:
        weight = criterion(known, known.flip(1), known - 1)
    return h.sum(1) * weight


@pytest.mark.parametrize("method", ["auto", "loop"])
def test_a_function_is_not_called_for_one_example_after_another(method):
    torch.manual_seed(0)
    model, x = Net(), torch.rand(5, 3)
    model.largest, x[0] = 0.0, 20.0
    whole, alone, rest = (
        clipped_sum(model, _at_the_second_attempt, batch, Flat(1e9), method=method).tensors for batch in (x, x[:1], x[1:])
    )
    for name, value in whole.items():
        assert_equal_up_to_rounding(value, alone[name] + rest[name])


def _write(m):
    with torch.no_grad():
        m.layer.bias.add_(1.0)  # whose value no backward pass needs


def _in_a_distance(m, x):
    def distance(m, a, b):
        _write(m)
        return (a - b).square().sum(-1)

    return triplets(distance)(m, x)


class Tracked(torch.Tensor):
    model = None

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        _write(cls.model)
        return super().__torch_function__(func, types, args, kwargs or {})


def _in_a_class(m, x):
    Tracked.model = m
    return F.relu(m.layer(x).as_subclass(Tracked)).as_subclass(torch.Tensor).sum(1)


@pytest.mark.parametrize("loss", [_in_a_distance, _in_a_class])
def test_no_parameter_is_written_to(loss):
    model, x = Net(), torch.rand(2, 3)
    before = model.layer.bias.detach().clone()
    with pytest.raises(UnsupportedModelError, match="writes to a parameter"):
        per_example_gradients(model, loss, x, method="loop")
    assert torch.equal(model.layer.bias, before)


def _scaled(m, x):
    scale = x.square().sum(1)  # of the example, which the function holds
    return triplets(lambda m, a, b: (a - b).square().sum(-1) * scale)(m, x)


def test_what_watches_a_function_is_gone_with_its_pass():
    """A cycle of references would keep tensors of an example, for which the check before training refuses a program."""
    assert probe(Net(), _scaled, [split_batch(torch.rand(4, 3))]) == "ghost"
