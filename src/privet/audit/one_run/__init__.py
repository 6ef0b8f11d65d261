"""The audit of one whole training: canaries among the real examples, and guesses of which were in."""
