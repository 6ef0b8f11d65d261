"""The plan: everything that the guarantee depends on, in one place."""

from privet._utils.registry import PARTS, register
from privet.plan.calibration import calibrate
from privet.plan.mechanism import Epochs, PrivacyMechanism, epochs
from privet.plan.plan import FORMAT, Plan
from privet.plan.queries import ClassCounts, Holdout

__all__ = ["FORMAT", "PARTS", "ClassCounts", "Epochs", "Holdout", "Plan", "PrivacyMechanism", "calibrate", "epochs", "register"]
