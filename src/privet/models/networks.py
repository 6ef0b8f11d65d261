"""Networks by name."""

from __future__ import annotations

__all__ = ["FOR_TABLES", "NAMES", "build", "check_task", "is_pretrained"]

import inspect
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from privet.errors import InvalidArgumentError, choice, count
from privet.models import convolutional, edges
from privet.models.convolutional import cnn, relu_cnn, scattering_cnn, strided_cnn, tanh_cnn
from privet.models.dense import bounded_linear, linear, logistic, mlp, regression_mlp
from privet.models.edges import edge_cnn
from privet.models.features import efficientnet, minilm
from privet.models.pretrained import efficientnet_last_block, minilm_last_layer, minilm_lora
from privet.models.tabular import table

# Largest number of channels of an image. On a CPU, torch pools feature maps of images 3 to 11 times faster in channels-last
# format, which is half of a small network's step; inputs with many channels gain nothing.
_CHANNELS_OF_IMAGES = 3


@dataclass(frozen=True)
class _Network:
    construct: Callable[..., nn.Module]
    smallest_side: int | None = None  # smallest side of an image in pixels; None for inputs of any shape
    task: str | None = None  # the only task; None for classification and regression
    shape: tuple[int, ...] | None = None  # the only accepted input shape

    def fits(self, shape: tuple[int, ...]) -> bool:
        if self.shape is not None:
            return shape == self.shape
        if self.smallest_side is None:
            return len(shape) > 0
        return len(shape) == 3 and min(shape[1:]) >= self.smallest_side


_NETWORKS = {
    "logistic": _Network(logistic, task="classification"),
    "linear": _Network(linear, task="regression"),
    "bounded-linear": _Network(bounded_linear),
    "mlp": _Network(mlp),
    "table": _Network(table),
    "edge-cnn": _Network(edge_cnn, edges.SMALLEST_SIDE),
    "cnn": _Network(cnn, convolutional.CNN_SMALLEST_SIDE),
    "tanh-cnn": _Network(tanh_cnn, convolutional.TANH_CNN_SMALLEST_SIDE),
    "strided-cnn": _Network(strided_cnn, convolutional.STRIDED_CNN_SMALLEST_SIDE),
    "relu-cnn": _Network(relu_cnn, convolutional.RELU_CNN_SMALLEST_SIDE),
    "scattering-cnn": _Network(scattering_cnn, convolutional.SCATTERING_CNN_SMALLEST_SIDE),
    "regression-mlp": _Network(regression_mlp, task="regression"),
    "efficientnet-last-block": _Network(efficientnet_last_block, shape=efficientnet.LAST_BLOCK_INPUT),
    "minilm-last-layer": _Network(minilm_last_layer, shape=(minilm.LENGTH, minilm.WIDTH)),
    "minilm-lora": _Network(minilm_lora, shape=(minilm.LENGTH,)),
}

NAMES: tuple[str, ...] = tuple(_NETWORKS)
# Networks whose option `numbers` says which features are numbers scaled to [-1, 1].
FOR_TABLES = ("table",)


def build(name: str, input_shape: tuple[int, ...], classes: int, **options: object) -> nn.Module:
    """Return a new network that maps (N, *input_shape) to (N, classes) logits, with PyTorch's initialisation or pretrained.

    Networks for images have channels-last memory format, which is faster in torch; values and names do not change.

    Args:
        name: one of `NAMES`.
        input_shape: shape of one input: (channels, height, width) for "edge-cnn" (sides at least 11), "cnn" (14), "tanh-cnn" (8),
            "strided-cnn" (5), "relu-cnn" (16) and "scattering-cnn" (2); (192, 3, 3), (48, 384) and (48,) for the pretrained
            "efficientnet-last-block", "minilm-last-layer" and "minilm-lora", which take features of `privet.models.features`.
        classes: number of outputs: classes, ≥ 2, or 1 for a regression, which "logistic" refuses.
        options: `radius` and `intercept` for "bounded-linear", `width` and `activation` for "mlp", `numbers`, `waves`, `width`
            and `activation` for "table", `activation` for "cnn" and "regression-mlp", `pooling` and `width` for "tanh-cnn",
            `width` for "edge-cnn" and "strided-cnn", `rank` for "minilm-lora".
    Errors: InvalidArgumentError for an unknown name or option, or an unsuitable input shape; for pretrained networks, PrivetError
        if a package is missing, and DataUnavailableError if the weights are not available.
    """
    network = _NETWORKS[choice("name", name, NAMES)]
    shape = tuple(count("input_shape", side) for side in input_shape)
    if not network.fits(shape):
        raise _shape_error(name, shape)
    _check_options(name, network, options)
    built = network.construct(shape, count("classes", classes, minimum=2 if network.task == "classification" else 1), **options)
    of_images = len(shape) == 3 and shape[0] <= _CHANNELS_OF_IMAGES
    return built.to(memory_format=torch.channels_last) if of_images else built  # type: ignore[call-overload]


def is_pretrained(name: str) -> bool:
    """Return whether a network is built with pretrained weights, which come with another package."""
    return _NETWORKS[choice("name", name, NAMES)].shape is not None


def check_task(name: str, task: str) -> None:
    """Refuse a network that is for another task.

    Args:
        name: one of `NAMES`.
        task: "classification" or "regression".

    Raises:
        InvalidArgumentError: names the task of the network, and networks for the task that was given.
    """
    own = _NETWORKS[choice("name", name, NAMES)].task
    if own not in (None, task):
        others = ", ".join(repr(other) for other, network in _NETWORKS.items() if network.task == task)
        raise InvalidArgumentError(
            "model", name, f"a network for {task}, which the target asks for",
            f"It is for {own} only; use {others}, 'mlp' or 'table'.",
        )  # fmt: skip


def _shape_error(name: str, shape: tuple[int, ...]) -> InvalidArgumentError:
    network = _NETWORKS[name]
    images = f"(channels, height, width) with height and width at least {network.smallest_side}"
    shapes = str(network.shape) if network.shape else images if network.smallest_side else "one dimension or more"
    allowed = f"{shapes} for the model {name!r}"
    others = ", ".join(other for other, network in _NETWORKS.items() if network.fits(shape))
    return InvalidArgumentError("input_shape", shape, allowed, f"Models that take this shape: {others or 'none'}.")


def _check_options(name: str, network: _Network, options: dict[str, object]) -> None:
    parameters = inspect.signature(network.construct).parameters.values()
    known = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    for option in sorted(options.keys() - set(known)):
        allowed = f"one of {', '.join(known)}" if known else "left out"
        raise InvalidArgumentError("option", option, f"{allowed} for the model {name!r}")
