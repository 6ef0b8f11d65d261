"""Tasks: what one run of a recipe does, and what is recorded of it."""
