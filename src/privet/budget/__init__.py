"""A budget that several runs on one data set share."""

from privet.budget.account import Account, Share
from privet.budget.budget import Budget
from privet.budget.terms import Terms

__all__ = ["Account", "Budget", "Share", "Terms"]
