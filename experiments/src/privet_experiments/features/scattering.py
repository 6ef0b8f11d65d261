"""Scattering coefficients of images, by fixed wavelet filters.

Source: Oyallon, Mallat 2015, "Deep roto-translation scattering for object classification"; as features for private training,
Tramèr, Boneh 2021, "Differentially private learning needs better features (or much more data)".
"""

from __future__ import annotations

__all__ = ["COVERED", "SCATTERING", "UPRIGHT"]

import torch
from torch import Tensor

from privet.data import DataSet
from privet.errors import InvalidArgumentError, PrivetError
from privet_experiments.features.extraction import Compute, Extractor
from privet_experiments.features.upright import deskew

# Two scales and eight angles, as in the papers: 81 coefficients per 4×4 pixels of a channel.
_SCALES = 2
COVERED = 2**_SCALES
_AT_ONCE = 256


def _prepared(data: DataSet) -> Compute:
    try:
        # Imported from its module, because the package's front end imports functions that newer versions of SciPy lack.
        from kymatio.scattering2d.frontend.torch_frontend import ScatteringTorch2D
    except ImportError:
        raise PrivetError(
            "scattering needs kymatio, which is not installed; run: pip install 'privet-experiments[scattering]'"
        ) from None
    if len(data.input_shape) != 3:
        raise InvalidArgumentError("data", data.name, "images (channels, height, width), for scattering")
    scattering = ScatteringTorch2D(J=_SCALES, shape=data.input_shape[1:])

    def coefficients(images: Tensor) -> Tensor:
        return torch.cat([scattering(some).flatten(1, 2) for some in torch.split(images, _AT_ONCE)])

    return coefficients


def _prepared_upright(data: DataSet) -> Compute:
    coefficients = _prepared(data)
    return lambda images: coefficients(deskew(images))


# Order two: (channels·81, height/4, width/4). They are kept in memory: 1 GB for 70,000 images of 28×28.
SCATTERING = Extractor("scattering", f"scales {_SCALES}, 1", _prepared)
UPRIGHT = Extractor("upright-scattering", f"scales {_SCALES}, 1, upright 1", _prepared_upright)
