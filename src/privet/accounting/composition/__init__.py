"""Composition of whole mechanisms: filters, private selection, parallel composition, and scalar noise mechanisms."""
