"""Readers of file formats, which return checked arrays."""
