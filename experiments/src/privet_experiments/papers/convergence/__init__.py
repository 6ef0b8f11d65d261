"""Recipes of Bu et al.: calibration, tangent kernels, and transfer of pretrained networks."""
