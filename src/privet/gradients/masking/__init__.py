"""Per-example gradients of which a public mask keeps some entries."""
