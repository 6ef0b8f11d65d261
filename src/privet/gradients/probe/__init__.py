"""Checks of a model and a loss on public input before the first step."""
