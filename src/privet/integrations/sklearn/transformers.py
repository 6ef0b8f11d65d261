"""Transformers whose constants are public arguments: they learn nothing from rows, so that fitting them releases nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from privet.errors import InvalidArgumentError
from privet.integrations.sklearn.public_facts import Bounds, declare_numbers, read_booleans, read_rows
from privet.tables import Category
from privet.tables.cells import mark_missing
from privet.tables.columns import Column
from privet.tables.frames import Frame


class PublicTransformer(TransformerMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """What `PublicScaler` and `PublicOneHot` share: each column is encoded by public constants.

    Guarantee:
        The features of a row depend on that row and the arguments only, and no cell raises an exception.
    """

    def fit(self, X: Any, y: Any = None) -> Any:  # noqa: N803
        """Check the arguments against the number and names of the columns, and return the transformer; no cell is used."""
        self._columns([*read_rows(self, X, reset=True).columns])
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:  # noqa: N803
        """Return the features of each row, (N, F) float32; columns and errors as for `fit`, which need not come first."""
        frame = self._read(X)
        columns = self._columns([*frame.columns])
        # Among texts, NumPy writes a missing number as "nan".
        pairs = [(column, {"nan"}.difference(column.values_with_meaning)) for column in columns]
        cells = frame.columns.values()
        return np.hstack([column.encode(mark_missing(each, nan)) for (column, nan), each in zip(pairs, cells, strict=True)])

    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> NDArray[np.object_]:
        """Return the names of the features, such as "age" and "colour=red".

        Args:
            input_features: names of the columns; by default those of the fitted rows, or x0, x1, ….
        """
        check_is_fitted(self, "n_features_in_")
        fitted = getattr(self, "feature_names_in_", None)
        if input_features is None:
            names = [f"x{place}" for place in range(self.n_features_in_)] if fitted is None else [*fitted]
        else:
            names = [*input_features]
        if len(names) != self.n_features_in_:
            raise ValueError(f"input_features should have length equal to number of features ({self.n_features_in_})")
        if fitted is not None and names != [*fitted]:
            raise ValueError("input_features is not equal to feature_names_in_")
        columns = self._columns(names)
        labels = [f"{name}{label}" for name, column in zip(names, columns, strict=True) for label in column.labels()]
        return np.array(labels, dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def _read(self, rows: Any) -> Frame:
        return read_rows(self, rows, reset=False)

    @abstractmethod
    def _columns(self, names: Sequence[str]) -> list[Column]:
        """Return the public encoding of each column."""


class PublicScaler(PublicTransformer):
    """Scales numbers so that their public bounds become −1 and 1, in place of `StandardScaler` and `MinMaxScaler`.

    Numbers outside the bounds are clipped.

    Args:
        bounds: (low, high), each a number or one per column; or column → (low, high). Public.
        missing: "neutral": a missing number, or a cell that is none, becomes 0; "indicator": it also sets a feature of its own.

    >>> from privet.integrations.sklearn import PublicScaler
    >>> PublicScaler(bounds=(0, [10, 100])).transform([[5, 75], [12, float("nan")]]).tolist()
    [[0.0, 0.5], [1.0, 0.0]]
    """

    def __init__(self, bounds: Bounds | None = None, *, missing: str = "neutral") -> None:
        self.bounds = bounds
        self.missing = missing

    def _read(self, rows: Any) -> Frame:
        return read_booleans(super()._read(rows))

    def _columns(self, names: Sequence[str]) -> list[Column]:
        return [*declare_numbers("bounds", names, self.bounds, self.missing)]


class PublicOneHot(PublicTransformer):
    """Encodes each column by one feature per public category, in place of `OneHotEncoder`.

    Args:
        categories: a list of values for each column; or one list of values, for every column. Public.
        missing: "neutral": a missing cell becomes zeros; "indicator": it also sets a feature of its own.
        unknown: the same for a cell that is none of the categories.

    >>> from privet.integrations.sklearn import PublicOneHot
    >>> PublicOneHot(categories=[["red", "white"]]).transform([["white"], ["pink"]]).tolist()
    [[0.0, 1.0], [0.0, 0.0]]
    """

    def __init__(self, categories: Sequence[Any] | None = None, *, missing: str = "neutral", unknown: str = "neutral") -> None:
        self.categories = categories
        self.missing = missing
        self.unknown = unknown

    def _columns(self, names: Sequence[str]) -> list[Column]:
        fix = "They are public and must come from elsewhere: which values occur among private rows is private."
        given = self.categories
        if given is None or isinstance(given, str | bytes) or not isinstance(given, Iterable):
            raise InvalidArgumentError("categories", given, "a list of values for each column", fix)
        lists = [*given]
        if not any(isinstance(each, list | tuple | np.ndarray) for each in lists):
            lists = [lists] * len(names)
        if len(lists) != len(names):
            raise InvalidArgumentError("categories", f"{len(lists)} lists", f"one for each of the {len(names)} columns", fix)
        return [Category(tuple(map(str, values)), missing=self.missing, unknown=self.unknown) for values in lists]
