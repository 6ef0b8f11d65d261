"""Methods to compute the tape of per-example gradients for a batch."""
