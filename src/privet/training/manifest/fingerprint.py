"""Fingerprint of a run's data, functions and frozen parameters under a secret key: it tells others without keeping any.

The key and the digests are in one file that only its owner can read. No published file holds either, so published files tell
nothing about the data. Who can read this file can test a guess of all compared entries at once; keep it like the data.
"""

from __future__ import annotations

__all__ = ["FINGERPRINT", "compare", "digest_data", "fingerprint", "frozen_digest", "frozen_parameters", "tensor_rows"]

import hashlib
import hmac
import json
import secrets
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from privet._utils.documents import DocumentError, from_json, read_text
from privet.errors import LedgerError
from privet.reading.entries import Positions, iter_pieces
from privet.training.manifest.parts import Parts

FINGERPRINT = "fingerprint.json"
# Bytes of the data, and of frozen parameters, that are compared, spread evenly: 10 ms, and all of a small data set.
_BYTES = 2**24
_LEAST = 2**12  # bytes of one frozen parameter
# A loss built from another function holds it, and so on; deeper nesting is left out.
_DEPTH = 4
_DIFFERENCES = {
    "data": "data: the contents that the run was started with → other contents",
    "functions": "loss, collate or average: the functions and numbers that they were built with → others",
    "division": "data: the division into units that the run was started with → another",
    "frozen": "model: the frozen parameters that the run was started with → others (checkpoints do not hold them: load the same "
    "weights, or build the model after the same torch.manual_seed)",
}


def fingerprint(parts: Parts, key: bytes | None = None) -> str:
    """Return the text of the file: keyed digests of what a run must not begin to publish.

    The contents of the data are compared where a data set consists of plain tensors: a `TensorDataset`, also through torch's
    wrappers and Privet's users and groups. Of any other, only type and length are known (see the manifest).

    Args:
        parts: parts of the run; no code of the data set's items is called.
        key: 32 random bytes of an earlier fingerprint; a new key if None.

    Guarantee:
        Without the key, the digests are indistinguishable from random bytes, so no guess of the data can be tested with them.
    """
    key = secrets.token_bytes(32) if key is None else key
    average = [getattr(parts.average, name, None) for name in ("avg_fn", "multi_avg_fn")]
    texts = {
        "functions": str([_canonical(function) for function in (parts.loss_fn, parts.collate, *average)]),
        "frozen": frozen_digest(parts.model),
        "division": getattr(parts.dataset, "division", None) if _is_units(parts.dataset) else None,
    }
    digests = {name: None if text is None else hmac.new(key, text.encode(), "sha256").hexdigest() for name, text in texts.items()}
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    held = {"format": 2, "python": python, "key": key.hex(), "data": digest_data(key, parts.dataset), **digests}
    return json.dumps(held) + "\n"


def compare(path: Path, parts: Parts) -> list[str]:
    """Return a line for each difference between the fingerprint in a file and the parts now, without saying what it is.

    Raises:
        LedgerError: the file holds no fingerprint.
    """
    try:
        before = from_json(read_text(path))
        now = from_json(fingerprint(parts, bytes.fromhex(before["key"])))
        if not isinstance(before["data"], str | None):
            raise TypeError
    except (DocumentError, ValueError, TypeError, KeyError):
        raise LedgerError(f"{path} is damaged; restore it, or remove it to resume without a comparison of the data") from None
    known = {name: digest for name, digest in before.items() if digest is not None}  # earlier versions kept less
    if before.get("python") != now["python"]:  # compiled code differs between versions of Python
        known.pop("functions", None)
    return [line for name, line in _DIFFERENCES.items() if name in known and known[name] != now[name]]


def tensor_rows(dataset: Any) -> Iterator[tuple[tuple[Tensor, ...], Positions]]:
    """Yield the tensors that a data set consists of, each with the rows that its entries use; nothing for other data sets.

    Of units such as users, all examples are yielded: which of them an entry uses may be drawn anew when the units are made.
    """
    if _is_units(dataset):
        yield from tensor_rows(dataset.rows_of_entries()[0])
    elif not _wraps_units(dataset):
        for piece in iter_pieces(dataset):
            base = piece.base
            if type(base) is TensorDataset and base.tensors and all(map(_is_plain, base.tensors)):
                yield base.tensors, piece.index


def frozen_parameters(module: nn.Module) -> dict[str, Tensor]:
    """Return the frozen parameters by all of their names."""
    named = module.named_parameters(remove_duplicate=False)
    return {name: parameter for name, parameter in named if not parameter.requires_grad}


def frozen_digest(module: nn.Module) -> str | None:
    """Return the SHA-256 of a module's frozen parameters; None if there are none.

    Of a large base, numbers spread evenly over each parameter are compared, so another base or a change by training shows, but
    perhaps not a change of single numbers. Quantised, sparse and nested parameters are compared by name, type and shape.
    """
    named = frozen_parameters(module)
    if not named:
        return None
    found, share = hashlib.sha256(), max(_LEAST, _BYTES // len(named))
    for name, parameter in named.items():
        shape = "nested" if parameter.is_nested else tuple(parameter.shape)  # torch cannot tell that of a nested one
        found.update(f"{name} {parameter.dtype} {shape};".encode())
        if type(parameter) is nn.Parameter and shape != "nested" and parameter.layout is torch.strided:
            flat = parameter.detach().reshape(-1)
            chosen = _spread(len(flat), share // parameter.element_size())
            found.update(_bytes_of(flat if chosen is None else flat[torch.from_numpy(chosen).to(flat.device)]))
    return found.hexdigest()


def digest_data(key: bytes, dataset: Any) -> str | None:
    """Return the HMAC-SHA256 of the contents of a data set; None if it does not consist of tensors."""
    found, parts = hmac.new(key, digestmod="sha256"), list(tensor_rows(dataset))
    for tensors, index in parts:
        chosen = _spread(len(index), _BYTES // len(parts) // max(1, sum(one[:1].numel() * one.element_size() for one in tensors)))
        rows = torch.from_numpy(index if chosen is None else index[chosen])
        for tensor in tensors:
            found.update(f"{tensor.dtype} {tuple(tensor.shape[1:])} {len(index)};".encode())
            found.update(_bytes_of(tensor.detach()[rows.to(tensor.device)]))
    return found.hexdigest() if parts else None


def _spread(count: int, most: int) -> Positions | None:
    """Return about as many positions as are allowed, evenly spread, with the first and the last; None for all of them."""
    return None if count <= most else np.linspace(0, count - 1, max(2, most)).astype(np.int64)


def _bytes_of(tensor: Tensor) -> bytes | memoryview:
    if not tensor.numel():
        return b""
    return memoryview(tensor.contiguous().cpu().view(torch.uint8).numpy()).cast("B")  # type: ignore[arg-type]


def _canonical(value: object, depth: int = _DEPTH) -> str:
    """Return a text for a function, with the numbers and functions that it was built with, the same in every process.

    The code of a lambda is part of it; a function with a name may be improved between two sessions.
    """
    if isinstance(value, partial):
        return f"partial({[_canonical(one, depth) for one in (value.func, *value.args, *value.keywords.items())]})"
    value = getattr(value, "__func__", value)
    if isinstance(value, FunctionType):
        code = _canonical(value.__code__) if value.__name__ == "<lambda>" else value.__qualname__
        held = [] if depth == 0 else [_cell_contents(cell) for cell in value.__closure__ or ()]
        return f"{code}({[_canonical(one, depth - 1) for one in held if one is not value]})"
    if isinstance(value, CodeType):
        return f"code({value.co_code.hex()}, {value.co_names}, {_canonical(value.co_consts)})"
    if isinstance(value, tuple):
        return f"({', '.join(map(_canonical, value))})"
    if isinstance(value, frozenset):  # its order changes from process to process
        return f"{{{', '.join(sorted(map(_canonical, value)))}}}"
    return repr(value) if isinstance(value, bool | int | float | str | bytes | None) else type(value).__qualname__


def _cell_contents(cell: Any) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _is_units(dataset: Any) -> bool:
    return callable(getattr(dataset, "rows_of_entries", None))


def _wraps_units(dataset: Any) -> bool:
    """Return whether a data set is a wrapper of torch around units."""
    inside = [dataset.dataset] if isinstance(dataset, Subset) else []
    inside += dataset.datasets if isinstance(dataset, ConcatDataset) else []
    return any(_is_units(one) or _wraps_units(one) for one in inside)


def _is_plain(tensor: Tensor) -> bool:
    return type(tensor) is Tensor and tensor.layout is torch.strided and tensor.dim() > 0 and not tensor.is_quantized
