"""Group normalisation in place of batch normalisation, which couples the examples of a batch."""

from __future__ import annotations

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from privet.errors import UnsupportedModelError

_MOST_GROUPS, _FEWEST_CHANNELS = 32, 4


def replace_batch_norm(model: nn.Module) -> nn.Module:
    """Replace each batch normalisation of a model by a group normalisation of the same width, and return the model.

    Create the optimizer afterwards. Weights and biases stay; running statistics are dropped. The number of groups is the largest
    divisor of the width that is at most 32, as in Wu & He 2018, "Group normalization", and leaves 4 channels in each group.
    `BatchNorm1d` becomes one group, since groups of a single vector would have few numbers.

    Args:
        model: changed in place; a model that is itself a batch normalisation is replaced.

    Raises:
        UnsupportedModelError: a layer is of a class derived from torch's, which may do more, or has no width yet.

    >>> replace_batch_norm(nn.Sequential(nn.Conv2d(3, 48, 3), nn.BatchNorm2d(48)))[1].num_groups
    12
    """
    made: dict[int, nn.Module] = {}  # by identity, as a layer may have several places
    for path, layer in [*model.named_modules()]:
        if isinstance(layer, _BatchNorm):
            made[id(layer)] = _to_group_norm(path, layer)
    for parent in [*model.modules()]:
        parent._modules.update({name: made.get(id(child), child) for name, child in parent._modules.items()})
    return made.get(id(model), model)


def _to_group_norm(path: str, layer: _BatchNorm) -> nn.GroupNorm:
    kind, width = type(layer), layer.num_features
    if kind.__module__ != _BatchNorm.__module__ or not width:
        why = "may do more than torch's class: replace it" if width else "has no width before its first call: call the model"
        raise UnsupportedModelError(f"module {path!r} is a {kind.__name__}, which {why}, then call replace_batch_norm again")
    most = 1 if kind is nn.BatchNorm1d else min(_MOST_GROUPS, width // _FEWEST_CHANNELS)
    groups = next(number for number in range(most, 0, -1) if width % number == 0) if most else 1
    found = nn.GroupNorm(groups, width, eps=layer.eps, affine=layer.affine).train(layer.training)
    found.weight, found.bias = layer.weight, layer.bias
    return found
