"""Audit of one training run, by guessing which canaries among the real examples took part."""
