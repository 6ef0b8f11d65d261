"""One door to every data set: a name of the catalogue or a file of the user's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from privet.data import published
from privet.data.catalogue import SETS
from privet.data.dataset import DataSet
from privet.data.npz import load_npz
from privet.data.table import load_csv
from privet.errors import InvalidArgumentError


@dataclass(frozen=True)
class _Loader:
    call: Callable[..., DataSet]
    options: frozenset[str]  # what it takes beside the source


_CSV = _Loader(load_csv, frozenset({"target", "scaling", "test_fraction", "user_column"}))
_FILES = {".npz": _Loader(load_npz, frozenset({"user_column"})), ".csv": _CSV, ".csv.gz": _CSV}


def load(
    source: str | Path,
    *,
    folder: str | Path | None = None,
    target: str | None = None,
    scaling: str | None = None,
    test_fraction: float | None = None,
    user_column: str | None = None,
) -> DataSet:
    """Return a data set of the catalogue or one from a file; options that the source has no use for are refused.

    Args:
        source: one of `catalogue()`, such as "mnist", which is fetched into the cache if need be, or the path of an .npz file
            (arrays x_train, y_train and perhaps x_test, y_test), a .csv or a .csv.gz file.
        folder: for the catalogue: a folder to look in first, with `source`.npz or the published files in it.
        target: for CSV: the column with the label.
        scaling: for CSV: "log" (default), sign(x)·log(1+|x|), or "raw"; never computed from the data.
        test_fraction: for CSV: share of rows in the test part, in [0, 1); 0.2 by default.
        user_column: for files: the column (CSV) or array (.npz) that says whose each training example is.
    Errors: InvalidArgumentError for an unknown source, an option that does not apply or a file of the wrong format;
        DataUnavailableError if a data set of the catalogue can be had nowhere.
    """
    options = {
        "folder": folder, "target": target, "scaling": scaling, "test_fraction": test_fraction, "user_column": user_column,
    }  # fmt: skip
    given = {name: value for name, value in options.items() if value is not None}
    loader = _loader(source)
    for name in sorted(given.keys() - loader.options):
        raise InvalidArgumentError(name, given[name], f"left out for {str(source)!r}", "It does not apply there.")
    return loader.call(**given)


def _loader(source: str | Path) -> _Loader:
    if str(source) in SETS:
        return _Loader(partial(published.load, SETS[str(source)]), frozenset({"folder"}))
    for ending, loader in _FILES.items():
        if str(source).lower().endswith(ending):
            return _Loader(partial(loader.call, Path(source).expanduser()), loader.options)
    allowed = f"one of {', '.join(SETS)} or the path of a file that ends in {', '.join(_FILES)}"
    raise InvalidArgumentError("source", str(source), allowed)
