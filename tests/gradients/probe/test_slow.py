import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from privet.errors import PrivetWarning
from privet.gradients.core.examples import split_batch
from privet.gradients.probe.probe import probe


def classify(m, b):
    return F.cross_entropy(m(b[0]), b[1], reduction="none")


def penalised(m, b):
    out = m(b[0])
    (gradient,) = torch.autograd.grad(out.sum(), m.weight, create_graph=True)
    return out[:, 0] + gradient.square().sum()


def hooked():
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh())
    model[1].register_full_backward_hook(lambda *_: None)
    return model


# Name → model, loss, what the warning says.
SLOW = {
    "gradient": (
        nn.Linear(4, 3),
        penalised,
        r"each example.*about \d+ times.*gradients are taken.*that examples share.*\(grad\)",
    ),
    "hook": (hooked(), classify, "each example.*because backward hooks would see"),
    "value": (
        nn.Linear(4, 3),
        lambda m, b: classify(m, b) * torch.tensor([float(x.sum()) for x in b[0]]),
        r"several passes \(3 for the 3.*__float__",
    ),
}


@pytest.mark.filterwarnings("ignore:Full backward hook")
@pytest.mark.parametrize("name", SLOW)
def test_a_slow_path_is_announced_once_with_its_call(name):
    model, loss, says = SLOW[name]
    with pytest.warns(PrivetWarning, match=says) as found:
        probe(model, loss, [split_batch((torch.randn(3, 4), torch.tensor([0, 1, 2])))])
    assert sum(issubclass(each.category, PrivetWarning) for each in found) == 1


def test_nothing_is_said_of_a_pass():
    with warnings.catch_warnings(action="error"):
        assert probe(nn.Linear(4, 3), classify, [split_batch((torch.randn(3, 4), torch.tensor([0, 1, 2])))]) == "ghost"


class Coins(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(count))

    def forward(self, x):
        for layer in self.layers:
            if torch.rand(()) < 0.5:
                x = x + layer(x)
        return x


@pytest.mark.parametrize(
    ("coins", "usual", "method", "wanted", "says"),
    [
        (2, 64, "auto", "ghost", "several passes"),
        (7, 64, "auto", "loop", r"each example gets a pass of its own.*__bool__ reads a value"),
        (7, 64, "ghost", "ghost", "several passes"),
        (5, 8, "auto", "loop", "each example"),
        (5, 256, "auto", "ghost", "several passes"),
    ],
)
def test_the_loop_is_chosen_where_random_numbers_alone_make_more_groups_than_pay(coins, usual, method, wanted, says):
    examples = split_batch((torch.randn(3, 4), torch.tensor([0, 1, 2])))
    torch.manual_seed(0)
    with pytest.warns(PrivetWarning, match=says):
        assert probe(Coins(coins), classify, [examples], method=method, usual=usual) == wanted
