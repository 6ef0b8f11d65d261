"""What a network sees of an example: fixed functions of that example alone, so that nothing is released by them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from privet.data import DataSet
from privet.data.normalising import Step, grouped, localised, normalised, rooted, whitened
from privet.data.scattering import scattered


def _as_they_are(data: DataSet) -> DataSet:
    return data


def _with(steps: tuple[Step, ...], data: DataSet) -> DataSet:
    return normalised(data, *steps)


# Name → what is done to scattering coefficients, in this order.
_NORMALISED: dict[str, tuple[Step, ...]] = {
    "normalised scattering": (rooted, whitened, localised),
    "normalised scattering, no roots": (whitened, localised),
    "normalised scattering, not whitened": (rooted, localised),
    "normalised scattering, not local": (rooted, whitened),
    "scattering in groups of length 10": (grouped,),
}
FEATURES: dict[str, Callable[[DataSet], DataSet]] = {
    "as they are": _as_they_are,
    "scattering": scattered,
    **{name: partial(_with, steps) for name, steps in _NORMALISED.items()},
}
