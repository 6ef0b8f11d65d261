"""Isolated examples: a physical batch from which user code receives one example at a time."""

from __future__ import annotations

import functools
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from privet.errors import InvalidArgumentError
from privet.gradients.core.consensus import agree_on_kinds


@dataclass(frozen=True, eq=False)
class Examples:
    """B examples of equal structure and shapes, each stored as the batch of one that user code receives."""

    leaves: tuple[Any, ...]  # (B, *shape of a batch of one) where `own`, else shared by all examples, or `Constants`
    own: tuple[bool, ...]
    tree: pytree.TreeSpec
    count: int  # B
    owns_memory: bool = False  # whether no object of user code holds the memory of leaves marked `own`

    @property
    def shared(self) -> list[Any]:
        """Leaves that are the same for all examples."""
        return [leaf for leaf, own in zip(self.leaves, self.own, strict=True) if not own and type(leaf) is not Constants]

    @property
    def constants(self) -> list[Constants]:
        """Leaves that are no tensors, and differ."""
        return [leaf for leaf in self.leaves if type(leaf) is Constants]

    def get(self, position: int) -> Any:
        """Return one example, as user code sees it."""
        held = zip(self.leaves, self.own, strict=True)
        return unflatten([leaf[position] if own or type(leaf) is Constants else leaf for leaf, own in held], self.tree)

    def select(self, index: slice | Tensor) -> Examples:
        """Return a subset of the examples."""

        def chosen(leaf: Any) -> Any:
            if type(leaf) is Constants:
                return leaf.select(index)
            return leaf[index] if isinstance(index, slice) else leaf.index_select(0, index.to(leaf.device))

        leaves = tuple(
            chosen(leaf) if own or type(leaf) is Constants else leaf for leaf, own in zip(self.leaves, self.own, strict=True)
        )
        count = len(range(*index.indices(self.count))) if isinstance(index, slice) else len(index)
        return replace(self, leaves=leaves, count=count)

    def copy_leaves(self) -> list[Any]:
        """Return the leaves as a pass over all examples takes them: those marked `own` as copies, which it may write to."""
        copy = _copy_on_write if self.owns_memory else Tensor.clone
        held = zip(self.leaves, self.own, strict=True)
        return [copy(leaf) if own else _Unread(leaf) if type(leaf) is Constants else leaf for leaf, own in held]

    def to(self, device: torch.device) -> Examples:
        """Return the examples with their tensors moved to a device."""
        if {leaf.device for leaf in self.leaves if isinstance(leaf, Tensor)} <= {device}:
            return self
        return replace(self, leaves=tuple(leaf.to(device) if isinstance(leaf, Tensor) else leaf for leaf in self.leaves))

    def share_constants(self) -> Examples:
        """Return the examples with the constants of the first."""
        return replace(self, leaves=tuple(leaf[0] if type(leaf) is Constants else leaf for leaf in self.leaves))

    def append_leaves(self, *more: Tensor) -> Examples:
        """Return examples that are tuples: the original example, then its entry of each further tensor (B, 1, …)."""
        # Of structures alone: a container that is made of stacked leaves would show all examples to the code of its class.
        tree = pytree.TreeSpec(tuple, None, [self.tree, *(_LEAF for _ in more)])
        return Examples((*self.leaves, *more), (*self.own, *(True for _ in more)), tree, self.count)


class Constants(tuple[Any, ...]):
    """A leaf that is no tensor, such as a text, and differs among stacked examples: its value for each."""

    __slots__ = ()

    def select(self, index: slice | Tensor) -> Any:
        """Return the leaf of a subset: one value if these examples share it."""
        chosen = self[index] if isinstance(index, slice) else [self[place] for place in index.tolist()]
        return merge_constants(chosen)

    def split(self) -> NoReturn:
        """Raise a `SplitError` for groups of examples that share a value."""
        agree_on_kinds(list(map(_constant_key, self)))
        raise AssertionError("constants that examples share are no Constants")


def merge_constants(values: Sequence[Any]) -> Any:
    """Return the value that all examples share, or `Constants`, also for no examples."""
    return values[0] if len(set(map(_constant_key, values))) == 1 else Constants(values)


class _Unread:
    """Stands in a pass for constants that differ among its examples; to read it splits the pass.

    So ids, file names and texts that the program does not use cost nothing.
    """

    __slots__ = ("_constants",)

    def __init__(self, constants: Constants) -> None:
        _HELD.__set__(self, constants)


def _split(unread: _Unread, *_: object, **__: object) -> NoReturn:
    constants: Constants = _HELD.__get__(unread)
    constants.split()


_HELD: Any = vars(_Unread)["_constants"]
_MORE = {"__bool__", "__bytes__", "__call__", "__complex__", "__fspath__", "__index__", "__next__"}
for _name in {*dir(str), *dir(float), *dir(list), *_MORE} - {"__class__", "__doc__", "__init__", "__init_subclass__", "__new__"}:
    if _name.startswith("__"):
        setattr(_Unread, _name, _split)


_lazy_clone: Callable[[Tensor], Tensor] = getattr(torch, "_lazy_clone", Tensor.clone)


def _copy_on_write(tensor: Tensor) -> Tensor:
    """Return a copy that shares the original's memory until something writes to either; user code must not know the original."""
    try:
        return _lazy_clone(tensor)
    except RuntimeError:  # of memory that torch did not allocate, such as that shared with worker processes
        return tensor.clone()


def is_stackable(leaf: object) -> bool:
    """Return whether a leaf is a dense tensor, and no subclass, whose code would see several examples."""
    return type(leaf) is Tensor and not leaf.is_nested and leaf.layout is torch.strided and not leaf.is_quantized


class _Same:
    """A wrapper that compares by identity: objects of a class with an `__eq__` of its own may be equal and differ."""

    __slots__ = ("_held",)

    def __init__(self, held: object) -> None:
        self._held = held

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._held is other._held

    def __hash__(self) -> int:
        return id(self._held)


_VALUES = {str, bytes, int, bool, type(None), torch.dtype, torch.device}


def _constant_key(leaf: object) -> Hashable:
    if type(leaf) in _VALUES:
        return type(leaf), leaf
    # 0.0 == -0.0, but the two must not be merged.
    return (float, leaf.hex()) if type(leaf) is float else _Same(leaf)


_STRUCTURAL = {type(None), bool, torch.dtype, torch.device}


def loose_key(leaf: Any) -> Hashable:
    """Return a key of a leaf that cannot be stacked: its type, and the value only where programs are written for it."""
    exact = type(leaf) in _STRUCTURAL or isinstance(leaf, Tensor)
    return _constant_key(leaf) if exact else (type(leaf),)


def signature(example: Any) -> Hashable:
    """Return a key of this example alone, equal for those that can be stacked: structure, shapes, dtypes, other values."""
    return flat_signature(flatten(example))


Flat = tuple[list[Any], pytree.TreeSpec]


def flatten(example: Any) -> Flat:
    """Return the leaves and the structure of an example."""
    kind: Any = type(example)
    if kind in _PLAIN and _TENSORS.issuperset(map(type, example)):
        return list(example), _plain_structure(kind, len(example))
    return pytree.tree_flatten(example)


def unflatten(leaves: Sequence[Any], tree: pytree.TreeSpec) -> Any:
    """Return the example with these leaves; torch's own function takes ten times as long for a tuple of tensors."""
    kind = tree.type
    if kind in _PLAIN and tree.num_nodes == 1 + tree.num_leaves:  # a container that holds leaves only
        return kind(leaves)
    return pytree.tree_unflatten(list(leaves), tree)


_PLAIN, _TENSORS = {tuple, list}, {Tensor}
_LEAF = pytree.tree_structure(0)


@functools.cache
def _plain_structure(kind: Any, size: int) -> pytree.TreeSpec:
    return pytree.tree_structure(kind([0] * size))


def flat_signature(flat: Flat, key: Callable[[Any], Hashable] = _constant_key) -> Hashable:
    """Return the signature of a flattened example; `key` is that of a leaf that is no tensor."""
    leaves, tree = flat
    kinds = tuple((leaf.shape, leaf.dtype, leaf.device) if is_stackable(leaf) else key(leaf) for leaf in leaves)
    return _tree_key(tree), kinds


_Constant: Any = getattr(pytree, "ConstantNode", ())
list_children: Any = getattr(pytree.TreeSpec, "children", lambda tree: tree.children_specs)


def _tree_key(tree: pytree.TreeSpec) -> Hashable:
    """Return a key of a structure; torch compares structures by `==` of contexts, for which -0.0 and 0.0 are the same."""
    if tree.type is None:
        return None
    only_leaves = tree.num_nodes == 1 + tree.num_leaves
    return tree.type, _context_key(tree.context), tree.num_leaves if only_leaves else tuple(map(_tree_key, list_children(tree)))


def _context_key(context: Any) -> Hashable:
    kind = type(context)
    if kind is list or kind is tuple:
        return kind, tuple(context) if _STRINGS.issuperset(map(type, context)) else tuple(map(_context_key, context))
    return _constant_key(context.value if isinstance(context, _Constant) else context)


_STRINGS = {str}
# Of torch's own containers, whose contexts are keys, types and lengths.
_TORCHS = (tuple, list, dict, namedtuple, OrderedDict, defaultdict, deque)
_NAMES = (str, type(None), bool, int, type)


def context_objects(tree: pytree.TreeSpec) -> Iterator[Any]:
    """Yield what a structure holds besides types, keys and names: objects that registered classes keep as their context."""
    if tree.type is not None and not any(tree.type is kind for kind in _TORCHS):
        waiting = [tree.context]
        while waiting:
            found = waiting.pop()
            if type(found) is list or type(found) is tuple:
                waiting += found
            elif type(found) not in _NAMES:
                yield found.value if isinstance(found, _Constant) else found
    for child in list_children(tree):
        yield from context_objects(child)


def stack(examples: Sequence[Any]) -> Examples:
    """Stack examples of one signature, each a batch of one; at least one."""
    return stack_flat([flatten(example) for example in examples])


def stack_flat(examples: Sequence[Flat]) -> Examples:
    """Stack flattened examples of one signature, or of one but for leaves that are no tensors."""
    columns, trees = zip(*examples, strict=True)
    own = tuple(is_stackable(leaf) for leaf in columns[0])
    held = zip(zip(*columns, strict=True), own, strict=True)
    leaves = tuple(torch.stack(leaf) if stackable else merge_constants(leaf) for leaf, stackable in held)
    return Examples(leaves, own, trees[0], len(examples), owns_memory=True)


def split_batch(batch: Any) -> Examples:
    """Split a batch along the first dimension of its tensors.

    A tensor whose first dimension is as long as that of the first tensor holds one entry per example; each example sees its entry
    with a first dimension of 1. So does a list of as many entries that hold other tensors. Everything else is shared, tuples too.
    Raises:
        InvalidArgumentError: no tensor has a dimension, entries of a list differ in shapes, or it can be read in two ways.
    """
    leaves, tree = flatten(batch)
    if any(isinstance(leaf, Mapping) for leaf in leaves if type(leaf) is not Tensor):
        batch = _with_dicts(batch)
        leaves, tree = flatten(batch)
    count = _count_rows(leaves, batch)
    nested = tree.num_nodes > 1 + tree.num_leaves
    if nested and (rows := split_rows(batch)) is not None:
        if len({signature(row) for row in rows}) > 1:
            raise InvalidArgumentError(
                "batch", f"one with a list of {count} entries that differ in structure or shapes", "one whose entries are alike",
                "Pass examples of one shape at a time, or pad them.",
            )  # fmt: skip
        return stack(rows)
    own = tuple(is_per_example(leaf, count) for leaf in leaves)
    return Examples(tuple(leaf.unsqueeze(1) if held else leaf for leaf, held in zip(leaves, own, strict=True)), own, tree, count)


def split_rows(batch: Any) -> list[Any] | None:
    """Return the batch of one of each example, if the batch has lists with an entry for each; else None."""
    batch = _with_dicts(batch)
    first = next((leaf for leaf in pytree.tree_leaves(batch) if isinstance(leaf, Tensor) and leaf.dim() > 0), None)
    if first is None or len(first) < 2:  # a single example sees the whole batch
        return None
    count = len(first)
    leaves, tree = pytree.tree_flatten(batch, is_leaf=lambda part: type(part) is list and _lists_examples(part, first))
    if not any(type(leaf) is list for leaf in leaves):
        return None
    own = [type(leaf) is list or is_per_example(leaf, count) for leaf in leaves]
    return [
        pytree.tree_unflatten([leaf[i : i + 1] if held else leaf for leaf, held in zip(leaves, own, strict=True)], tree)
        for i in range(count)
    ]


def _lists_examples(part: list[Any], first: Tensor) -> bool:
    count, tensors = len(first), [leaf for leaf in pytree.tree_leaves(part) if isinstance(leaf, Tensor)]
    if len(part) != count or not tensors or any(leaf is first for leaf in tensors):
        return False
    rows = [is_per_example(leaf, count) for leaf in tensors]
    if any(rows) and not all(rows):
        raise InvalidArgumentError(
            "batch", f"of {count} examples, with a list of {count} entries in which some tensors have {count} rows",
            "one in which lists of examples and tensors of examples can be told apart",
            "Pass another number of examples.",
        )  # fmt: skip
    return not any(rows)


def count_examples(batch: Any) -> int:
    """Return the number of examples of a plain batch: the first dimension of its first tensor."""
    return _count_rows(pytree.tree_leaves(_with_dicts(batch)), batch)


def _count_rows(leaves: list[Any], batch: Any) -> int:
    for leaf in leaves:
        if isinstance(leaf, Tensor) and leaf.dim() > 0:
            return leaf.shape[0]
    raise InvalidArgumentError("batch", type(batch).__name__, "a tensor, or a tuple, list or dict that holds one")


def select_examples(batch: Any, index: slice | Tensor) -> Any:
    """Return a subset of the examples of a plain batch; leaves without an example dimension are kept unchanged."""
    examples = count_examples(batch)
    return pytree.tree_map(lambda leaf: leaf[index] if is_per_example(leaf, examples) else leaf, _with_dicts(batch))


def is_per_example(leaf: object, examples: int) -> bool:
    """Return whether a leaf of a plain batch has one entry per example along its first dimension."""
    return isinstance(leaf, Tensor) and leaf.dim() > 0 and leaf.shape[0] == examples


def to_device(batch: Any, device: torch.device) -> Any:
    """Return a plain batch with its tensors moved to a device."""
    return pytree.tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, Tensor) else leaf, _with_dicts(batch))


def _with_dicts(batch: Any) -> Any:
    """Return a batch in which mappings that torch does not look into, such as transformers' `BatchEncoding`, are dicts."""
    if not any(isinstance(leaf, Mapping) for leaf in pytree.tree_leaves(batch)):
        return batch
    return pytree.tree_map(lambda leaf: _with_dicts(dict(leaf)) if isinstance(leaf, Mapping) else leaf, batch)
