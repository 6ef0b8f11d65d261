"""What a network sees of an example: fixed functions of that example alone, so that nothing is released by them."""

from __future__ import annotations

from collections.abc import Callable

from privet.data import DataSet
from privet.data.scattering import scattered


def _as_they_are(data: DataSet) -> DataSet:
    return data


FEATURES: dict[str, Callable[[DataSet], DataSet]] = {"as they are": _as_they_are, "scattering": scattered}
