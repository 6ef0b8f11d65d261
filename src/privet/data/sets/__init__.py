"""Data sets of the catalogue."""
