"""Arithmetic of noise, compiled where possible, and checked against the torch functions before use."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from privet._utils.native import trusted
from privet.noise import reference

_SOURCE = Path(__file__).with_suffix(".cpp")
_CHECKED = 4099  # number of pairs to check: several SIMD vectors of any width, and a remainder


@dataclass(frozen=True)
class Arithmetic:
    """An implementation of the two functions of `reference`, to the last few bits; its name, and why it was chosen."""

    box_muller: Callable[[Tensor], None]
    add_noise: Callable[[Tensor, Tensor, float, float, float, Tensor], None]
    description: str


IN_TORCH = Arithmetic(reference.box_muller, reference.add_noise, "torch")


@functools.cache
def arithmetic() -> Arithmetic:
    """Return the compiled implementation, or torch's if there is none; chosen once per process.

    >>> arithmetic().description.split(":")[0] in ("compiled", "torch")
    True
    """
    return trusted(IN_TORCH, _SOURCE, _bind, agree)


def agree(form: Arithmetic) -> bool:
    """Return whether an implementation agrees with `reference`: normals to a few ulp of the radius, releases to the last bit."""
    generator = torch.Generator().manual_seed(0)
    words = torch.randint(-(2**63), 2**63 - 1, (2 * _CHECKED,), generator=generator, device="cpu")
    # Edge cases: smallest and largest radius, and the boundaries between octants of the angle.
    ends = torch.tensor([(octant << 49) - before for octant in range(8) for before in (0, 1)], device="cpu")
    words[: len(ends)] = ends
    words[_CHECKED : _CHECKED + len(ends)] = ends.flip(0)
    expected, found = words.view(torch.float64).clone(), words.view(torch.float64).clone()
    reference.box_muller(expected)
    form.box_muller(found)
    radius = expected.view(2, -1).norm(dim=0).repeat(2)
    sums = torch.randn(2 * _CHECKED, dtype=torch.float64, generator=generator, device="cpu")
    return bool(((found - expected).abs() <= 2.0**-49 * radius).all()) and all(
        _releases_agree(form, sums.to(dtype), expected) for dtype in (torch.float32, torch.float64)
    )


def _releases_agree(form: Arithmetic, sums: Tensor, numbers: Tensor) -> bool:
    expected, found = torch.empty_like(sums), torch.empty_like(sums)
    for add_noise, released in ((reference.add_noise, expected), (form.add_noise, found)):
        add_noise(sums, numbers, 1.7 * 2.0**30, 2.0**-31, 0.3 * 2.0**-31, released)
    return torch.equal(expected, found)


def _bind(code: ctypes.CDLL) -> Arithmetic:
    """Bind the functions of a library to tensors. Calls release the GIL."""
    box_muller = code.box_muller
    box_muller.argtypes, box_muller.restype = [ctypes.c_void_p, ctypes.c_int64], None
    adders = {torch.float32: code.add_noise_float32, torch.float64: code.add_noise_float64}
    for adder in adders.values():
        adder.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_int64] + [ctypes.c_double] * 3 + [ctypes.c_void_p]
        adder.restype = None

    def transform(block: Tensor) -> None:
        box_muller(block.data_ptr(), len(block) // 2)

    def add(total: Tensor, noise: Tensor, cells: float, grid: float, unit: float, released: Tensor) -> None:
        if total.device.type != "cpu" or total.dtype not in adders or not total.is_contiguous():
            reference.add_noise(total, noise, cells, grid, unit, released)
            return
        adders[total.dtype](total.data_ptr(), noise.data_ptr(), len(total), cells, grid, unit, released.data_ptr())

    return Arithmetic(transform, add, f"compiled: {code._name}")
