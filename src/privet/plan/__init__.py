"""The plan: the one place where everything meets that the guarantee depends on."""

from privet.plan.length import Epochs, epochs
from privet.plan.plan import FORMAT, Plan
from privet.plan.registry import PARTS, register

__all__ = ["FORMAT", "PARTS", "Epochs", "Plan", "epochs", "register"]
