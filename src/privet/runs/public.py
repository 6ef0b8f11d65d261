"""Public examples for anchor gradients, by the name that a plan gives them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from privet.clipping import GEP, Rule
from privet.data import DataSet, load
from privet.data.sets.dead_leaves import DEVIATION, MEAN, dead_leaves
from privet.errors import InvalidArgumentError

DEAD_LEAVES = "dead-leaves"
# Made-up images, of which a step draws its anchors.
_IMAGES = 2000
_PALEST = 0.4  # smallest factor of a channel in a made-up colour


def load_public(rule: Rule, dataset: DataSet) -> TensorDataset | None:
    """Return the public examples that a plan's rule names, or None for a rule without any.

    The name is that of a data set of the catalogue, the path of an .npz file, or "dead-leaves" for made-up images. Labels are
    drawn at random from a fixed seed, as in Yu et al. 2021, "Do Not Let Privacy Overbill Utility: Gradient Embedding Perturbation
    for Private Learning", section 4. Of the private data set, only shape, classes and pixel range are read.
    """
    if not isinstance(rule, GEP):
        return None
    if dataset.classes is None:
        raise InvalidArgumentError(
            "clipping", "GEP", "another rule for a regression by name", "In Python, pass public=... to privet.Training."
        )
    inputs = _make_images(dataset, max(_IMAGES, rule.anchors)) if rule.public == DEAD_LEAVES else _load(rule, dataset)
    if inputs.shape[1:] != dataset.input_shape:
        raise InvalidArgumentError(
            "clipping.public", f"{rule.public!r} of shape {tuple(inputs.shape[1:])}", f"of shape {dataset.input_shape}",
            "Public examples must look like the private ones to the model.",
        )  # fmt: skip
    labels = torch.randint(dataset.classes, (len(inputs),), generator=torch.Generator().manual_seed(0), device="cpu")
    return TensorDataset(inputs, labels)


def _load(rule: GEP, dataset: DataSet) -> Tensor:
    path = rule.public.lower().endswith(".npz")
    found = load(rule.public, classes=dataset.classes) if path else load(rule.public)
    # A copy of a file elsewhere is not noticed: to compare the contents would make an error depend on them.
    if found.name == dataset.name and (not path or found.provenance == dataset.provenance):
        raise InvalidArgumentError(
            "clipping.public", rule.public, "other data than those that are trained on",
            "What gradients of private examples span is private, too.",
        )  # fmt: skip
    return found.train.tensors[0]


def _make_images(dataset: DataSet, number: int) -> Tensor:
    """Return dead leaves (number, *input shape) on the scale of the data's pixels, in random colours."""
    shape = dataset.input_shape
    if len(shape) != 3 or shape[1] != shape[2] or dataset.pixel_range is None:
        raise InvalidArgumentError("clipping.public", DEAD_LEAVES, "another name", "These images are square, on a known scale.")
    black, white = dataset.pixel_range
    grey = dead_leaves(number, shape[1]) * DEVIATION + MEAN
    colours = torch.rand(number, shape[0], 1, 1, generator=torch.Generator().manual_seed(1), device="cpu")
    tinted = grey * (1 if shape[0] == 1 else _PALEST + (1 - _PALEST) * colours)
    return black + (white - black) * tinted
