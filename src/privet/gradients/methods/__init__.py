"""Ways to get the tape of a batch."""
