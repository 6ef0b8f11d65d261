"""The data sets of the catalogue."""
