"""Data sets, models and losses shared by the programs."""

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset, TensorDataset

import privet

WIDTH, CLASSES = 5, 4


class Listed(Dataset[Any]):
    """A map-style data set over a list, read item by item."""

    def __init__(self, items: Iterable[Any]) -> None:
        self.items = list(items)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


def without(data: Any, index: int) -> Any:
    """Return the data set without one example; data sets of other kinds have a method of this name."""
    keep = [position for position in range(len(data)) if position != index]
    if hasattr(data, "without"):
        return data.without(index)
    if isinstance(data, TensorDataset):
        return TensorDataset(*(tensor[keep] for tensor in data.tensors))
    other = copy.copy(data)
    other.items = [data.items[position] for position in keep]
    return other


def points(examples: int = 18, *, outlier: float = 1.0) -> TensorDataset:
    """Return vectors with class labels; the first vector is `outlier` times as long."""
    source = torch.Generator().manual_seed(3)
    x = 2 * torch.randn(examples, WIDTH, generator=source)
    x[0] *= outlier
    return TensorDataset(x, torch.randint(CLASSES, (examples,), generator=source))


def listed(data: TensorDataset) -> Listed:
    """Return the same examples in a list, labels as numbers."""
    return Listed((x, int(y)) for x, y in data)


def sentences(examples: int = 18, *, length: int = 7, words: int = 13) -> TensorDataset:
    """Return texts of equal length, with words numbered from 1, and class labels."""
    source = torch.Generator().manual_seed(4)
    text = torch.randint(1, words, (examples, length), generator=source)
    return TensorDataset(text, torch.randint(CLASSES, (examples,), generator=source))


def series(examples: int = 12, *, longest: int = 6, seed: int = 6) -> TensorDataset:
    """Return zero-padded sequences with their lengths ≥ 1, and class labels."""
    source = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest + 1, (examples,), generator=source)
    x = torch.randn(examples, longest, WIDTH, generator=source)
    x *= (torch.arange(longest) < lengths[:, None])[..., None]
    return TensorDataset(x, lengths, torch.randint(CLASSES, (examples,), generator=source))


def public(data: Any) -> dict[str, Any]:
    """Return the option with a public batch like `series`: synthetic lengths would be invalid."""
    return (
        {"reading": privet.Reading(probe_batch=series(3, seed=99).tensors)}
        if isinstance(data, TensorDataset) and len(data.tensors) == 3
        else {}
    )


def pictures() -> TensorDataset:
    """Return images with class labels."""
    return TensorDataset(torch.randn(8, 2, 6, 6, generator=torch.Generator().manual_seed(8)), torch.arange(8) % CLASSES)


def classify(model: Any, batch: Any) -> Tensor:
    """Return the cross-entropy of every example: inputs first, labels last."""
    *inputs, label = batch
    return F.cross_entropy(model(*inputs), label, reduction="none")


def perceptron() -> nn.Sequential:
    """Return two linear layers."""
    return nn.Sequential(nn.Linear(WIDTH, 7), nn.Tanh(), nn.Linear(7, CLASSES))


class Body(nn.Module):
    """Two linear layers, `inner` and `outer`, for custom forward passes."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(WIDTH, 7), nn.Linear(7, CLASSES)

    def hidden(self, x: Tensor) -> Tensor:
        """Return the hidden units."""
        return self.inner(x).tanh()

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.hidden(x))


def body_of(forward: Any, **attributes: Any) -> Any:
    """Return a maker of two layers with this forward (module, x), and with copies of these attributes.

    An attribute whose name begins with `buffer` is a buffer.
    """

    class Made(Body):
        def __init__(self) -> None:
            super().__init__()
            for name, value in copy.deepcopy(attributes).items():
                self.register_buffer(name, value) if name.startswith("buffer") else setattr(self, name, value)

        def forward(self, x: Tensor) -> Any:
            return forward(self, x)

    return Made


def model_of(forward: Any, **parts: nn.Module | nn.Parameter | Tensor) -> nn.Module:
    """Return a module with these parts (tensors become buffers) whose forward is a function (module, *inputs)."""

    class Made(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, part in parts.items():
                if isinstance(part, Tensor) and not isinstance(part, nn.Parameter):
                    self.register_buffer(name, part)
                else:
                    setattr(self, name, part)

        def forward(self, *inputs: Any) -> Any:
            return forward(self, *inputs)

    return Made()
