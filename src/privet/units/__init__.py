"""Privacy units: data sets of users or groups, and losses over the examples of a unit."""

from privet.accounting import Unit
from privet.units.augmentations import AUGMENTATIONS, augmentation
from privet.units.datasets import Groups, Users
from privet.units.row_losses import averaged, grouped

__all__ = ["AUGMENTATIONS", "Groups", "Unit", "Users", "augmentation", "averaged", "grouped"]
