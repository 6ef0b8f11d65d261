"""Normalisation of scattering coefficients for linear models, by a function of one example and of synthetic images.

A private linear model learns the directions of largest input variance; noise hides the others. The inputs are therefore scaled
to similar variance in all directions, using public images only: statistics of private data would spend privacy.
"""

from __future__ import annotations

__all__ = ["Change", "Step", "normalise", "normalise_groups", "normalise_locally", "take_roots", "whiten"]

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from privet.data import DataSet
from privet.data.sets.dead_leaves import dead_leaves
from privet_experiments.features.scattering import COVERED, SCATTERING

Change = Callable[[Tensor], Tensor]  # (N, C, H, W) → the same shape, for each example by itself
Step = Callable[[Tensor], Change]  # fitted to public coefficients (M, C, H, W)

_PUBLIC_IMAGES = 2000
_FLOOR = 1e-3  # fraction of the largest variance that is added to all variances before whitening
_GROUPS = 27
# Large compared with the constant input 1 of a bias, so that the bias uses little of the clip bound; small enough that the usual
# initial values of a linear layer have little effect.
_LENGTH = 10.0
_AT_ONCE = 2000


def take_roots(public: Tensor) -> Change:
    """Take square roots of all channels but the first; they are moduli, many of them small and few large."""

    def change(values: Tensor) -> Tensor:
        return torch.cat((values[:, :1], values[:, 1:].clamp(min=0).sqrt()), 1)

    return change


def whiten(public: Tensor) -> Change:
    """Whiten the channels by their mean and covariance over positions and public images."""
    rows = public.movedim(1, -1).flatten(0, -2).double()
    mean = rows.mean(0)
    variances, directions = torch.linalg.eigh((rows - mean).T @ (rows - mean) / len(rows))
    scales = (variances.clamp(min=0) + _FLOOR * variances.max()).rsqrt()
    matrix = ((directions * scales) @ directions.T).float()
    shift = mean.float().view(-1, 1, 1)

    def change(values: Tensor) -> Tensor:
        return torch.einsum("ij,njhw->nihw", matrix, values - shift)

    return change


def normalise_locally(public: Tensor) -> Change:
    """Divide by 1 + the norm over the channels at each position, so that all positions have similar weight.

    Source: Dalal, Triggs 2005, "Histograms of oriented gradients for human detection".
    """
    return lambda values: values / (1 + values.norm(dim=1, keepdim=True))


def normalise_groups(public: Tensor) -> Change:
    """Normalise each of 27 groups of channels to mean 0 and variance 1, as in Tramèr and Boneh 2021."""
    return lambda values: F.group_norm(values, _GROUPS)


def normalise(coefficients: DataSet, steps: Sequence[Step]) -> DataSet:
    """Normalise scattering coefficients of greyscale images, (N, 81, height, width), and scale each example to norm 10.

    Guarantee:
        The features of an example are a function of this example alone, and release nothing: the steps are fitted to images of
        `dead_leaves` only.
    """
    public = _dead_leaves_coefficients(coefficients.input_shape[-1])
    changes = []
    for step in steps:
        changes.append(step(public))
        public = changes[-1](public)

    def apply(examples: TensorDataset) -> TensorDataset:
        found, labels = torch.empty_like(examples.tensors[0]), examples.tensors[1]
        for part, out in zip(torch.split(examples.tensors[0], _AT_ONCE), torch.split(found, _AT_ONCE), strict=True):
            values = functools.reduce(lambda values, change: change(values), changes, part)
            out.copy_(_LENGTH * F.normalize(values.flatten(1)).view_as(values))
        return TensorDataset(found, labels)

    test = None if coefficients.test is None else apply(coefficients.test)
    return replace(coefficients, train=apply(coefficients.train), test=test)


@functools.lru_cache(maxsize=1)
def _dead_leaves_coefficients(width: int) -> Tensor:
    """Return the scattering coefficients of synthetic images, `width` along each side."""
    images = dead_leaves(_PUBLIC_IMAGES, width * COVERED)
    described = DataSet("dead leaves", TensorDataset(images, torch.zeros(len(images), dtype=torch.int64)), None, 2, "synthetic")
    return SCATTERING.prepared(described)(images)
