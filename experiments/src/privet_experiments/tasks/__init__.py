"""Tasks: execution of one run of a recipe, and its record."""
