"""Collation of one data set item to a batch of one, optionally padded to a public length."""

from __future__ import annotations

__all__ = ["Collate", "Padded"]

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils import _pytree as pytree
from torch.utils.data import default_collate
from torch.utils.data._utils.collate import default_collate_fn_map

from privet._utils.randomness import preserve_generators, seed_generators
from privet.errors import InvalidArgumentError, UnsupportedModelError, count, real
from privet.gradients.core.examples import is_stackable

Collate = Callable[[list[Any]], Any]
_NUMBERS = "biufc"  # NumPy's numeric dtype kinds
_NUMERIC = (Tensor, np.ndarray, np.generic, int, float)
_CONSTANTS = (str, bytes, int, float, bool, type(None))
_TORCHS_OWN = dict(default_collate_fn_map)


# Keys and positions that lead to numbers within an item.
Path = tuple[Any, ...]


def collate_one(item: Any, collate: Collate | None = None, floats: Collection[Path] = ()) -> Any:
    """Return the batch of one of an item: by `collate([item])`, or in the default way.

    The default is `default_collate([item])`, except that a list of numbers in a mapping, such as token ids, becomes one tensor
    (1, length): of int64 for integers, else of torch's default dtype. Whole numbers in fields of `floats` become floats: a
    field that is 0.5 in one example and 1 in the next would otherwise have two dtypes.
    """
    if collate is not None:
        return copy_batch(collate([item]))
    if floats:
        item = _to_floats(item, floats)
    if isinstance(item, Mapping):
        item = {key: _join_numbers(part) if _is_list_of_numbers(part) else part for key, part in item.items()}
    return batch_of_one(item)


def find_floats(item: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the fields of an item that hold Python floats, which `collate_one` may be told."""
    if type(item) is float:
        yield path
    elif isinstance(item, Mapping):
        for key, part in item.items():
            joined = not path and _is_list_of_numbers(part)
            yield from [(key,)] * (float in map(type, part)) if joined else find_floats(part, (*path, key))
    elif isinstance(item, tuple | list):
        for place, part in enumerate(item):
            yield from find_floats(part, (*path, place))


def _to_floats(item: Any, floats: Collection[Path], path: Path = ()) -> Any:
    kind = type(item)
    if kind is int:
        return float(item) if path in floats else item
    if path in floats and _is_list_of_numbers(item):
        return torch.tensor(item, dtype=torch.get_default_dtype(), device="cpu")
    if isinstance(item, Mapping):
        return {key: _to_floats(part, floats, (*path, key)) for key, part in item.items()}
    if kind is tuple or kind is list:
        return kind([_to_floats(part, floats, (*path, place)) for place, part in enumerate(item)])
    if isinstance(item, tuple) and hasattr(item, "_fields"):
        return kind(*(_to_floats(part, floats, (*path, place)) for place, part in enumerate(item)))
    return item


def _is_list_of_numbers(part: Any) -> bool:
    return type(part) is list and set(map(type, part)) <= {int, float}


def _join_numbers(numbers: list[Any]) -> Any:
    """Return numbers as an int64 array, which NumPy makes several times faster than torch, or as a tensor of floats."""
    floats = float in map(type, numbers)
    return torch.tensor(numbers, dtype=torch.get_default_dtype(), device="cpu") if floats else np.array(numbers, np.int64)


def batch_of_one(item: Any) -> Any:
    """Compute `default_collate([item])`, with copied memory and every mapping as a dict, and several times faster."""
    return _convert(item) if default_collate_fn_map == _TORCHS_OWN else copy_batch(default_collate([item]))


def _convert(item: Any, listed: type[list[Any]] | type[tuple[Any, ...]] = list) -> Any:
    """Return an item as a batch of one; like in torch, strings become a list, or a tuple within sequences."""
    kind = type(item)
    if is_stackable(item):
        return item.detach().unsqueeze(0).clone()
    if kind is int or kind is bool:
        return torch.tensor([item], device="cpu")
    if kind is float:
        return torch.tensor([item], dtype=torch.float64, device="cpu")
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
    return copy_batch(default_collate(listed((item,))))  # type: ignore[arg-type]


def copy_batch(batch: Any) -> Any:
    """Return a copy of a batch, with dense tensors detached and every mapping as a dict.

    A data set may overwrite this example with the next, or return its own tensors, which a model could then write to. torch finds
    no tensors in mappings such as transformers' `BatchEncoding`.
    """
    kind = type(batch)
    if isinstance(batch, Tensor):
        return _copy_tensor(batch)
    if kind is dict or isinstance(batch, Mapping):
        return {key: copy_batch(part) for key, part in batch.items()}
    if kind is list or kind is tuple:
        return kind([copy_batch(part) for part in batch])
    # By its id: torch's function is part of a reference cycle, which would keep a private example until some later collection.
    outermost = id(batch)
    parts, tree = pytree.tree_flatten(batch, is_leaf=lambda part: id(part) != outermost)
    if not tree.is_leaf():
        return pytree.tree_unflatten([copy_batch(part) for part in parts], tree)
    return batch if kind in _CONSTANTS else _copy_deeply(batch)


def _copy_deeply(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception as error:
        raise UnsupportedModelError(
            f"an object of type {type(value).__name__!r} cannot be copied ({type(error).__name__}), and reading the next example "
            "may change it: leave it out of what the data set and collate return, or return copies of its tensors and numbers"
        ) from None


def _copy_tensor(tensor: Tensor) -> Tensor:
    """Return a copy of a tensor; subclasses that override only `__torch_function__` become plain tensors."""
    if type(tensor) is not Tensor and type(tensor).__torch_dispatch__ is Tensor.__torch_dispatch__:
        with torch._C.DisableTorchFunctionSubclass():
            tensor = tensor.detach().as_subclass(Tensor)
    return tensor.detach().clone() if is_stackable(tensor) else _copy_deeply(tensor.detach())


@dataclass(frozen=True)
class Padded:
    """A collate function that pads each example's sequences to one of a set of public lengths.

    Without padding, examples of different lengths are computed in separate passes; with it, examples of the same padded length
    share a pass. The model must ignore padding: use `masks`, or a `value` that it recognises.

    Args:
        multiple: ≥ 1; sequences are padded to the next multiple of it, and at least to this length.
        lengths: replaces `multiple`: the permitted lengths, increasing; longer sequences are truncated to the last.
        value: padding value; or a dict with a value for each field, 0 for fields that are missing.
        dimension: sequence dimension of an item's tensors, ≥ 0, not counting the batch dimension.
        fields: keys of a dict or positions in a tuple or list that are sequences; by default every tensor with that dimension.
            A single tensor is the field 0.
        inner: collate function that is called first, with the item in a list; `default_collate` if None.
        masks: whether to return (batch, masks), where masks holds for each field a bool tensor (1, padded length) that is true
            at content: in a dict or a list, like the batch.

    Guarantee:
        The lengths are public numbers, and an example's padded length depends on that example only.

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
                raise InvalidArgumentError("lengths", self.lengths, "one or more lengths in increasing order")

    def __call__(self, items: list[Any]) -> Any:
        """Return the padded batch of one for a list of one item."""
        if len(items) != 1:
            raise InvalidArgumentError("items", f"{len(items)} items", "a list of one", "Padded collates one example at a time.")
        batch = copy_batch(self.inner(items)) if self.inner else batch_of_one(items[0])
        listed = batch if isinstance(batch, list | tuple) else [batch]
        parts: dict[Any, Any] = dict(batch) if isinstance(batch, dict) else dict(enumerate(listed))
        found: dict[Any, Tensor] = {}
        for field in self._choose_fields(parts):
            length = parts[field].shape[self.dimension + 1]
            parts[field] = self._pad(parts[field], field)
            found[field] = torch.arange(parts[field].shape[self.dimension + 1], device="cpu")[None] < length
        padded = parts if isinstance(batch, dict) else _rebuild(batch, list(parts.values()))
        if not self.masks:
            return padded
        return padded, found if isinstance(batch, dict) else _rebuild(batch, list(found.values()), named=False)

    def _choose_fields(self, parts: Mapping[Any, Any]) -> list[Any]:
        def sequence(field: Any) -> bool:
            return isinstance(parts.get(field), Tensor) and parts[field].dim() > self.dimension + 1

        if self.fields is None:
            return [field for field in parts if sequence(field)]
        if missing := [field for field in self.fields if not sequence(field)]:
            allowed = f"a tensor with dimension {self.dimension} in every item"
            fix = "Do not count the batch dimension."
            raise InvalidArgumentError("fields", missing[0], allowed, fix)
        return list(self.fields)

    def _pad(self, tensor: Tensor, field: Any) -> Tensor:
        dimension = self.dimension + 1
        length = self._padded_length(tensor.shape[dimension])
        tensor = tensor.narrow(dimension, 0, min(length, tensor.shape[dimension]))
        value = self.value.get(field, 0) if isinstance(self.value, Mapping) else self.value
        behind = [0, 0] * (tensor.dim() - dimension - 1) + [0, length - tensor.shape[dimension]]
        return F.pad(tensor, behind, value=value)

    def _padded_length(self, length: int) -> int:
        if self.lengths is None:
            return max(1, -(-length // self.multiple)) * self.multiple
        return next((each for each in self.lengths if each >= length), self.lengths[-1])


@dataclass(frozen=True)
class Tokens:
    """A collate function for mappings of token lists, as tokenizers make them: padded to public lengths, with attention masks.

    An item is a row of a `datasets.Dataset`, a dict or a `BatchEncoding`: `input_ids`, and any other lists, arrays or tensors of
    numbers, each of a length of its own. Text and other values that are no numbers are left out, because each distinct one would
    need a pass of its own.

    Args:
        pad: token id at padding, ≥ 0, such as `tokenizer.pad_token_id`; the attention mask hides it.
        multiple, lengths: public lengths, as for `Padded`. With `lengths`, longer sequences are truncated to the last.
        ignored: value of `labels` at padding, by default the one that `cross_entropy` ignores. All other fields get 0.

    Guarantee:
        As for `Padded`: lengths are public numbers, and an example's padded length depends on that example only.

    Raises:
        InvalidArgumentError: an argument is out of range, or an item has no `input_ids`.

    >>> batch = Tokens(pad=1, multiple=4)([{"input_ids": [7, 8, 9], "labels": [-100, 8, 9], "text": "to be or"}])
    >>> batch["input_ids"], batch["labels"], batch["attention_mask"]
    (tensor([[7, 8, 9, 1]]), tensor([[-100,    8,    9, -100]]), tensor([[1, 1, 1, 0]]))
    """

    pad: int = 0
    multiple: int = 16
    lengths: Sequence[int] | None = None
    ignored: int = -100

    def __post_init__(self) -> None:
        count("pad", self.pad, minimum=0, fix="Pass tokenizer.pad_token_id, or any token if the tokenizer has none.")
        real("ignored", self.ignored)
        Padded(self.multiple, self.lengths)

    def __call__(self, items: list[Any]) -> dict[str, Any]:
        """Return the padded batch of one for a list of one item."""
        if len(items) != 1:
            raise InvalidArgumentError("items", f"{len(items)} items", "a list of one", "Tokens collates one example at a time.")
        given = items[0] if isinstance(items[0], Mapping) else {}
        numbers = {name: part for name, part in given.items() if isinstance(part, _NUMERIC) or _is_list_of_numbers(part)}
        fields: dict[str, Tensor] = collate_one(numbers)
        if "input_ids" not in fields:
            raise InvalidArgumentError("items", f"a {type(items[0]).__name__} without input_ids", "a mapping with input_ids")
        fields.setdefault("attention_mask", torch.ones_like(fields["input_ids"]))
        sequences = [name for name, part in fields.items() if part.dim() == 2]
        values = {"input_ids": self.pad, "labels": self.ignored}
        padded: dict[str, Any] = Padded(self.multiple, self.lengths, values, fields=sequences, inner=lambda _: fields)(items)
        return padded


def _rebuild(batch: Any, parts: list[Any], named: bool = True) -> Any:
    """Return parts in a container like the batch: a list, a tuple, a named tuple, or none for a single tensor."""
    if isinstance(batch, Tensor):
        return parts[0] if parts else None
    if isinstance(batch, tuple):
        return type(batch)(*parts) if named and hasattr(batch, "_fields") else tuple(parts)
    return parts


# Collate functions: each is called for one item at a time, so mixing has no effect, and memory would couple examples.


def first_dimensions(batch: Any) -> set[int]:
    """Return the first dimensions of a batch's tensors: several for ids with offsets, and for the parts of graphs."""
    return {len(leaf) for leaf in pytree.tree_leaves(batch) if isinstance(leaf, Tensor) and leaf.dim()}


def check_collate(collate: Collate | None, items: Sequence[Any]) -> None:
    """Refuse a collate function that mixes made-up items, or keeps state between calls."""
    if collate is not None and couples(collate, items):
        raise UnsupportedModelError(
            "collate computes with several examples at once (mixup, standardising or sorting, say): what an example becomes "
            "would depend on others. It is called for one example at a time, collate([item]): compute on each item by itself"
        )
    if collate is not None and remembers(collate, items):
        raise UnsupportedModelError(
            "collate keeps state between calls: a made-up item became something else when it was collated again, so one "
            "example could change another. Draw random numbers from the global generators of torch, NumPy or Python, which "
            "Privet seeds for every example, and keep nothing of an item"
        )


def couples(collate: Collate, items: Sequence[Any]) -> bool:
    """Return whether a batch of made-up items of one shape differs from its items, collated one by one.

    False for a function that draws random numbers, or that fails for items of one shape, because that cannot be told.
    """
    with preserve_generators():
        try:
            alone = [_call(collate, [item], 0) for item in items]
            if not all(_same(one, _call(collate, [item], 1)) for one, item in zip(alone, items, strict=True)):
                return False
            # In both orders: a function that sorts leaves one of them as it is.
            orders = (list(items), alone), (list(items)[::-1], alone[::-1])
            return not all(_holds(_call(collate, some, 0), rows) for some, rows in orders)
        except Exception:
            return False


def _holds(batch: Any, rows: Sequence[Any]) -> bool:
    """Return whether a batch holds the joined tensors of its batches of one, or the first one's; true if unknown.

    Integers that a function without a common first dimension makes may be offsets, or numbers of nodes.
    """
    joins = len(first_dimensions(rows[0])) > 1
    found, *others = [dict(pytree.tree_flatten_with_path(each)[0]) for each in (batch, *rows)]
    for path, leaf in found.items():
        parts: list[Any] = [other.get(path) for other in others]
        if isinstance(leaf, Tensor) and all(isinstance(part, Tensor) for part in parts):
            expected = parts[0] if leaf.shape == parts[0].shape else torch.cat(parts)
            if leaf.shape == expected.shape and not (joins and not leaf.is_floating_point()) and not _same(leaf, expected):
                return False
    return True


def remembers(collate: Collate, items: Sequence[Any]) -> bool:
    """Return whether made-up items differ when they are collated again, alone, in another order and with equal random numbers."""
    with preserve_generators():
        try:
            first = [_call(collate, [item], 0) for item in items]
            again = [_call(collate, [item], 0) for item in reversed(items)]
            return not all(map(_same, first, reversed(again)))
        except Exception:
            return False


def _call(collate: Collate, items: Sequence[Any], seed: int) -> Any:
    seed_generators(seed)
    copied = pytree.tree_map(lambda x: x.clone() if isinstance(x, Tensor) else x, list(items))
    return copy_batch(collate(copied))


def _same(one: Any, other: Any) -> bool:
    (leaves, tree), (others, other_tree) = pytree.tree_flatten(one), pytree.tree_flatten(other)
    return tree == other_tree and all(
        isinstance(b, Tensor)
        and a.shape == b.shape
        and torch.allclose(a.double(), b.double(), rtol=1e-4, atol=1e-6, equal_nan=True)
        for a, b in zip(leaves, others, strict=True)
        if isinstance(a, Tensor)
    )
