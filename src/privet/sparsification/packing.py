"""Compact encoding of a sparse release: its kept values, and the public parameters of its mask."""

from __future__ import annotations

__all__ = ["decode", "encode"]

import json
import struct
from typing import Any

import numpy as np
import torch
from torch import Tensor

from privet.errors import InvalidArgumentError
from privet.noise.noised_sum import NoisedSum
from privet.sparsification.drawing import Selection

_MAGIC = b"privet sparse 1\n"
_LENGTH = struct.Struct("<Q")
_TYPES = {torch.float32: "<f4", torch.float64: "<f8"}
_NAMES = {str(dtype).removeprefix("torch."): dtype for dtype in _TYPES}


def encode(released: NoisedSum, selection: Selection) -> bytes:
    """Encode a release as its kept values and the parameters of its mask: about (1 − r)·d numbers.

    Args:
        released: release of a step with a random mask.
        selection: the step's mask, from `Random.selection`.

    Returns:
        A header of a few bytes per parameter, then the values in little-endian order.

    Raises:
        InvalidArgumentError: the release has values outside the mask (dense noise), or another mask.

    >>> masks = Selection(seed=1, block=2, zeros=90).masks({"w": (100,)})
    >>> released = NoisedSum({"w": torch.randn(100) * masks["w"]}, 0.7, 1.5, support=masks)
    >>> packed = encode(released, Selection(seed=1, block=2, zeros=90))
    >>> torch.equal(decode(packed).tensors["w"], released.tensors["w"]), len(packed) < 400
    (True, True)
    """
    tensors = released.tensors
    masks = selection.masks({name: tensor.shape for name, tensor in tensors.items() if ":" not in name})
    _check_support(released, masks, selection)
    header = {
        "selection": [selection.seed, selection.block, selection.zeros],
        "sensitivity": released.sensitivity,
        "standard_deviation": released.standard_deviation,
        "noise_scales": dict(released.noise_scales),
        "tensors": [[name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape)] for name, tensor in tensors.items()],
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    values = [_values(tensor, masks.get(name)) for name, tensor in tensors.items()]
    return b"".join([_MAGIC, _LENGTH.pack(len(text)), text, *values])


def decode(data: bytes) -> NoisedSum:
    """Decode a release from `encode`, on the CPU.

    Raises:
        InvalidArgumentError: the bytes are not a complete release.
    """
    start = len(_MAGIC) + _LENGTH.size
    try:
        if data[: len(_MAGIC)] != _MAGIC:
            raise ValueError("another format")
        (length,) = _LENGTH.unpack(data[len(_MAGIC) : start])
        header: dict[str, Any] = json.loads(data[start : start + length])
        described = [(name, _NAMES[kind], tuple(shape)) for name, kind, shape in header["tensors"]]
        selection = Selection(*header["selection"])
        masks = selection.masks({name: shape for name, _, shape in described if ":" not in name})
        position, tensors = start + length, {}
        for name, dtype, shape in described:
            mask = masks.get(name, torch.ones(shape, dtype=torch.bool))
            number = int(mask.sum())
            values = np.frombuffer(data, _TYPES[dtype], number, position)
            position += values.nbytes
            tensors[name] = torch.zeros(shape, dtype=dtype).masked_scatter_(mask, torch.tensor(values.astype(values.dtype.type)))
        if position != len(data):
            raise ValueError("bytes left over")
        support = masks if selection.zeros else None
        return NoisedSum(tensors, header["sensitivity"], header["standard_deviation"], header["noise_scales"], support)
    except (ValueError, KeyError, TypeError, struct.error) as error:
        raise InvalidArgumentError(
            "data", f"{len(data)} bytes", "a complete release from sparsification.encode", str(error)
        ) from None


def _check_support(released: NoisedSum, masks: dict[str, Tensor], selection: Selection) -> None:
    support = released.support
    if support is None and selection.zeros:
        raise InvalidArgumentError(
            "released", "with noise on every coordinate", "a release of a step with a random mask",
            "Dense noise cannot be compressed: send the full release.",
        )  # fmt: skip
    if support is not None and (
        support.keys() != masks.keys() or not all(torch.equal(support[name].cpu(), mask) for name, mask in masks.items())
    ):
        raise InvalidArgumentError("selection", selection, "the selection of the release's mask", "It differs from the support.")


def _values(tensor: Tensor, mask: Tensor | None) -> bytes:
    if tensor.dtype not in _TYPES:
        raise InvalidArgumentError("released", str(tensor.dtype), "made of float32 or float64 tensors")
    values = tensor.detach().cpu()
    kept = values.flatten() if mask is None else values[mask]
    return kept.numpy().astype(_TYPES[tensor.dtype]).tobytes()
