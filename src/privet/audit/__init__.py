"""Audits: attacks on a training from inside, that show a lower bound on what it leaks."""

from privet.audit.checks import Check
from privet.audit.probe import LinearModel, Probe, ProbeData, Trace, Trainer
from privet.audit.whitebox import MechanismAudit, mechanism

__all__ = ["Check", "LinearModel", "MechanismAudit", "Probe", "ProbeData", "Trace", "Trainer", "mechanism"]
