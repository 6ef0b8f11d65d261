"""Audits: white-box attacks on training that prove lower bounds on its privacy loss."""

from privet.audit.checks import Check
from privet.audit.mechanism.whitebox import MechanismAudit, mechanism
from privet.audit.one_run.canaries import canaries
from privet.audit.one_run.guesses import GuessBounds, bounds
from privet.audit.one_run.membership import OneRunAudit, one_run
from privet.audit.probe import LinearModel, Probe, ProbeData, Trace, Trainer
from privet.audit.program.guarantee import FAMILIES, GuaranteeCheck, check, usual_plan

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
