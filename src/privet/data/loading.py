"""Loading of data sets, by a name of the catalogue or from a user's file."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple

from privet.data.classes import Declaration
from privet.data.dataset import DataSet
from privet.data.download import published
from privet.data.download.published import Published
from privet.data.formats.npz import load_npz
from privet.data.formats.table import describe_source, load_table, without_schema
from privet.data.sets.digits import DIGITS
from privet.data.sets.fashion_mnist import FASHION_MNIST
from privet.data.sets.mnist import MNIST
from privet.errors import InvalidArgumentError, choice
from privet.tables import Schema
from privet.tables.frames import ENDINGS, sheet_fix


@functools.cache
def published_sets() -> Mapping[str, Published[Any]]:
    """Return the data sets by name: Privet's own, and those of installed packages (entry points `privet.data_sets`)."""
    others = (entry.load() for entry in entry_points(group="privet.data_sets"))
    return {one.name: one for one in (MNIST, FASHION_MNIST, DIGITS, *others)}


def catalogue() -> tuple[Published[Any], ...]:
    """Return the data sets that can be loaded by name, without reading data or using the network; `to_dict` describes each."""
    return tuple(published_sets().values())


def fetch(name: str, folder: str | Path | None = None) -> Path:
    """Fetch a data set of the catalogue into the cache and return the path of its file.

    Args:
        name: a name of the catalogue.
        folder: folder to search first, with `name`.npz or the published files.
    """
    sets = published_sets()
    return published.fetch(sets[choice("name", name, sets)], folder)


class _Loader(NamedTuple):
    call: Callable[..., DataSet]
    options: frozenset[str]  # names of its options


# What takes the place of an option for a table.
_FIXES = {
    "classes": "The schema of a table declares the classes.",
    "user_column": 'The schema of a table declares the users: a column of the kind "user".',
}
_TABLE = _Loader(load_table, frozenset({"schema", "target", "test"}))
_FILES = {".npz": _Loader(load_npz, frozenset({"classes", "test", "user_column"})), **dict.fromkeys(ENDINGS, _TABLE)}


def load(
    source: object,
    *,
    folder: str | Path | None = None,
    schema: Schema | str | Path | None = None,
    target: str | None = None,
    classes: Declaration | None = None,
    test: object = None,
    user_column: str | None = None,
) -> DataSet:
    """Load a data set of the catalogue, a table or a file of arrays, for a training loop of your own.

    Options that do not apply to the source are refused, and so is a schema with priors: a loss of your own does not know them.

    Args:
        source: a name of `catalogue()`, such as "mnist", which is fetched into the cache if necessary; the path of a table that
            ends in .csv, .tsv (both also with .gz), .parquet, .arrow or .feather; a pandas, polars or pyarrow table; or the path
            of an .npz file (arrays x_train, y_train and optionally x_test, y_test).
        folder: for the catalogue: folder to search first, with `source`.npz or the published files.
        schema: for tables, required: a `privet.tables.Schema`, or the path of its TOML file. Nothing is inferred from private
            rows. Its column of users, if it has one, is the unit of privacy.
        target: for tables: the column to predict, which must be that of the schema.
        classes: for arrays, required: the number of classes K for the labels 0 to K − 1, or the labels in order, as a sequence or
            as one string with commas. The loss ignores an example with any other label, which keeps its place.
        test: public test data in the same format: a table with the same columns, or an .npz file with x_test and y_test.
        user_column: for arrays: the array with the user of each training example.

    Raises:
        InvalidArgumentError: the source is unknown, an option does not apply, a table has no schema, or a file has the wrong
            format.
        DataUnavailableError: no source provides a data set of the catalogue.
    """
    found = load_for_run(source, folder=folder, schema=schema, target=target, classes=classes, test=test, user_column=user_column)
    if found.schema is not None and found.schema.priors:
        allowed = "one without priors, which a loss of your own does not know"
        fix = (
            "Remove this line from the schema, and add the logarithms of the priors to the logits in your loss. privet train, "
            "fit and federate and the estimators for scikit-learn take priors from a schema."
        )
        raise InvalidArgumentError("schema", f"one with priors = {[*found.schema.priors]}", allowed, fix)
    return found


def load_for_run(source: object, **options: Any) -> DataSet:
    """Return what `load` does, for a loss that takes the priors of the schema; all options may be None."""
    given = {name: value for name, value in options.items() if value is not None}
    loader = _loader(source)
    undeclared = {"schema", "classes"} & loader.options - given.keys()
    # Before a declaration is asked for, which would not help.
    if undeclared and isinstance(source, str | Path) and not Path(source).expanduser().exists():
        raise InvalidArgumentError("source", str(source), "the path of a file", cause="there is no such file")
    if "schema" in undeclared:
        raise without_schema(source, given.get("target"))
    for name in sorted(given.keys() - loader.options):
        fix = _FIXES[name] if "schema" in loader.options and name in _FIXES else "It does not apply to this source."
        raise InvalidArgumentError(name, given[name], f"left out for {describe_source(source)}", fix)
    if "schema" not in loader.options and not isinstance(given.get("test"), str | Path | None):
        raise InvalidArgumentError("test", type(given["test"]).__name__, "the path of a file")
    return loader.call(**given)


def _loader(source: object) -> _Loader:
    if not isinstance(source, str | Path):
        return _Loader(partial(_TABLE.call, source), _TABLE.options)
    sets = published_sets()
    if str(source) in sets:
        return _Loader(partial(published.load, sets[str(source)]), frozenset({"folder"}))
    for ending, loader in _FILES.items():
        if str(source).lower().endswith(ending):
            return _Loader(partial(loader.call, Path(source).expanduser()), loader.options)
    allowed = f"one of {', '.join(sets)} or the path of a file that ends in {', '.join(_FILES)}"
    raise InvalidArgumentError("source", str(source), allowed, sheet_fix(Path(source)))
