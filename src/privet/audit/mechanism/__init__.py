"""The audit of a mechanism: clipping, noise, division and sampling, measured against what the plan says."""
