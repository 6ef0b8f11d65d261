"""Oriented edges of images, by fixed filters that need no weights."""

from __future__ import annotations

__all__ = ["EDGES"]

import torch
from torch import Tensor
from torch.nn import functional

from privet.data import DataSet
from privet.errors import InvalidArgumentError
from privet.models.convolutional import EDGES_SMALLEST_SIDE, OrientedEdges
from privet_experiments.features.extraction import Compute, Extractor

_LENGTH = 10.0  # of the features of an image, like those of normalised scattering


def _prepared(data: DataSet) -> Compute:
    if len(data.input_shape) != 3 or min(data.input_shape[1:]) < EDGES_SMALLEST_SIDE:
        raise InvalidArgumentError(
            "data", data.name, f"images (channels, height, width) of at least {EDGES_SMALLEST_SIDE} pixels"
        )
    edges = OrientedEdges(data.input_shape[0])

    @torch.no_grad()
    def features(images: Tensor) -> Tensor:
        found = functional.group_norm(edges(images), 1).flatten(1)
        return _LENGTH * functional.normalize(found)

    return features


# (16·channels·⌈height/4⌉·⌈width/4⌉,), normalised for each image alone.
EDGES = Extractor("oriented-edges", "1", _prepared)
