"""Features of images by EfficientNet-Lite0."""

from __future__ import annotations

__all__ = ["BEFORE_LAST_BLOCK", "POOLED"]

import torch
from torch import Tensor
from torch.nn import functional as F

from privet.data import DataSet
from privet.errors import InvalidArgumentError
from privet.models.pretrained.efficientnet import SHA256, SIDE, last_block, pretrained
from privet_experiments.features.extraction import Compute, Extractor

_AT_ONCE = 50


def _images(data: DataSet) -> Compute:
    """Return the function that converts images to inputs of the network: from −1 to 1, three channels, resized."""
    if data.pixel_range is None or data.input_shape[0] not in (1, 3):
        allowed = "greyscale or colour images of a known scale, such as cifar-10, for EfficientNet"
        raise InvalidArgumentError("data", data.name, allowed, "Arrays of unsigned bytes in an .npz file have a known scale.")
    black, white = data.pixel_range

    def resize(images: Tensor) -> Tensor:
        scaled = ((images - black) / (white - black) * 2 - 1).expand(-1, 3, -1, -1)
        return F.interpolate(scaled, size=SIDE, mode="bicubic").contiguous(memory_format=torch.channels_last)

    return resize


def _prepared(data: DataSet) -> Compute:
    images, network = _images(data), pretrained()

    def before(inputs: Tensor) -> Tensor:
        found = network._swish(network._bn0(network._conv_stem(images(inputs))))
        for block in network._blocks[:-1]:
            found = block(found)
        return found  # type: ignore[no-any-return]

    return lambda inputs: torch.cat([before(some) for some in torch.split(inputs, _AT_ONCE)]).contiguous()


def _pooled(data: DataSet) -> Compute:
    before, rest = _prepared(data), last_block()
    return lambda inputs: torch.cat([rest(before(some)) for some in torch.split(inputs, _AT_ONCE)])


_VERSION = f"{SHA256} at {SIDE} pixels, 1"
POOLED = Extractor("efficientnet-lite0", _VERSION, _pooled, scaled=True)
BEFORE_LAST_BLOCK = Extractor("efficientnet-lite0-before-last-block", _VERSION, _prepared, scaled=True)
