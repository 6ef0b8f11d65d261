"""Loading of data sets, by a name of the catalogue or from a user's file."""

from __future__ import annotations

__all__ = ["load"]

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
    options: frozenset[str]  # names of its options


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
    """Load a data set of the catalogue or from a file; options that do not apply to the source are refused.

    Args:
        source: a name of `catalogue()`, such as "mnist", which is fetched into the cache if necessary; or the path of an .npz
            file (arrays x_train, y_train and optionally x_test, y_test), or of a .csv or .csv.gz file.
        folder: for the catalogue: folder to search first, with `source`.npz or the published files.
        target: for CSV: the label column.
        classes: for files, required: the number of classes K for the labels 0 to K − 1, or the labels in order, as a sequence or
            as one string with commas. Classes are never inferred from private rows; the loss ignores an example with any other
            label, which keeps its place.
        scaling: for CSV: "log" (default) for sign(x)·log(1+|x|), or "raw"; never computed from the data.
        test: for files: file of public test data in the same format: the same columns (CSV), or x_test and y_test (.npz).
        user_column: for files: column (CSV) or array (.npz) with the user of each training example.
    Errors: InvalidArgumentError for an unknown source, an option that does not apply or a file of the wrong format;
        DataUnavailableError if no source provides a data set of the catalogue.
    """
    options = {
        "folder": folder, "target": target, "classes": classes, "scaling": scaling, "test": test, "user_column": user_column,
    }  # fmt: skip
    given = {name: value for name, value in options.items() if value is not None}
    loader = _loader(source)
    for name in sorted(given.keys() - loader.options):
        raise InvalidArgumentError(name, given[name], f"left out for {str(source)!r}", "It does not apply to this source.")
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
