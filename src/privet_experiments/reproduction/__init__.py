"""Reproduction of a recipe: the runs that are missing, and tables and figures of all of them."""
