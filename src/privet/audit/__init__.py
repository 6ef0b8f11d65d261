"""Audits: white-box attacks on training that prove lower bounds on its privacy loss."""

from privet.audit._mechanism.whitebox import MechanismAudit, mechanism
from privet.audit._one_run.canaries import canaries
from privet.audit._one_run.guesses import GuessBounds, bounds
from privet.audit._one_run.membership import OneRunAudit, one_run
from privet.audit._program.guarantee import FAMILIES, GuaranteeCheck, check, usual_plan
from privet.audit.checks import Check
from privet.audit.federated_rounds import hold_rounds
from privet.audit.probe import LinearModel, Probe, ProbeData, Trace, Trainer

__all__ = [
    "FAMILIES", "Check", "GuaranteeCheck", "GuessBounds", "LinearModel", "MechanismAudit", "OneRunAudit", "Probe",
    "ProbeData", "Trace", "Trainer", "bounds", "canaries", "check", "hold_rounds", "mechanism", "one_run", "usual_plan",
]  # fmt: skip
