"""State of a training: everything that steps change. All of it is public."""
