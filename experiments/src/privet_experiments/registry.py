"""Recipes by name."""

from __future__ import annotations

__all__ = ["RECIPES", "find"]

from pathlib import Path

from privet.errors import InvalidArgumentError
from privet_experiments.papers.algorithms import ALGORITHMS_FASHION
from privet_experiments.papers.best_of_all import BETTER_FASHION, BETTER_FASHION_PARTS, BETTER_MNIST, BETTER_MNIST_PARTS
from privet_experiments.papers.convergence.calibration import CALIBRATION_CALIFORNIA, CALIBRATION_MNIST, CALIBRATION_WINE
from privet_experiments.papers.convergence.ntk_optimizers import NTK_OPTIMIZERS
from privet_experiments.papers.convergence.ntk_table import NTK_TABLE
from privet_experiments.papers.convergence.transfer import TRANSFER_CIFAR10, TRANSFER_SST2
from privet_experiments.papers.correlated_noise import CORRELATED_CIFAR10, CORRELATED_FASHION
from privet_experiments.papers.federated import FEDERATED_MOVIELENS, FEDERATED_SENT140, FEDERATED_SHAKESPEARE
from privet_experiments.papers.jl_projections import JL_SPEED
from privet_experiments.papers.overview import OVERVIEW_FASHION_LOGISTIC
from privet_experiments.papers.psasc import PSASC_FASHION, PSASC_MNIST
from privet_experiments.papers.sparsification.gep import GEP_CIFAR10, GEP_FASHION
from privet_experiments.papers.sparsification.random_sparsification import RS_FASHION
from privet_experiments.papers.sparsification.ranked_sparsification import RS_RANKED
from privet_experiments.papers.varying_clip import VARYING_CLIP_COVERTYPE, VARYING_CLIP_MNIST
from privet_experiments.recipe import Recipe, read

RECIPES = {
    recipe.name: recipe
    for recipe in (
        PSASC_MNIST, PSASC_FASHION, RS_FASHION, VARYING_CLIP_MNIST, VARYING_CLIP_COVERTYPE, CALIBRATION_MNIST,
        CALIBRATION_CALIFORNIA, CALIBRATION_WINE, OVERVIEW_FASHION_LOGISTIC, ALGORITHMS_FASHION, NTK_TABLE,
        NTK_OPTIMIZERS, RS_RANKED, GEP_FASHION, GEP_CIFAR10,
        JL_SPEED, TRANSFER_CIFAR10, TRANSFER_SST2, BETTER_MNIST, BETTER_MNIST_PARTS, BETTER_FASHION,
        BETTER_FASHION_PARTS, CORRELATED_FASHION, CORRELATED_CIFAR10,
        FEDERATED_SENT140, FEDERATED_SHAKESPEARE, FEDERATED_MOVIELENS,
    )
}  # fmt: skip


def find(name: str) -> Recipe:
    """Return the recipe with this name, or the recipe in the TOML file at this path.

    Raises:
        InvalidArgumentError: there is no such recipe, or the file is not a recipe.
    """
    if name in RECIPES:
        return RECIPES[name]
    if name.endswith(".toml"):
        return read(Path(name).expanduser())
    raise InvalidArgumentError("recipe", name, f"one of {', '.join(RECIPES)}, or a path that ends in .toml")
