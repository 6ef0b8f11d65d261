"""Privacy units: data sets of users or groups, and losses over the examples of a unit."""

from privet.units.augmentations import AUGMENTATIONS, augmentation
from privet.units.datasets import Groups, Users
from privet.units.row_losses import averaged, grouped

__all__ = ["AUGMENTATIONS", "Groups", "Users", "augmentation", "averaged", "grouped"]
