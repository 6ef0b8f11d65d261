"""State of a training: everything that steps change, all of it public."""
