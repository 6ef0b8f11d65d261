"""The recipes that Privet knows by name."""

from __future__ import annotations

from pathlib import Path

from privet.errors import InvalidArgumentError
from privet.recipes.algorithms import ALGORITHMS_FASHION
from privet.recipes.better import BETTER_FASHION, BETTER_FASHION_PARTS, BETTER_MNIST, BETTER_MNIST_PARTS
from privet.recipes.calibration import CALIBRATION_CALIFORNIA, CALIBRATION_MNIST, CALIBRATION_WINE
from privet.recipes.ntk_table import NTK_TABLE
from privet.recipes.overview import OVERVIEW_FASHION_LOGISTIC
from privet.recipes.projected import JL_SPEED
from privet.recipes.psasc import PSASC_FASHION, PSASC_MNIST
from privet.recipes.random_sparsification import RS_FASHION
from privet.recipes.recipe import Recipe, read
from privet.recipes.transfer import TRANSFER_CIFAR10, TRANSFER_SST2
from privet.recipes.varying_clip import VARYING_CLIP_COVERTYPE, VARYING_CLIP_MNIST

RECIPES = {
    recipe.name: recipe
    for recipe in (
        PSASC_MNIST, PSASC_FASHION, RS_FASHION, VARYING_CLIP_MNIST, VARYING_CLIP_COVERTYPE, CALIBRATION_MNIST,
        CALIBRATION_CALIFORNIA, CALIBRATION_WINE, OVERVIEW_FASHION_LOGISTIC, ALGORITHMS_FASHION, NTK_TABLE,
        JL_SPEED, TRANSFER_CIFAR10, TRANSFER_SST2, BETTER_MNIST, BETTER_MNIST_PARTS, BETTER_FASHION,
        BETTER_FASHION_PARTS,
    )
}  # fmt: skip


def find(name: str) -> Recipe:
    """Return the recipe with this name, or that of the TOML file at this path.

    Raises:
        InvalidArgumentError: there is no such recipe, or the file is none.
    """
    if name in RECIPES:
        return RECIPES[name]
    if name.endswith(".toml"):
        return read(Path(name).expanduser())
    raise InvalidArgumentError("recipe", name, f"one of {', '.join(RECIPES)}, or a path that ends in .toml")
