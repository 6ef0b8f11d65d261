"""Networks by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from weakref import WeakKeyDictionary

import torch
from torch import nn

from privet.errors import InvalidArgumentError, choice, count
from privet.models import convolutional
from privet.models.convolutional import cnn, edge_cnn, tanh_cnn
from privet.models.dense import bounded_linear, logistic, mlp, regression_mlp
from privet.models.tabular import table

# Largest number of channels of an image. On a CPU, torch pools feature maps of images 3 to 11 times faster in channels-last
# format, which is half of a small network's step; inputs with many channels gain nothing.
_CHANNELS_OF_IMAGES = 3


@dataclass(frozen=True)
class Network:
    """A network that can be built by name, from an input shape, a number of outputs and keyword-only options.

    `smallest_side` is in pixels, None for inputs of any shape; `task` is None for both; `shape` is the only input shape of a
    network with pretrained weights.
    """

    construct: Callable[..., nn.Module]
    smallest_side: int | None = None
    task: str | None = None
    shape: tuple[int, ...] | None = None

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Return whether it takes inputs of a shape."""
        if self.shape is not None:
            return shape == self.shape
        if self.smallest_side is None:
            return len(shape) > 0
        return len(shape) == 3 and min(shape[1:]) >= self.smallest_side


_NETWORKS = {
    "logistic": Network(logistic, task="classification"),
    "linear": Network(logistic, task="regression"),
    "bounded-linear": Network(bounded_linear),
    "mlp": Network(mlp),
    "table": Network(table),
    "edge-cnn": Network(edge_cnn, convolutional.EDGES_SMALLEST_SIDE),
    "cnn": Network(cnn, convolutional.CNN_SMALLEST_SIDE),
    "tanh-cnn": Network(tanh_cnn, convolutional.TANH_CNN_SMALLEST_SIDE),
    "regression-mlp": Network(regression_mlp, task="regression"),
}

# Network → arguments of `build`.
_ARGUMENTS: WeakKeyDictionary[nn.Module, tuple[str, tuple[int, ...], int, dict[str, object]]] = WeakKeyDictionary()
# Networks of installed packages, which are imported when one is built.
_REGISTERED = {entry.name: entry for entry in entry_points(group="privet.networks")}
NAMES: tuple[str, ...] = (*_NETWORKS, *_REGISTERED)
# Networks whose option `numbers` says which features are numbers scaled to [-1, 1].
FOR_TABLES = ("table",)


def build(name: str, input_shape: tuple[int, ...], classes: int, **options: object) -> nn.Module:
    """Return a new network that maps (N, *input_shape) to (N, classes) logits, with PyTorch's initialisation or pretrained.

    Networks for images have channels-last memory format, which is faster in torch; values and names do not change.

    Args:
        name: one of `NAMES`.
        input_shape: shape of one input: (channels, height, width) for "edge-cnn" (sides at least 11), "cnn" (14), "tanh-cnn" (8).
        classes: number of outputs: classes, ≥ 2, or 1 for a regression, which "logistic" refuses.
        options: `radius` and `intercept` for "bounded-linear", `width` and `activation` for "mlp", `numbers`, `waves`, `width`,
            `activation` and `scale` for "table", `activation` for "cnn" and "regression-mlp", `pooling` and `width` for
            "tanh-cnn", `width` for "edge-cnn".
    Errors: InvalidArgumentError for an unknown name or option, or an unsuitable input shape; for pretrained networks of other
        packages, PrivetError if a package is missing, and DataUnavailableError if the weights are not available.
    """
    network = _find(name)
    shape = tuple(count("input_shape", side) for side in input_shape)
    if not network.fits(shape):
        images = f"(channels, height, width) with height and width at least {network.smallest_side}"
        shapes = str(network.shape) if network.shape else images if network.smallest_side else "one dimension or more"
        others = ", ".join(other for other, another in _NETWORKS.items() if another.fits(shape))
        fix = f"Models that take this shape: {others or 'none'}."
        raise InvalidArgumentError("input_shape", shape, f"{shapes} for the model {name!r}", fix)
    parameters = inspect.signature(network.construct).parameters.values()
    known = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    for option in sorted(options.keys() - set(known)):
        allowed = f"one of {', '.join(known)}" if known else "left out"
        raise InvalidArgumentError("option", option, f"{allowed} for the model {name!r}")
    outputs = count("classes", classes, minimum=2 if network.task == "classification" else 1)
    built = network.construct(shape, outputs, **options)
    _ARGUMENTS[built] = (name, shape, outputs, options)
    of_images = len(shape) == 3 and shape[0] <= _CHANNELS_OF_IMAGES
    return built.to(memory_format=torch.channels_last) if of_images else built  # type: ignore[call-overload]


def find_arguments(module: nn.Module) -> tuple[str, tuple[int, ...], int, dict[str, object]] | None:
    """Return the arguments of `build` for a network; None for one that was built otherwise."""
    return _ARGUMENTS.get(module)


def is_pretrained(name: str) -> bool:
    """Return whether a network is built with pretrained weights, which come with another package."""
    return _find(name).shape is not None


def check_task(name: str, task: str) -> None:
    """Refuse a network that is for another task than "classification" or "regression"."""
    own = _find(name).task
    if own not in (None, task):
        others = ", ".join(repr(other) for other, network in _NETWORKS.items() if network.task == task)
        fix = f"It is for {own} only; use {others}, 'mlp' or 'table'."
        raise InvalidArgumentError("model", name, f"a network for {task}, which the target asks for", fix)


def _find(name: str) -> Network:
    if choice("name", name, NAMES) in _NETWORKS:
        return _NETWORKS[name]
    registered: Network = _REGISTERED[name].load()
    return registered
