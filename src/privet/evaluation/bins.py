"""Table of confidence and frequency by bin, from which all calibration errors and figures are computed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privet.errors import InvalidArgumentError, count

BINS = 15
# Distance from [0, 1] that rounding in single precision may cause.
_ROUNDING = 1e-6
_MOST = 2**53  # examples in a bin; the share of more is no exact float


@dataclass(frozen=True, slots=True)
class BinTable:
    """Predicted probabilities of events against the frequency of the events, by bin.

    Bin b covers [edges[b], edges[b+1]); the last bin is closed, so that it includes a confidence of 1.0.

    >>> table = tabulate([0.9, 1.0, 0.55, 0.6], [True, True, False, True], equal_width(2))
    >>> table.counts, table.hits
    ((0, 4), (0, 3))
    >>> round(table.expected_error, 4), (table + table).counts
    (0.0125, (0, 8))
    """

    edges: tuple[float, ...]  # M + 1 increasing numbers from 0 to 1
    counts: tuple[int, ...]  # number of examples in each of the M bins
    hits: tuple[int, ...]  # number of these for which the event occurred
    confidence: tuple[float, ...]  # sum of their predicted probabilities

    def __post_init__(self) -> None:
        if [*self.edges[:1], *self.edges[-1:]] != [0, 1] or not all(low < high for low, high in pairwise(self.edges)):
            raise InvalidArgumentError("edges", self.edges, "increasing from 0 to 1", "Use equal_width(15).")
        lengths = {len(self.counts), len(self.hits), len(self.confidence)}
        if lengths != {len(self.edges) - 1}:
            raise InvalidArgumentError("counts, hits and confidence", sorted(lengths), "of one entry per bin")
        if not all(0 <= hits <= count <= _MOST for hits, count in zip(self.hits, self.counts, strict=True)):
            raise InvalidArgumentError("hits", self.hits, "from 0 to the number of examples in the bin")

    @property
    def examples(self) -> int:
        """Number of examples in the table."""
        return sum(self.counts)

    @property
    def gaps(self) -> NDArray[np.float64]:
        """Mean confidence minus frequency, shape (M,); positive for overconfidence, NaN for an empty bin."""
        counts, hits = (np.asarray(column, dtype=np.float64) for column in (self.counts, self.hits))
        with np.errstate(invalid="ignore"):
            found: NDArray[np.float64] = (np.asarray(self.confidence) - hits) / counts
        return found

    @property
    def expected_error(self) -> float:
        """ECE: mean of |gap| over bins, weighted by their examples; NaN without examples (Guo et al. 2017, Eq. 3)."""
        return self._mean(np.abs)

    @property
    def maximum_error(self) -> float:
        """MCE: largest |gap| of a non-empty bin; NaN without examples (Guo et al. 2017, Eq. 5)."""
        gaps = np.abs(self.gaps[np.asarray(self.counts) > 0])
        return float(gaps.max()) if len(gaps) else math.nan

    @property
    def root_mean_square_error(self) -> float:
        """RMSCE: root of the mean squared gap over bins, weighted by their examples (Kumar, Liang, Ma 2019, Definition 2.1)."""
        return math.sqrt(self._mean(np.square))

    def _mean(self, size: np.ufunc) -> float:
        filled = np.asarray(self.counts) > 0
        return float(size(self.gaps[filled]) @ np.asarray(self.counts)[filled] / self.examples) if filled.any() else math.nan

    def __add__(self, other: Self) -> Self:
        """Return the table of the examples of both tables, which must have equal edges."""
        if self.edges != other.edges:
            raise InvalidArgumentError("edges", other.edges, f"those of the other table, {self.edges}")
        return type(self)(
            self.edges,
            tuple(map(sum, zip(self.counts, other.counts, strict=True))),
            tuple(map(sum, zip(self.hits, other.hits, strict=True))),
            tuple(map(math.fsum, zip(self.confidence, other.confidence, strict=True))),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return values for standard JSON, from which `from_dict` restores an equal table."""
        return {field.name: to_plain(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the table from the result of `to_dict`."""
        return cls(
            tuple(map(float, values["edges"])),
            tuple(map(int, values["counts"])),
            tuple(map(int, values["hits"])),
            tuple(map(float, values["confidence"])),
        )


def equal_width(bins: int = BINS) -> tuple[float, ...]:
    """Return the edges of bins of equal width.

    >>> equal_width(4)
    (0.0, 0.25, 0.5, 0.75, 1.0)
    """
    return tuple(np.linspace(0.0, 1.0, count("bins", bins) + 1).tolist())


def equal_mass(confidence: ArrayLike, bins: int = BINS) -> tuple[float, ...]:
    """Return the edges of bins with equally many of these confidences, up to ties; there are fewer bins if many are equal.

    Tables can be added only if their edges are equal, so bin all parts of a data set by the same edges.

    Args:
        confidence: (N,) probabilities; NaN are left out.
        bins: largest number of bins, ≥ 1.

    >>> equal_mass([0.5, 0.6, 0.9, 0.95], bins=2)
    (0.0, 0.9, 1.0)
    """
    column = _column("confidence", confidence)
    values = np.sort(column[np.isfinite(column)])
    firsts = values[(np.arange(1, count("bins", bins)) * len(values)) // bins] if len(values) else values
    inner = firsts[(firsts > 0) & (firsts < 1)]
    return (0.0, *np.unique(inner).tolist(), 1.0)


def tabulate(confidence: ArrayLike, hits: ArrayLike, edges: Sequence[float] | None = None) -> BinTable:
    """Return the table of events with predicted probabilities.

    Args:
        confidence: (N,) probabilities in [0, 1]. NaN, from a diverged model, makes all errors NaN.
        hits: (N,) booleans: whether each event occurred.
        edges: edges of the bins; None for 15 bins of equal width.

    Raises:
        InvalidArgumentError: a probability is outside [0, 1], or the lengths differ.
    """
    claimed, came = _column("confidence", confidence), np.asarray(hits, dtype=bool)
    if came.shape != claimed.shape:
        raise InvalidArgumentError("hits", came.shape, f"one for each of the {len(claimed)} confidences")
    if (np.abs(claimed - 0.5) > 0.5 + _ROUNDING).any():
        raise InvalidArgumentError("confidence", "with values outside", "in [0, 1]", "Apply softmax to logits.")
    bounds = tuple(map(float, equal_width() if edges is None else edges))
    bins = len(bounds) - 1
    where = np.clip(np.searchsorted(bounds, claimed, side="right") - 1, 0, bins - 1)
    return BinTable(
        bounds,
        tuple(np.bincount(where, minlength=bins).tolist()),
        tuple(np.bincount(where[came], minlength=bins).tolist()),
        tuple(np.bincount(where, claimed, minlength=bins).tolist()),
    )


def top_label(labels: ArrayLike, probabilities: ArrayLike, edges: Sequence[float] | None = None) -> BinTable:
    """Return the table of a classifier's top predictions: the largest probability, and whether it is that of the label.

    Args:
        labels: (N,) classes.
        probabilities: (N, K) probabilities of all classes.
        edges: edges of the bins; None for 15 bins of equal width.
    """
    targets, claimed = _check_shapes(labels, probabilities)
    return tabulate(claimed.max(1), claimed.argmax(1) == targets, edges)


def class_wise(labels: ArrayLike, probabilities: ArrayLike, edges: Sequence[float] | None = None) -> tuple[BinTable, ...]:
    """Return one table per class: its probability, and whether it is the label; arguments as for `top_label`.

    The class-wise ECE is the mean of the ECEs of these tables (Kull et al. 2019, "Beyond temperature scaling", Eq. 5).
    """
    targets, claimed = _check_shapes(labels, probabilities)
    return tuple(tabulate(claimed[:, label], targets == label, edges) for label in range(claimed.shape[1]))


def _check_shapes(labels: ArrayLike, probabilities: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    targets, claimed = np.asarray(labels, dtype=np.int64), np.asarray(probabilities, dtype=np.float64)
    if claimed.ndim != 2 or targets.shape != claimed.shape[:1]:
        raise InvalidArgumentError("probabilities", claimed.shape, f"of shape ({len(targets)}, classes), one row per label")
    return targets, claimed


def _column(name: str, values: ArrayLike) -> NDArray[np.float64]:
    column = np.asarray(values, dtype=np.float64)
    if column.ndim != 1:
        raise InvalidArgumentError(name, column.shape, "of one dimension")
    return column


def to_plain(value: Any) -> Any:
    """Return the value with tuples as lists, and infinity and NaN, which standard JSON lacks, as strings that float() reads."""
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
