"""Data sets whose entries are users or groups of examples, which are sampled and clipped as one."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.data import Dataset

from privet._utils.randomness import Seeds
from privet.accounting.privacy_unit import group_unit
from privet.collate import Collate
from privet.errors import InvalidArgumentError, count
from privet.gradients.core.examples import Examples
from privet.noise import SecureSource
from privet.reading.batches import UNREADABLE, BatchDataset, Group, check_map_style, group_examples
from privet.reading.rows import ExampleReader, join_rows, ungroup
from privet.sampling import Indices, Words, permutation


class _Units(BatchDataset):
    """Units of at most k examples; an entry is (content (k, …), mask (k,)).

    Args:
        index: (U, k) examples of each unit; missing ones repeat an example of the unit.
        mask: (U, k) True where there is an example.

    Attributes:
        division: digest of how the examples are divided into units, without the choice among a unit's examples; private.
    """

    division: str

    def __init__(self, dataset: Dataset[Any], index: Indices, mask: NDArray[np.bool_], collate: Collate | None) -> None:
        self._rows, self._index, self._mask = ExampleReader(dataset, collate), index, mask

    def __len__(self) -> int:
        """Return the number of units."""
        return len(self._index)

    def rows_of_entries(self) -> tuple[Dataset[Any], Indices]:
        """Return the data set of the examples, and the examples of each unit, (U, k)."""
        return self._rows.dataset, self._index

    @property
    def runs_user_code(self) -> bool:
        """Whether the examples are read by user code."""
        return self._rows.runs_user_code

    def groups(self, indices: Indices, seeds: Seeds | None = None, *, strict: bool = False) -> list[Group]:
        """Return these units isolated, each as user code sees it: content (1, k, …) and mask (1, k).

        A unit with an unreadable example, or with examples of several shapes, is in no group; with `strict`, it is an error.
        """
        index, mask = self._index[indices], torch.from_numpy(self._mask[indices]).unsqueeze(1)
        own = None if seeds is None else seeds.for_rows(index.shape[1])
        rows = self._rows.read(index.ravel(), own, strict=strict)
        if len(rows) == 1 and rows[0].examples.count == index.size and _has_one_row_each(rows[0].examples):
            examples = rows[0].examples
            leaves = tuple(leaf.reshape(len(index), 1, index.shape[1], *leaf.shape[2:]) for leaf in examples.leaves)
            whole = replace(examples, leaves=leaves, count=len(index)).append_leaves(mask)
            return [Group(torch.arange(len(index), device="cpu"), whole)]
        each = ungroup(rows, index.size, strict=strict)
        units = [
            _make_unit(each[start : start + index.shape[1]], mask[number], strict=strict)
            for number, start in enumerate(range(0, index.size, index.shape[1]))
        ]
        return group_examples(units)

    def read(self, indices: Indices) -> Any:
        """Return the content, (B, k, …), and the mask, (B, k), of these units, whose examples have one shape."""
        return join_rows(ungroup(self.groups(indices, strict=True), len(indices)))


def _has_one_row_each(examples: Examples) -> bool:
    return all(own and leaf.shape[1:2] == (1,) for own, leaf in zip(examples.own, examples.leaves, strict=True))


def _make_unit(rows: list[Any], mask: Tensor, *, strict: bool) -> Any:
    try:
        if any(row is UNREADABLE for row in rows):
            return UNREADABLE
        return pytree.tree_map(_by_unit, join_rows(rows), rows[0]), mask
    except Exception:  # examples of several shapes, or a container that cannot be made
        if strict:
            raise
        return UNREADABLE


def _by_unit(leaf: Any, first: Any) -> Any:
    joined = isinstance(leaf, Tensor) and first.shape[:1] == (1,)
    return leaf.unsqueeze(0) if joined else leaf


class Users(_Units):
    """A data set whose entries are users, each with at most `cap` of their examples, for user-level guarantees.

    Train on it with `Plan(unit="one user", examples=len(users), …)` and the loss `grouped(loss_fn)`.

    Args:
        dataset: map-style, of the examples.
        ids: user of each example: one integer per example, or one string. Private; only the number of users is public.
        cap: most examples used per user, ≥ 1. For users with more, a random subset is chosen once.
        collate: list of one example → batch of one, for data sets that are not a `TensorDataset`.
        words: source of uniform 64-bit words for that choice; by default a secret one.

    Guarantee:
        The choice of a user's examples depends on their number and on fresh randomness, not on their content or on other users.
        All data of a user is in one entry, so clipping, sampling and accounting apply to the user as a whole. Missing examples
        are filled with copies of the user's own, masked: each user costs the time of `cap` examples.

    Raises:
        InvalidArgumentError: an argument is out of range, or the number of ids is not that of the examples.

    >>> import torch
    >>> data = torch.utils.data.TensorDataset(torch.tensor([0.0, 10.0, 1.0, 2.0]))
    >>> users = Users(data, ids=["ann", "bob", "ann", "ann"], cap=3)
    >>> len(users)
    2
    >>> (content,), mask = users[1]
    >>> content, mask
    (tensor([10., 10., 10.]), tensor([ True, False, False]))
    """

    privacy_unit = "one user"

    def __init__(
        self,
        dataset: Dataset[Any],
        ids: Sequence[Any] | NDArray[Any] | Tensor,
        cap: int,
        *,
        collate: Collate | None = None,
        words: Words | None = None,
    ) -> None:
        count("cap", cap, fix="It is the most examples of a user that are used.")
        examples = check_map_style(dataset)
        names, user = np.unique(_check_ids(ids, examples), return_inverse=True)
        self.division = hashlib.sha256(f"{cap};".encode() + user.astype("<i8").tobytes()).hexdigest()
        # A random order of all examples, stably sorted by user: an independent random order within each user.
        order = permutation(examples, SecureSource().words if words is None else words)
        order = order[np.argsort(user[order], kind="stable")]
        user = user[order]
        first = np.searchsorted(user, np.arange(len(names)))
        rank = np.arange(examples) - first[user]
        index = np.repeat(order[first][:, None], cap, axis=1)
        mask = np.zeros(index.shape, dtype=np.bool_)
        kept = rank < cap
        index[user[kept], rank[kept]] = order[kept]
        mask[user[kept], rank[kept]] = True
        super().__init__(dataset, index, mask, collate)


def _check_ids(ids: Any, examples: int) -> NDArray[Any]:
    """Return the ids as an array in which different ids stay different.

    Rounding numbers, or converting them to strings, could merge two users or split one, and break the bound per user.
    """
    owners = np.asarray(ids) if isinstance(ids, np.ndarray | Tensor) else np.fromiter(ids, dtype=object)
    if owners.shape != (examples,) or examples == 0:
        raise InvalidArgumentError("ids", f"of shape {owners.shape}", f"one for each of the {examples} examples")
    if owners.dtype.kind in "iuUS" or any(all(isinstance(owner, kind) for owner in owners) for kind in (int | np.integer, str)):
        return owners
    fix = "Other types may compare equal by accident."
    raise InvalidArgumentError("ids", f"of type {owners.dtype}", "integers only, or strings only", fix)


class Groups(_Units):
    """Groups of `size` examples as entries, each clipped as one (microbatching): cheaper to clip, noisier for each example.

    Groups consist of `size` consecutive examples; the last group may be smaller. Train on it with
    `Plan(unit=groups.privacy_unit, examples=len(groups), adjacency="replace-one", …)` and the loss `grouped(loss_fn)`.

    Args:
        dataset: map-style, of the examples, in an order that does not depend on their content.
        size: examples per group, ≥ 1.
        collate: list of one example → batch of one, for data sets that are not a `TensorDataset`.

    Guarantee:
        Replacing an example changes its group and no other, so the sum changes by at most twice the bound, as "replace-one"
        accounts for. Other adjacencies are refused: zeroing an example leaves a group whose clipped gradient can be anything
        within the bound, and removing one would move others to other groups.

    >>> import torch
    >>> groups = Groups(torch.utils.data.TensorDataset(torch.arange(5)), size=2)
    >>> [groups[number] for number in (0, 2)]
    [((tensor([0, 1]),), tensor([True, True])), ((tensor([4, 4]),), tensor([ True, False]))]
    """

    def __init__(self, dataset: Dataset[Any], size: int, *, collate: Collate | None = None) -> None:
        count("size", size, fix="It is the number of examples that are clipped as one.")
        examples = check_map_style(dataset)
        self.privacy_unit = group_unit(size)
        self.division = f"groups of {size}"
        starts = np.arange(0, examples, size)[:, None]
        index = starts + np.arange(size)
        mask = index < examples
        super().__init__(dataset, np.where(mask, index, starts), mask, collate)
