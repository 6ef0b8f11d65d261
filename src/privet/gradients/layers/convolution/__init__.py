"""Convolutions and transposed convolutions over one, two and three dimensions."""
