"""Scattering coefficients of images: wavelet filters with nothing to learn.

Source: Oyallon, Mallat 2015, "Deep roto-translation scattering for object classification"; as features for private training,
Tramèr, Boneh 2021, "Differentially private learning needs better features (or much more data)".
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from privet.data.dataset import DataSet
from privet.errors import InvalidArgumentError, PrivetError

# Two scales and eight angles, as in the papers: 81 coefficients for each 4×4 pixels of a channel.
_SCALES = 2
_AT_ONCE = 256


def scattered(data: DataSet) -> DataSet:
    """Return the images' scattering coefficients of order two in their place: (channels·81, height/4, width/4).

    All of them are kept in memory: a gigabyte for 70,000 images of 28×28.

    Args:
        data: images (N, channels, height, width).

    Raises:
        PrivetError: kymatio is not installed.
        InvalidArgumentError: the inputs are not images.
    """
    try:
        # From where it is, as the package's front imports parts that newer versions of SciPy do not carry.
        from kymatio.scattering2d.frontend.torch_frontend import ScatteringTorch2D
    except ImportError:
        raise PrivetError("scattering needs kymatio, which is not installed; run: pip install 'privet[scattering]'") from None
    if len(data.input_shape) != 3:
        raise InvalidArgumentError("data", data.name, "images (channels, height, width), for scattering")
    scattering = ScatteringTorch2D(J=_SCALES, shape=data.input_shape[1:])

    def coefficients(examples: TensorDataset) -> TensorDataset:
        images, labels = examples.tensors
        found: list[Tensor] = [scattering(some).flatten(1, 2) for some in torch.split(images, _AT_ONCE)]
        return TensorDataset(torch.cat(found), labels)

    return replace(data, train=coefficients(data.train), test=None if data.test is None else coefficients(data.test))
