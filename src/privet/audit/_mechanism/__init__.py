"""Audit of a mechanism: clipping, noise, averaging and sampling, measured against the plan."""
