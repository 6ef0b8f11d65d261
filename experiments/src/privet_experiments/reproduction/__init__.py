"""Reproduction of a recipe: its missing runs, and tables and figures of all runs."""
