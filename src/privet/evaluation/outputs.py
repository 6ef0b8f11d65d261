"""Outputs of a model on a data set, computed without changing the model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset, default_collate

from privet.errors import InvalidArgumentError, count


class LabelledExamples(Protocol):
    """A map-style data set with an (input, label) pair at each index."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


def iterate_outputs(
    model: nn.Module, dataset: LabelledExamples, batch_size: int, device: torch.device | str | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the model's outputs and the labels of each batch, in evaluation mode and without gradients, on the CPU.

    The model is not changed: each submodule gets its training flag back, even after an exception. By default, inputs are moved
    to the device of its first parameter.
    """
    count("batch_size", batch_size)
    if len(dataset) == 0:
        raise InvalidArgumentError("len(dataset)", 0, "at least 1", "Pass test examples; an empty set has no accuracy.")
    place = device or next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    with evaluation_mode(model), torch.no_grad():
        for inputs, labels in _batches(dataset, batch_size):
            yield model(inputs.to(place)).cpu(), labels.cpu()


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Return a context in which no submodule trains, and after which each has the flag that it had.

    The flags are set directly, not by train() and eval(): layers that override these methods (to merge adapters, to keep a part
    frozen) would have side effects, which could not be undone exactly.
    """
    flags = [(module, module.training) for module in model.modules()]
    try:
        for module, _ in flags:
            module.training = False
        yield
    finally:
        for module, flag in flags:
            module.training = flag


def _batches(dataset: LabelledExamples, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
    # No DataLoader: it draws from the global random generator, whose state a measurement must not change.
    for start in range(0, len(dataset), batch_size):
        stop = min(start + batch_size, len(dataset))
        if isinstance(dataset, TensorDataset):
            inputs, labels = (tensor[start:stop] for tensor in dataset.tensors)
        else:
            inputs, labels = default_collate([dataset[index] for index in range(start, stop)])
        yield inputs, labels
