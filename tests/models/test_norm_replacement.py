import pytest
import torch
from torch import nn
from torch.nn import functional as F

import privet
from privet.errors import UnsupportedModelError
from privet.models import replace_batch_norm


class Block(nn.Module):
    """A residual block, as in ResNet."""

    def __init__(self, inputs, width, norm=nn.BatchNorm2d):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 3, 2, 1, bias=False),
            norm(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, 1, 1, bias=False),
            norm(width),
        )
        self.shortcut = nn.Sequential(nn.Conv2d(inputs, width, 1, 2, bias=False), norm(width))

    def forward(self, x):
        return F.relu(self.body(x) + self.shortcut(x))


MODELS = {
    "residual": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 16, 3),
            nn.BatchNorm2d(16),
            Block(16, 40),
            Block(40, 64),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(64, 3),
        ),
        (3, 16, 16),
    ),
    "vectors": (lambda: nn.Sequential(nn.Linear(5, 30), nn.BatchNorm1d(30), nn.Tanh(), nn.Linear(30, 3)), (5,)),
    "series": (lambda: nn.Sequential(nn.Conv1d(2, 30, 3), nn.BatchNorm1d(30), nn.Flatten(), nn.LazyLinear(3)), (2, 9)),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_whose_batch_normalisation_is_replaced_trains_privately(name):
    make, shape = MODELS[name]
    model = make()
    inputs, labels = torch.randn(6, *shape), torch.arange(6) % 3
    model(inputs)
    assert replace_batch_norm(model) is model
    assert not [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    loss_fn = lambda model, batch: F.cross_entropy(model(batch[0]), batch[1], reduction="none")  # noqa: E731
    norms = privet.per_example_norms(model, loss_fn, (inputs, labels))
    assert (norms > 1e-3).all()
    outputs = model.eval()(inputs)
    assert not torch.allclose(outputs[0], outputs[1], atol=1e-3)


@pytest.mark.parametrize(("layer", "groups"), [
    (nn.BatchNorm2d(64), 16), (nn.BatchNorm2d(512), 32), (nn.BatchNorm3d(48), 12), (nn.BatchNorm2d(7), 1), (nn.BatchNorm2d(3), 1),
    (nn.BatchNorm1d(64), 1), (nn.SyncBatchNorm(128), 32),
], ids=str)  # fmt: skip
def test_groups_divide_the_width_and_have_several_channels(layer, groups):
    found = replace_batch_norm(layer)
    assert (found.num_groups, found.num_channels) == (groups, layer.num_features)


def test_settings_and_ties_stay():
    layer = nn.BatchNorm2d(8, eps=1e-3).double().eval().requires_grad_(False)
    layer.weight.zero_()
    first, second, third = replace_batch_norm(nn.Sequential(layer, layer, nn.BatchNorm2d(8, affine=False)))
    assert first is second
    assert (first.eps, first.training, first.weight, first.bias) == (1e-3, False, layer.weight, layer.bias)
    assert third.weight is None


class Activated(nn.BatchNorm2d):
    """A batch normalisation that does more."""


@pytest.mark.parametrize("layer", [Activated(8), nn.LazyBatchNorm2d()], ids=str)
def test_what_cannot_be_replaced_is_named(layer):
    with pytest.raises(UnsupportedModelError, match=r"module 'a\.0' is a (Activated|LazyBatchNorm2d)"):
        replace_batch_norm(nn.ModuleDict({"a": nn.Sequential(layer)}))
