"""One door to every data set: a name of the catalogue or a file of the user's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from privet.data.catalogue import SETS
from privet.data.classes import Declaration
from privet.data.dataset import DataSet
from privet.data.download import published
from privet.data.formats.npz import load_npz
from privet.data.formats.table import load_csv
from privet.errors import InvalidArgumentError


@dataclass(frozen=True)
class _Loader:
    call: Callable[..., DataSet]
    options: frozenset[str]  # what it takes beside the source


_CSV = _Loader(load_csv, frozenset({"target", "classes", "scaling", "test", "user_column"}))
_FILES = {".npz": _Loader(load_npz, frozenset({"classes", "test", "user_column"})), ".csv": _CSV, ".csv.gz": _CSV}


def load(
    source: str | Path,
    *,
    folder: str | Path | None = None,
    target: str | None = None,
    classes: Declaration | None = None,
    scaling: str | None = None,
    test: str | Path | None = None,
    user_column: str | None = None,
) -> DataSet:
    """Return a data set of the catalogue or one from a file; options that the source has no use for are refused.

    Args:
        source: one of `catalogue()`, such as "mnist", which is fetched into the cache if need be, or the path of an .npz file
            (arrays x_train, y_train and perhaps x_test, y_test), a .csv or a .csv.gz file.
        folder: for the catalogue: a folder to look in first, with `source`.npz or the published files in it.
        target: for CSV: the column with the label.
        classes: for files, which have none without it: their number K, if the labels are 0 to K − 1, or the labels in order, as a
            sequence or as one text with commas. No class is read off private rows; an example with another label keeps its
            place and is ignored by the loss.
        scaling: for CSV: "log" (default), sign(x)·log(1+|x|), or "raw"; never computed from the data.
        test: for files: another file of the kind, with public test data: the same columns (CSV), or x_test and y_test (.npz).
        user_column: for files: the column (CSV) or array (.npz) that says whose each training example is.
    Errors: InvalidArgumentError for an unknown source, an option that does not apply or a file of the wrong format;
        DataUnavailableError if a data set of the catalogue can be had nowhere.
    """
    options = {
        "folder": folder, "target": target, "classes": classes, "scaling": scaling, "test": test, "user_column": user_column,
    }  # fmt: skip
    given = {name: value for name, value in options.items() if value is not None}
    loader = _loader(source)
    for name in sorted(given.keys() - loader.options):
        raise InvalidArgumentError(name, given[name], f"left out for {str(source)!r}", "It does not apply there.")
    if not isinstance(test, str | Path | None):
        raise InvalidArgumentError("test", test, "the path of a file")
    return loader.call(**given)


def _loader(source: str | Path) -> _Loader:
    if str(source) in SETS:
        return _Loader(partial(published.load, SETS[str(source)]), frozenset({"folder"}))
    for ending, loader in _FILES.items():
        if str(source).lower().endswith(ending):
            return _Loader(partial(loader.call, Path(source).expanduser()), loader.options)
    allowed = f"one of {', '.join(SETS)} or the path of a file that ends in {', '.join(_FILES)}"
    raise InvalidArgumentError("source", str(source), allowed)
