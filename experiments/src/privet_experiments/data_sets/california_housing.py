"""California housing: 20,640 districts of the 1990 census, with the median house price.

The eight inputs are derived from the published columns as in scikit-learn; the target is in units of 100,000 dollars, and 965
targets are capped at 5.00001.

Source: Pace & Barry 1997, "Sparse spatial autoregressions".
"""

from __future__ import annotations

__all__ = ["CALIFORNIA_HOUSING"]

import numpy as np

from privet.data.download.packages import Place, download
from privet_experiments.data_sets.archives import tar_member
from privet_experiments.data_sets.table_set import MOST_BYTES, Cells, Column, TableSet

_ADDRESS = "https://ndownloader.figshare.com/files/5976036"
_MEMBER = "CaliforniaHousing/cal_housing.data"


def _from_address() -> Cells:
    return CALIFORNIA_HOUSING.parse(tar_member(download(_ADDRESS, MOST_BYTES), _MEMBER))


def _features(columns: Column) -> Column:
    longitude, latitude, age, rooms, bedrooms, population, households, income = columns.T
    people = population / households
    return np.stack((income, age, rooms / households, bedrooms / households, population, people, latitude, longitude), axis=1)


def _price(dollars: Column) -> Column:
    return dollars / 100_000


CALIFORNIA_HOUSING = TableSet(
    name="california-housing",
    description="house prices by district",
    licence="public domain (none is stated)",
    obtained="its download address, else a folder with cal_housing.data",
    examples=(18_576, 2_064),
    classes=None,
    evidence="its cells have the pinned SHA-256 of StatLib's file",
    places=(Place(_ADDRESS, _from_address),),
    columns=8,
    delimiter=",",
    dtype="<f8",
    sha256="a2f4f55ff91c67e60391318ea4d61d247d09f8fef119ec6f44a1eb727d7f1f7b",
    names=("cal_housing.data", "california_housing.csv"),
    features=_features,
    target=_price,
    # Means and standard deviations published by scikit-learn's course, "The California housing dataset".
    centre=(3.870671, 28.639486, 5.429000, 1.096675, 1425.476744, 3.070655, 35.631861, -119.569704),
    spread=(1.899822, 12.585558, 2.474173, 0.473911, 1132.462122, 10.386050, 2.135952, 2.003532),
    bounds=(0.0, 5.00001),  # prices are not negative, and capped
)
