"""Division of private entries into those that are trained on and those that are held out for a paid estimate."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset, TensorDataset

from privet._utils.randomness import Seeds, Words
from privet.data import DataSet
from privet.errors import InvalidArgumentError, between
from privet.reading.batches import check_map_style
from privet.sampling import Indices, distinct
from privet.units import Groups, Users

KEY = "division.key"  # file with the secret key of a run's division, which only its owner can read


@dataclass(frozen=True)
class Division:
    """Entries that steps sample and clip as a whole (examples, users or groups), and examples or users that no step uses."""

    training: Dataset[Any]
    held_out: Dataset[Any] | None


def sizes(dataset: DataSet, fraction: float | None, *, user_cap: int | None, group_size: int | None) -> tuple[int, int]:
    """Return the public numbers of training entries and of held-out entries, from the numbers of rows and users alone."""
    counted = _count(dataset, user_cap)
    held_out = 0 if fraction is None else round(between("holdout", fraction, 0.0, 1.0, "Such as 0.2.") * counted)
    left = counted - held_out if group_size is None else -(-(counted - held_out) // group_size)
    if fraction is not None and (held_out < 1 or left < 2):
        allowed = f"such that 1 to {counted - 2} of the {counted} examples or users are held out"
        raise InvalidArgumentError("holdout", fraction, allowed)
    return left, held_out


def divide(dataset: DataSet, held_out: int, key: str, *, user_cap: int | None, group_size: int | None) -> Division:
    """Divide the entries of a data set at random: a uniform subset of the public size `held_out` is held out.

    Users are held out with all of their examples; groups are made of the examples that are left.

    Guarantee:
        The subset, and the choice of a user's examples, depend on the secret key and public numbers, never on values. So
        neighbouring data sets differ in one of the two parts, each of a public size (see `privet.plan.Holdout`).
    """
    words = _words(key)
    entries = _count(dataset, user_cap)
    out = distinct(held_out, entries, words) if held_out else np.empty(0, dtype=np.int64)
    if dataset.users is not None and user_cap is not None:
        user = np.unique(dataset.users, return_inverse=True)[1]
        chosen = np.isin(user, out)
        rows = np.flatnonzero(~chosen), np.flatnonzero(chosen)
        train, test = (Users(_select(dataset.train, own), user[own], user_cap, words=words) if len(own) else None for own in rows)
        assert train is not None
        return Division(train, test)
    left = _select(dataset.train, np.setdiff1d(np.arange(entries, dtype=np.int64), out))
    return Division(left if group_size is None else Groups(left, group_size), _select(dataset.train, out) if held_out else None)


def new_key() -> str:
    """Return a key for `divide` from the operating system's random generator."""
    return secrets.token_hex(32)


def _count(dataset: DataSet, user_cap: int | None) -> int:
    if dataset.users is not None and user_cap is not None:
        return len(np.unique(dataset.users))
    return check_map_style(dataset.train)


def _words(key: str) -> Words:
    """Return a source of random words that starts anew for every call of this function: AES-256-CTR under the key."""
    seeds = Seeds(bytes.fromhex(key))

    def draw(size: int) -> NDArray[np.uint64]:
        nonlocal seeds
        found = np.array(seeds.numbers(size), dtype=np.uint64)
        seeds = seeds.after(size)
        return found

    return draw


def _select(rows: TensorDataset, places: Indices) -> TensorDataset:
    if len(places) == len(rows):
        return rows
    index = torch.from_numpy(places)
    return TensorDataset(*(tensor[index] for tensor in rows.tensors))
