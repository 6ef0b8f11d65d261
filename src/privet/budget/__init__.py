"""Privacy budgets shared by several runs on one data set."""

from privet.budget.account import Account, Share
from privet.budget.budget import Budget
from privet.budget.terms import Terms

__all__ = ["Account", "Budget", "Share", "Terms"]
