"""Per-example gradients restricted to the entries that a public mask keeps."""
