"""From one item of a data set to the batch of one that a model is handed, padded to a public length if asked."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils import _pytree as pytree
from torch.utils.data import default_collate
from torch.utils.data._utils.collate import default_collate_fn_map

from privet.errors import InvalidArgumentError, count, real
from privet.gradients.core.examples import stackable

Collate = Callable[[list[Any]], Any]
_NUMBERS = "biufc"  # kinds of NumPy's types that are numbers
_CONSTANTS = (str, bytes, int, float, bool, type(None))
_TORCHS_OWN = dict(default_collate_fn_map)


def batch_of_one(item: Any) -> Any:
    """Return what `default_collate([item])` does, in memory of its own and with every mapping as a dict.

    It is some times quicker: reading calls it for every example.

    Raises:
        TypeError, RuntimeError: as `default_collate` does, for what it cannot take.
    """
    return _convert(item) if default_collate_fn_map == _TORCHS_OWN else own_batch(default_collate([item]))


def _convert(item: Any, listed: type[list[Any]] | type[tuple[Any, ...]] = list) -> Any:
    """Return an item as a batch of one; texts stand in a list, within sequences in a tuple, as torch has it."""
    kind = type(item)
    if stackable(item):
        return item.detach().unsqueeze(0).clone()
    if kind is int or kind is bool:
        return torch.tensor([item])
    if kind is float:
        return torch.tensor([item], dtype=torch.float64)
    if kind is np.ndarray and item.dtype.kind in _NUMBERS:
        return torch.from_numpy(item[None].copy())
    if kind is tuple or kind is list:
        return [_convert(part, tuple) for part in item]
    if kind is dict:
        return {key: _convert(part) for key, part in item.items()}
    if kind is str or kind is bytes:
        return listed((item,))
    if isinstance(item, np.generic) and item.dtype.kind in _NUMBERS:
        return torch.from_numpy(np.array([item]))
    if isinstance(item, tuple) and hasattr(item, "_fields"):
        return kind(*(_convert(part, tuple) for part in item))
    return own_batch(default_collate(listed((item,))))  # type: ignore[arg-type]


def own_batch(batch: Any) -> Any:
    """Return a batch with memory of its own, whose dense tensors ask for no gradient, with every mapping as a dict.

    A data set may write the next example over this one, or return its own tensors, which a model could then write to. Mappings
    such as transformers' `BatchEncoding` would otherwise be opaque: their tensors would not be found.
    """
    kind = type(batch)
    if isinstance(batch, Tensor):
        return _own_tensor(batch)
    if kind is dict or isinstance(batch, Mapping):
        return {key: own_batch(part) for key, part in batch.items()}
    if kind is list or kind is tuple:
        return kind([own_batch(part) for part in batch])
    parts, tree = pytree.tree_flatten(batch, is_leaf=lambda part: part is not batch)
    if not tree.is_leaf():
        return pytree.tree_unflatten([own_batch(part) for part in parts], tree)
    return batch if kind in _CONSTANTS else _copied(batch)


def _own_tensor(tensor: Tensor) -> Tensor:
    """Return a copy of a tensor, of torch's own class where its class only watches functions; others are left as they are."""
    if type(tensor) is not Tensor and type(tensor).__torch_dispatch__ is Tensor.__torch_dispatch__:
        with torch._C.DisableTorchFunctionSubclass():
            tensor = tensor.detach().as_subclass(Tensor)
    return tensor.detach().clone() if stackable(tensor) else _copied(tensor)


def _copied(value: Any) -> Any:
    """Return a deep copy, or the object itself where it has none: it might be written over when the next example is read."""
    try:
        return copy.deepcopy(value)
    except Exception:
        return value


@dataclass(frozen=True)
class Padded:
    """A collate function that pads an example's sequences to a public length, which depends on this example alone.

    Without it, examples of every length are computed by themselves; with it, those of a bucket are computed together. The
    model must not take padding for content: give `masks`, or a `value` that it knows.

    Args:
        multiple: sequences are padded to the next multiple of it, ≥ 1, and at least to this length.
        lengths: in its place, the lengths there are, increasing; what is longer than the last is cut.
        value: what to pad with; or a dict with a value for each field, 0 for those that are not in it.
        dimension: of an item's tensor that is the sequence, ≥ 0, not counting the dimension of the batch.
        fields: keys of a dict or positions in a tuple or list that are sequences; by default every tensor with that dimension.
            A single tensor is the field 0.
        inner: collate function that is called first, with the item in a list; `default_collate` if None.
        masks: whether to return (batch, masks), where masks holds for each field a bool tensor (1, padded length) that is true
            where there is content: a dict of them, or a list, as the batch is.

    Guarantee:
        Lengths are public numbers, and which of them an example has depends on itself only.

    Raises:
        InvalidArgumentError: an argument is out of range, or a field is missing.

    >>> import torch
    >>> Padded(multiple=4)([(torch.tensor([7, 8, 9, 9, 9]), 1)])
    [tensor([[7, 8, 9, 9, 9, 0, 0, 0]]), tensor([1])]
    >>> collate = Padded(lengths=(2, 4), value={"tokens": -1}, masks=True)
    >>> batch, masks = collate([{"tokens": torch.tensor([7, 8, 9]), "label": 1}])
    >>> batch["tokens"], batch["label"], masks["tokens"]
    (tensor([[ 7,  8,  9, -1]]), tensor([1]), tensor([[ True,  True,  True, False]]))
    >>> collate([{"tokens": torch.arange(6), "label": 1}])[0]["tokens"]
    tensor([[0, 1, 2, 3]])
    """

    multiple: int = 16
    lengths: Sequence[int] | None = None
    value: float | Mapping[Any, float] = 0
    dimension: int = 0
    fields: Sequence[Any] | None = None
    inner: Collate | None = None
    masks: bool = False

    def __post_init__(self) -> None:
        count("multiple", self.multiple)
        count("dimension", self.dimension, minimum=0)
        for value in self.value.values() if isinstance(self.value, Mapping) else (self.value,):
            if not isinstance(value, bool):
                real("value", value)
        if self.lengths is not None:
            lengths = [count("lengths", length) for length in self.lengths]
            if not lengths or lengths != sorted(set(lengths)):
                raise InvalidArgumentError("lengths", self.lengths, "one length or more, increasing")

    def __call__(self, items: list[Any]) -> Any:
        """Return the batch of one that a list of one item makes."""
        if len(items) != 1:
            raise InvalidArgumentError("items", f"{len(items)} items", "a list of one", "Padded makes the batch of one example.")
        batch = own_batch(self.inner(items)) if self.inner else batch_of_one(items[0])
        parts: dict[Any, Any] = dict(batch) if isinstance(batch, dict) else dict(enumerate(_listed(batch)))
        found: dict[Any, Tensor] = {}
        for field in self._chosen(parts):
            length = parts[field].shape[self.dimension + 1]
            parts[field] = self._pad(parts[field], field)
            found[field] = torch.arange(parts[field].shape[self.dimension + 1])[None] < length
        padded = parts if isinstance(batch, dict) else _like(batch, list(parts.values()))
        if not self.masks:
            return padded
        return padded, found if isinstance(batch, dict) else _like(batch, list(found.values()), named=False)

    def _chosen(self, parts: Mapping[Any, Any]) -> list[Any]:
        def sequence(field: Any) -> bool:
            return isinstance(parts.get(field), Tensor) and parts[field].dim() > self.dimension + 1

        if self.fields is None:
            return [field for field in parts if sequence(field)]
        if missing := [field for field in self.fields if not sequence(field)]:
            raise InvalidArgumentError(
                "fields",
                missing[0],
                f"a tensor with dimension {self.dimension} in every item",
                "Leave out the dimension of the batch.",
            )
        return list(self.fields)

    def _pad(self, tensor: Tensor, field: Any) -> Tensor:
        dimension = self.dimension + 1
        length = self._length(tensor.shape[dimension])
        tensor = tensor.narrow(dimension, 0, min(length, tensor.shape[dimension]))
        value = self.value.get(field, 0) if isinstance(self.value, Mapping) else self.value
        behind = [0, 0] * (tensor.dim() - dimension - 1) + [0, length - tensor.shape[dimension]]
        return F.pad(tensor, behind, value=value)

    def _length(self, length: int) -> int:
        """Return the public length for a sequence."""
        if self.lengths is None:
            return max(1, -(-length // self.multiple)) * self.multiple
        return next((each for each in self.lengths if each >= length), self.lengths[-1])


def _listed(batch: Any) -> list[Any]:
    return list(batch) if isinstance(batch, list | tuple) else [batch]


def _like(batch: Any, parts: list[Any], named: bool = True) -> Any:
    """Return parts in the container that a batch is: a list, a tuple, a named tuple, or none."""
    if isinstance(batch, Tensor):
        return parts[0] if parts else None
    if isinstance(batch, tuple):
        return type(batch)(*parts) if named and hasattr(batch, "_fields") else tuple(parts)
    return parts
