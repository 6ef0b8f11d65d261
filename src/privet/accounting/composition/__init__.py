"""Composition of whole mechanisms: filters, selection, disjoint data, and mechanisms beside the Gaussian one."""
