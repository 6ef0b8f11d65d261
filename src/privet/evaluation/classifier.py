"""Run a classifier over a test set and count."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset, default_collate

from privet.errors import InvalidArgumentError, count
from privet.evaluation.result import Evaluation


class LabelledExamples(Protocol):
    """A map-style data set: a length, and an (input, label) pair at every index below it."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class _Scores(NamedTuple):
    labels: Tensor  # (B,)
    predictions: Tensor  # (B,)
    losses: Tensor  # (B,), nats
    classes: int


def evaluate(
    model: nn.Module,
    dataset: LabelledExamples,
    *,
    batch_size: int = 1024,
    device: torch.device | str | None = None,
) -> Evaluation:
    """Measure a classifier on labelled examples, in evaluation mode and without gradients.

    The result is computed from the examples without noise: evaluating on private data is a release outside the
    guarantee of the training. The command line evaluates on the public test set only.

    Args:
        model: maps a batch of inputs to outputs of shape (B, classes), read as logits. Left as it was found: every
            submodule gets its own training flag back, whatever happens.
        dataset: `len(dataset)` pairs of an input tensor and a label in [0, classes).
        batch_size: examples per forward pass, at least 1; changes memory and speed, not the result.
        device: where the model is and the inputs are sent; the device of the model's first parameter if None.

    Returns:
        Accuracy, mean negative log-likelihood in nats (summed in float64), confusion counts and number of examples.

    Raises:
        InvalidArgumentError: the data set is empty, the batch size is not a positive whole number, the outputs are not
            of shape (B, classes), or a label is not one of the classes.
    """
    count("batch_size", batch_size)
    if len(dataset) == 0:
        raise InvalidArgumentError("len(dataset)", 0, "at least 1", "An empty set has no accuracy; pass test examples.")
    place = device if device is not None else _device_of(model)
    with _evaluation_mode(model), torch.no_grad():
        scores = [_score(model(inputs.to(place)), labels) for inputs, labels in _batches(dataset, batch_size)]
    return _summary(scores)


def _device_of(model: nn.Module) -> torch.device:
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


@contextmanager
def _evaluation_mode(model: nn.Module) -> Iterator[None]:
    # The flags are set directly, not through train() and eval(): layers that override those (to merge adapters, to
    # keep a part frozen) would act on the way in, and could not be put back exactly on the way out.
    flags = [(module, module.training) for module in model.modules()]
    try:
        for module, _ in flags:
            module.training = False
        yield
    finally:
        for module, flag in flags:
            module.training = flag


def _batches(dataset: LabelledExamples, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
    # No DataLoader: starting one draws from the global random generator, and a measurement must not move that.
    for start in range(0, len(dataset), batch_size):
        stop = min(start + batch_size, len(dataset))
        if isinstance(dataset, TensorDataset):
            inputs, labels = (tensor[start:stop] for tensor in dataset.tensors)
        else:
            inputs, labels = default_collate([dataset[index] for index in range(start, stop)])
        yield inputs, labels


def _score(outputs: Tensor, labels: Tensor) -> _Scores:
    if outputs.ndim != 2 or len(outputs) != len(labels):
        shape = tuple(outputs.shape)
        raise InvalidArgumentError(
            "the shape of model(inputs)",
            shape,
            f"({len(labels)}, classes)",
            "Wrap the model so that it returns logits.",
        )
    logits, targets, classes = outputs.cpu().double(), labels.cpu().long(), outputs.shape[1]
    if targets.ndim != 1 or targets.min() < 0 or targets.max() >= classes:
        raise InvalidArgumentError(
            "labels",
            sorted(set(targets.flatten().tolist()))[:10],
            f"class numbers from 0 to {classes - 1}, one per example",
        )
    losses = F.cross_entropy(logits, targets, reduction="none")
    return _Scores(targets, logits.argmax(dim=1), losses, classes)


def _summary(scores: list[_Scores]) -> Evaluation:
    classes = scores[0].classes
    labels, predictions, losses = (torch.cat(column) for column in list(zip(*scores, strict=True))[:3])
    confusion = torch.bincount(labels * classes + predictions, minlength=classes**2).reshape(classes, classes)
    return Evaluation(
        accuracy=int(confusion.trace()) / len(labels),
        negative_log_likelihood=float(losses.mean()),
        confusion=tuple(tuple(row) for row in confusion.tolist()),
        examples=len(labels),
    )
