"""Recipes of Zhu, Blaschko: randomly sparsified gradients, ranked masks, and gradient embedding perturbation."""
