"""The plan: everything that the guarantee depends on, in one place."""

from privet.plan.mechanism import PrivacyMechanism
from privet.plan.plan import Plan
from privet.plan.queries import ClassCounts, Holdout

__all__ = ["ClassCounts", "Holdout", "Plan", "PrivacyMechanism"]
