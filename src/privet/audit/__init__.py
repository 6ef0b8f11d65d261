"""Audits: attacks on a training from inside, that show a lower bound on what it leaks."""

from privet.audit.canaries import canaries
from privet.audit.checks import Check
from privet.audit.guarantee import FAMILIES, GuaranteeCheck, check, usual_plan
from privet.audit.guesses import GuessBounds, bounds
from privet.audit.membership import OneRunAudit, one_run
from privet.audit.probe import LinearModel, Probe, ProbeData, Trace, Trainer
from privet.audit.whitebox import MechanismAudit, mechanism

__all__ = [
    "FAMILIES",
    "Check",
    "GuaranteeCheck",
    "GuessBounds",
    "LinearModel",
    "MechanismAudit",
    "OneRunAudit",
    "Probe",
    "ProbeData",
    "Trace",
    "Trainer",
    "bounds",
    "canaries",
    "check",
    "mechanism",
    "one_run",
    "usual_plan",
]
