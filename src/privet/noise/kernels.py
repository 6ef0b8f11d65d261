"""The arithmetic of noise, compiled where that is possible and checked against the torch functions before it is trusted."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from privet.native import UnavailableError, library
from privet.noise import normals

_SOURCE = Path(__file__).with_suffix(".cpp")
_CHECKED = 4099  # pairs: several vectors of any width, and a remainder


@dataclass(frozen=True)
class Arithmetic:
    """The two functions of `normals`, in one of two forms that agree to the last few bits.

    Args:
        box_muller: random words → standard normals, in place.
        add_noise: sum, normals, cells, grid, place for the result.
        description: which form it is, and why.
    """

    box_muller: Callable[[Tensor], None]
    add_noise: Callable[[Tensor, Tensor, float, float, Tensor], None]
    description: str


@functools.cache
def arithmetic() -> Arithmetic:
    """Return the compiled form, or the one in torch where there is none; decided once in a process.

    >>> arithmetic().description.split(":")[0] in ("compiled", "torch")
    True
    """
    try:
        code = library(_SOURCE)
        compiled = _bound(code)
        if not agree(compiled):
            raise UnavailableError("the compiled functions do not agree with those in torch")
    except UnavailableError as error:
        return Arithmetic(normals.box_muller, normals.add_noise, f"torch: {error}")
    return compiled


def agree(form: Arithmetic) -> bool:
    """Return whether a form computes what `normals` does: normals up to a few ulp of the radius, releases to the last bit."""
    generator = torch.Generator().manual_seed(0)
    words = torch.randint(-(2**63), 2**63 - 1, (2 * _CHECKED,), generator=generator)
    # The ends of every range: the smallest and largest radius, and all four places where the angle changes quadrant.
    ends = torch.tensor([0, -1, 1, 1 << 49, (1 << 49) - 1, 1 << 50, (1 << 50) - 1, 1 << 51, (1 << 51) - 1, 3 << 50, (3 << 50) - 1])
    words[: len(ends)] = ends
    words[_CHECKED : _CHECKED + len(ends)] = ends.flip(0)
    expected, found = words.view(torch.float64).clone(), words.view(torch.float64).clone()
    normals.box_muller(expected)
    form.box_muller(found)
    radius = expected.view(2, -1).norm(dim=0).repeat(2)
    if not bool(((found - expected).abs() <= 2.0**-49 * radius).all()):
        return False
    for dtype in (torch.float32, torch.float64):
        total = torch.randn(2 * _CHECKED, dtype=dtype, generator=generator)
        want, have = torch.empty_like(total), torch.empty_like(total)
        normals.add_noise(total, expected, 1.7 * 2.0**30, 2.0**-31, want)
        form.add_noise(total, expected, 1.7 * 2.0**30, 2.0**-31, have)
        if not torch.equal(want, have):
            return False
    return True


def _bound(code: ctypes.CDLL) -> Arithmetic:
    """Return the functions of a library as functions of tensors. Calls let other threads run."""
    box_muller = code.box_muller
    box_muller.argtypes, box_muller.restype = [ctypes.c_void_p, ctypes.c_int64], None
    adders = {torch.float32: code.add_noise_float32, torch.float64: code.add_noise_float64}
    for adder in adders.values():
        adder.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_int64] + [ctypes.c_double] * 2 + [ctypes.c_void_p]
        adder.restype = None

    def turn(block: Tensor) -> None:
        box_muller(block.data_ptr(), len(block) // 2)

    def add(total: Tensor, noise: Tensor, cells: float, grid: float, released: Tensor) -> None:
        if total.device.type != "cpu" or total.dtype not in adders:
            normals.add_noise(total, noise, cells, grid, released)
            return
        adders[total.dtype](total.data_ptr(), noise.data_ptr(), len(total), cells, grid, released.data_ptr())

    return Arithmetic(turn, add, f"compiled: {code._name}")
