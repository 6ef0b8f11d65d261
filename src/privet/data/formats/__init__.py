"""File formats: what a file holds, checked and as arrays."""
