"""Combination of all per-example gradients of one parameter into one."""
