"""Preparation of the rows of a `datasets.Dataset` by TRL, such that nothing is raised, logged or dropped because of one row.

TRL prepares rows by `Dataset.map`, in functions of its own. Here, each of them runs on a made-up row first: its error or warning
is public. A row for which one fails becomes the made-up row without labels, and keeps its place.
"""

from __future__ import annotations

__all__ = ["Rows", "finish", "unwrap"]

import contextlib
import copy
import logging
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import datasets

_LOST = "privet_lost"
_IGNORED = -100
_LOGGERS = ("transformers.tokenization", "trl.")
_TURNS = {"prompt": (0,), "completion": (1,)}
_SPEAKERS = {"role": ("user", "assistant"), "from": ("human", "gpt")}
_TEXT = {"tools": "[]", "type": "text"}


class Rows(datasets.Dataset):  # type: ignore[misc]
    """A data set whose iterator has one made-up row, and whose functions are run on each row by itself.

    Attributes:
        made_up: a row with the columns of the others.
    """

    made_up: dict[str, Any]

    @classmethod
    def of(cls, dataset: datasets.Dataset, made_up: Mapping[str, Any] | None = None) -> Rows:
        """Return a data set as such rows.

        Args:
            dataset: the private rows.
            made_up: public row with these columns; by default made from their types.
        """
        rows: Rows = copy.copy(dataset)
        rows.__class__ = cls
        found = {name: _make_up(name, feature) for name, feature in dataset.features.items()} if made_up is None else made_up
        rows.made_up = {name: value for name, value in found.items() if name != _LOST}
        return rows

    def __iter__(self) -> Iterator[Any]:
        # TRL looks at the first row only, to tell chats from text.
        yield copy.deepcopy(self.made_up)

    def map(self, function: Any = None, **options: Any) -> Rows:
        """Apply a function of one row.

        Raises:
            Exception: the function fails for the made-up row.
        """
        arguments = options.pop("fn_kwargs", None) or {}
        found = dict(function(copy.deepcopy(self.made_up), **arguments))
        # What the function leaves alone, such as the column of users, stays that of the row.
        instead = {name: value for name, value in found.items() if name not in self.made_up or self.made_up[name] != value}
        with _silenced():
            prepared = unwrap(self).map(partial(_prepare, function, arguments, instead), **options)
        removed = options.get("remove_columns") or ()
        removed = (removed,) if isinstance(removed, str) else removed
        kept = {name: value for name, value in self.made_up.items() if name not in removed}
        return Rows.of(prepared, {**kept, **found})

    def filter(self, *args: Any, **options: Any) -> Rows:
        """Return all rows: how many there are is public, and a row without labels contributes nothing."""
        return self


def unwrap(dataset: Any) -> Any:
    """Return rows as the plain data set that they are, and any other data set as it is."""
    if not isinstance(dataset, Rows):
        return dataset
    plain = copy.copy(dataset)
    plain.__class__ = datasets.Dataset
    return plain


def finish(rows: Any) -> Any:
    """Return prepared rows as a plain data set; those that could not be prepared have no labels."""
    plain = unwrap(rows)
    return plain.map(_without_labels, remove_columns=[_LOST]) if _LOST in (plain.column_names or ()) else plain


def _prepare(function: Any, arguments: Mapping[str, Any], instead: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    given = dict(row)
    lost = given.pop(_LOST, False)
    if not lost:
        try:
            found = dict(function(given, **arguments))
        except Exception:  # of this row alone: a role that the template lacks, no text, …
            lost = True
        else:
            # A sequence of no tokens has no type.
            lost = "input_ids" in found and not len(found["input_ids"])
    return {**(instead if lost else found), _LOST: lost}


def _without_labels(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"labels": [_IGNORED] * len(row["labels"]) if row[_LOST] else row["labels"]}


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    """Drop what tokenizers and TRL log: it tells the length, or the text, of one row."""
    loggers = [logging.getLogger(name) for name in list(logging.root.manager.loggerDict) if name.startswith(_LOGGERS)]
    for each in loggers:
        each.addFilter(_never)
    try:
        yield
    finally:
        for each in loggers:
            each.removeFilter(_never)


def _never(record: logging.LogRecord) -> bool:
    return False


def _make_up(name: str, feature: Any) -> Any:
    """Return a made-up value of a column."""
    if isinstance(feature, datasets.Value):
        if "string" in feature.dtype:
            return _TEXT.get(name, "a")
        kinds = {"bool": True, "int": 1, "uint": 1, "float": 1.0}
        return next((value for kind, value in kinds.items() if feature.dtype.startswith(kind)), None)
    if isinstance(feature, dict):
        return {key: _make_up(key, each) for key, each in feature.items()}
    inner = feature[0] if isinstance(feature, list) else getattr(feature, "feature", None)
    if inner is None or name == "tools":
        return None if inner is None else []
    for who, speakers in _SPEAKERS.items():
        if isinstance(inner, dict) and who in inner:
            said = "content" if who == "role" else "value"
            turn = {**dict.fromkeys(inner), said: _make_up(said, inner.get(said))}
            return [{**turn, who: speakers[one]} for one in _TURNS.get(name, (0, 1))]
    return [_make_up(name, inner)]
