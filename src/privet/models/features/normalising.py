"""Coefficients made fit for linear models: each a function of one example and of images that anybody can make.

A private linear model learns the directions in which its inputs vary most, and noise hides the others. So inputs are brought to
vary alike in all directions, by what is public: statistics of the private data would have to be paid for.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from privet.data import DataSet
from privet.models.features.dead_leaves import dead_leaves
from privet.models.features.scattering import COVERED, SCATTERING

Change = Callable[[Tensor], Tensor]  # (N, C, H, W) → the same shape, of each example by itself
Step = Callable[[Tensor], Change]  # of public coefficients (M, C, H, W)

_PUBLIC_IMAGES = 2000
_FLOOR = 1e-3  # of the largest variance: directions below it are not raised further
_GROUPS = 27
# Long beside the 1 of a bias, so that the bias takes little of the clip bound; short enough that a linear layer's usual initial
# values count for little.
_LENGTH = 10.0
_AT_ONCE = 2000


def rooted(public: Tensor) -> Change:
    """Take roots of all channels but the first, which are moduli: many are small and few are large."""

    def change(values: Tensor) -> Tensor:
        return torch.cat((values[:, :1], values[:, 1:].clamp(min=0).sqrt()), 1)

    return change


def whitened(public: Tensor) -> Change:
    """Subtract the public mean of the channels, and take their public covariance, over places and images, to the identity."""
    rows = public.movedim(1, -1).flatten(0, -2).double()
    mean = rows.mean(0)
    variances, directions = torch.linalg.eigh((rows - mean).T @ (rows - mean) / len(rows))
    scales = (variances.clamp(min=0) + _FLOOR * variances.max()).rsqrt()
    matrix = ((directions * scales) @ directions.T).float()
    shift = mean.float().view(-1, 1, 1)

    def change(values: Tensor) -> Tensor:
        return torch.einsum("ij,njhw->nihw", matrix, values - shift)

    return change


def localised(public: Tensor) -> Change:
    """Divide by 1 + length over the channels of a place, so that every place counts about alike.

    Source: local normalisation, as in histograms of gradients: Dalal, Triggs 2005, "Histograms of oriented gradients for human
        detection".
    """
    return lambda values: values / (1 + values.norm(dim=1, keepdim=True))


def grouped(public: Tensor) -> Change:
    """Take mean and variance of each of 27 groups of channels to 0 and 1, as Tramèr and Boneh 2021 do."""
    return lambda values: F.group_norm(values, _GROUPS)


def normalised(coefficients: DataSet, steps: Sequence[Step]) -> DataSet:
    """Return scattering coefficients after some steps, every example brought to length 10.

    Args:
        coefficients: of grey images, (N, 81, height, width).
        steps: what is done, in this order.

    Guarantee:
        An example's features are a function of that example alone, so nothing is released by them: what the steps know of other
        images is of `dead_leaves`.
    """
    public = _of_leaves(coefficients.input_shape[-1])
    changes = []
    for step in steps:
        changes.append(step(public))
        public = changes[-1](public)

    def changed(examples: TensorDataset) -> TensorDataset:
        found, labels = torch.empty_like(examples.tensors[0]), examples.tensors[1]
        for part, out in zip(torch.split(examples.tensors[0], _AT_ONCE), torch.split(found, _AT_ONCE), strict=True):
            values = functools.reduce(lambda values, change: change(values), changes, part)
            out.copy_(_LENGTH * F.normalize(values.flatten(1)).view_as(values))
        return TensorDataset(found, labels)

    test = None if coefficients.test is None else changed(coefficients.test)
    return replace(coefficients, train=changed(coefficients.train), test=test)


@functools.lru_cache(maxsize=1)
def _of_leaves(width: int) -> Tensor:
    """Return the coefficients of made-up images that have so many along a side."""
    images = dead_leaves(_PUBLIC_IMAGES, width * COVERED)
    described = DataSet("dead leaves", TensorDataset(images, torch.zeros(len(images), dtype=torch.int64)), None, 2, "made up")
    return SCATTERING.prepared(described)(images)
