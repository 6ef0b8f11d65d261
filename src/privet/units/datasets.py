"""Data sets whose entries are users, or groups of examples: what is sampled and clipped as one."""

from __future__ import annotations

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
from privet.accounting import group_unit
from privet.collate import Collate
from privet.errors import InvalidArgumentError, count
from privet.gradients.core.examples import Examples
from privet.noise import SecureSource
from privet.reading.batches import UNREADABLE, Batched, Group, check_map_style, group_examples
from privet.reading.rows import Rows, join_rows, ungroup
from privet.sampling import Indices, Words, permutation


class _Units(Batched):
    """Units of at most k examples; an entry is (content (k, …), mask (k,)).

    Args:
        dataset: of the examples.
        index: (U, k) which examples a unit has; where it has fewer, one of its own again.
        mask: (U, k) where there is an example.
        collate: list of one example → batch of one.
    """

    def __init__(self, dataset: Dataset[Any], index: Indices, mask: NDArray[np.bool_], collate: Collate | None) -> None:
        self._rows, self._index, self._mask = Rows(dataset, collate), index, mask

    def __len__(self) -> int:
        """Return the number of units."""
        return len(self._index)

    def rows_of_entries(self) -> tuple[Dataset[Any], Indices]:
        """Return the data set of the examples, and which of them each unit has, (U, k)."""
        return self._rows.dataset, self._index

    @property
    def runs_user_code(self) -> bool:
        """Whether the examples are read by user code."""
        return self._rows.runs_user_code

    def groups(self, indices: Indices, seeds: Seeds | None = None, *, strict: bool = False) -> list[Group]:
        """Return these units kept apart, each as user code sees it: content (1, k, …) and mask (1, k).

        Their examples are read one by one. A unit with an example that cannot be read, or with examples of several shapes, is in
        no group: nobody else is touched. If `strict`, that is an error.
        """
        index, mask = self._index[indices], torch.from_numpy(self._mask[indices]).unsqueeze(1)
        own = None if seeds is None else seeds.for_rows(index.shape[1])
        rows = self._rows.read(index.ravel(), own, strict=strict)
        if len(rows) == 1 and rows[0].examples.count == index.size and _one_row_each(rows[0].examples):
            examples = rows[0].examples
            leaves = tuple(leaf.reshape(len(index), 1, index.shape[1], *leaf.shape[2:]) for leaf in examples.leaves)
            return [Group(torch.arange(len(index)), replace(examples, leaves=leaves, count=len(index)).beside(mask))]
        each = ungroup(rows, index.size)
        units = [
            _unit(each[start : start + index.shape[1]], mask[number], strict=strict)
            for number, start in enumerate(range(0, index.size, index.shape[1]))
        ]
        return group_examples(units)

    def read(self, indices: Indices) -> Any:
        """Return the content, (B, k, …), and the mask, (B, k), of these units.

        Raises:
            InvalidArgumentError: they are of several shapes. Whatever user code raises passes.
        """
        return join_rows(ungroup(self.groups(indices, strict=True), len(indices)))


def _one_row_each(examples: Examples) -> bool:
    return all(own and leaf.shape[1:2] == (1,) for own, leaf in zip(examples.own, examples.leaves, strict=True))


def _unit(rows: list[Any], mask: Tensor, *, strict: bool) -> Any:
    """Return a unit of its rows and its mask (1, k)."""
    try:
        if any(row is UNREADABLE for row in rows):
            return UNREADABLE
        content = join_rows(rows)
    except Exception:
        if strict:
            raise
        return UNREADABLE

    def by_unit(leaf: Any, first: Any) -> Any:
        joined = isinstance(leaf, Tensor) and first.shape[:1] == (1,)
        return leaf.unsqueeze(0) if joined else leaf

    return pytree.tree_map(by_unit, content, rows[0]), mask


class Users(_Units):
    """The users of a data set as its entries, each with at most `cap` of their examples: for a guarantee for users.

    Train on it with `Plan(unit="one user", examples=len(users), …)` and the loss `grouped(loss_fn)`.

    Args:
        dataset: map-style, of the examples.
        ids: whose each example is: one whole number per example, or one text. Private; only the number of users is public.
        cap: most examples of a user that are used, ≥ 1. Of more, a random choice is made once.
        collate: list of one example → batch of one, for data sets that are not a `TensorDataset`.
        words: source of uniform 64-bit words for that choice; by default a secret one.

    Guarantee:
        Which examples of a user are chosen depends on how many they are and on fresh randomness, on no content and on no other
        user. Everything that comes from a user is in one entry, so what is clipped, sampled and accounted as one entry is all of
        the user. Places without an example hold one of the user's own again, masked: each user costs `cap` examples of time.

    Raises:
        InvalidArgumentError: an argument is out of range, or there is not one id per example.

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
        names, user = np.unique(_owners(ids, examples), return_inverse=True)
        # A random order of all, then stably by user: a random order within each user, independent of everybody else's.
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


def _owners(ids: Any, examples: int) -> NDArray[Any]:
    """Return the ids as an array that keeps different ones different.

    Rounding numbers, or turning them into texts, could make one user of two, or two of one: each would be bounded wrongly.
    """
    owners = np.asarray(ids) if isinstance(ids, np.ndarray | Tensor) else np.fromiter(ids, dtype=object)
    if owners.shape != (examples,) or examples == 0:
        raise InvalidArgumentError("ids", f"of shape {owners.shape}", f"one for each of the {examples} examples")
    if owners.dtype.kind in "iuUS" or any(all(isinstance(owner, kind) for owner in owners) for kind in (int | np.integer, str)):
        return owners
    raise InvalidArgumentError(
        "ids", f"of type {owners.dtype}", "whole numbers only, or texts only", "Others may be equal by chance."
    )


class Groups(_Units):
    """Groups of `size` examples as entries, each clipped as one (microbatching): cheaper to clip, noisier for each example.

    Examples stand together by their position: `size` after `size`, the last group possibly smaller. Train on it with
    `Plan(unit=groups.privacy_unit, examples=len(groups), adjacency="replace-one", …)` and the loss `grouped(loss_fn)`.

    Args:
        dataset: map-style, of the examples, in an order that does not depend on what they contain.
        size: examples of a group, ≥ 1.
        collate: list of one example → batch of one, for data sets that are not a `TensorDataset`.

    Guarantee:
        Replacing an example replaces its group and no other, so the sum moves by at most twice the bound: what "replace-one"
        accounts for. Other neighbours are refused: an example that is zeroed leaves a group that can be clipped to anything
        within the bound, and one that is removed would move others to other groups.

    >>> import torch
    >>> groups = Groups(torch.utils.data.TensorDataset(torch.arange(5)), size=2)
    >>> [groups[number] for number in (0, 2)]
    [((tensor([0, 1]),), tensor([True, True])), ((tensor([4, 4]),), tensor([ True, False]))]
    """

    def __init__(self, dataset: Dataset[Any], size: int, *, collate: Collate | None = None) -> None:
        count("size", size, fix="It is the number of examples that are clipped as one.")
        examples = check_map_style(dataset)
        self.privacy_unit = group_unit(size)
        starts = np.arange(0, examples, size)[:, None]
        index = starts + np.arange(size)
        mask = index < examples
        super().__init__(dataset, np.where(mask, index, starts), mask, collate)
