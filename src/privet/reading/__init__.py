"""From a data set to batches of examples that no user code has seen side by side."""
