"""Privacy units: data sets of users or groups, and losses over the examples of a unit."""

from privet.accounting.privacy_unit import Unit
from privet.units.datasets import Groups, Users
from privet.units.row_losses import averaged, grouped

__all__ = ["Groups", "Unit", "Users", "averaged", "grouped"]
