"""Fingerprint of a run's data and frozen parameters under a secret key: a resumed run can tell others without keeping any.

The key and the digests are in one file that only its owner can read. No published file holds either, so published files tell
nothing about the data. Who can read this file can test a guess of all compared entries at once; keep it like the data.
"""

from __future__ import annotations

__all__ = ["FINGERPRINT", "Fingerprint", "frozen_digest", "frozen_parameters", "tensor_rows"]

import hashlib
import hmac
import json
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from privet._utils.documents import DocumentError, from_json
from privet.errors import LedgerError
from privet.reading.entries import Positions, iter_pieces

FINGERPRINT = "fingerprint.json"
_FORMAT = 1
# Bytes of the data, and of frozen parameters, that are compared, spread evenly: 10 ms, and all of a small data set.
_BYTES = 2**24
_LEAST = 2**12  # bytes of one frozen parameter


@dataclass(frozen=True)
class Fingerprint:
    """Keyed digests of what a run must not begin to publish: the contents of its data, and numbers within its loss function.

    Args:
        key: 32 random bytes, for this run alone.
        data: HMAC-SHA256 of the compared entries; None if the data set does not consist of tensors.
        numbers: HMAC-SHA256 of the numbers that the loss function was built with.
        frozen: HMAC-SHA256 of the digest of the model's frozen parameters; None if there are none, or in a file of before they
            were described.
        division: HMAC-SHA256 of how examples are divided into units; None if an example is the unit, or likewise.

    Guarantee:
        Without the key, the digests are indistinguishable from random bytes, so no guess of the data can be tested with them.
    """

    key: bytes
    data: str | None
    numbers: str
    frozen: str | None = None
    division: str | None = None

    @classmethod
    def of(cls, dataset: Any, numbers: Sequence[float], key: bytes | None = None, frozen: str | None = None) -> Fingerprint:
        """Return the fingerprint of a data set, without calling any code of its items.

        The contents are compared where a data set consists of plain tensors: a `TensorDataset`, also through torch's wrappers and
        Privet's users and groups. Of any other, only type and length are known (see the manifest).

        Args:
            dataset: map-style data set.
            numbers: numbers that the loss function was built with.
            key: key of an earlier fingerprint; a new random one if None.
            frozen: digest of the model's frozen parameters; None if there are none.
        """
        key = secrets.token_bytes(32) if key is None else key
        held = _digest_text(key, json.dumps([float(number) for number in numbers]))
        division = getattr(dataset, "division", None) if _is_units(dataset) else None
        others = (None if text is None else _digest_text(key, text) for text in (frozen, division))
        return cls(key, _digest_data(key, dataset), held, *others)

    @classmethod
    def from_text(cls, text: str, place: object) -> Fingerprint:
        """Return the fingerprint in the text of a file.

        Args:
            text: content of the file.
            place: its path, for errors.

        Raises:
            LedgerError: it is no fingerprint.
        """
        try:
            match from_json(text):
                case {"format": 1, "key": str(key), "data": str() | None as data, "numbers": str(numbers), **others}:
                    frozen, division = others.get("frozen"), others.get("division")
                    if isinstance(frozen, str | None) and isinstance(division, str | None):
                        return cls(bytes.fromhex(key), data, numbers, frozen, division)
        except (DocumentError, ValueError):
            pass
        raise LedgerError(f"{place} is damaged; restore it, or remove it to resume without a comparison of the data")

    def to_text(self) -> str:
        """Return the text of the file."""
        held = {"data": self.data, "numbers": self.numbers, "frozen": self.frozen, "division": self.division}
        return json.dumps({"format": _FORMAT, "key": self.key.hex(), **held}) + "\n"


def tensor_rows(dataset: Any) -> Iterator[tuple[tuple[Tensor, ...], Positions]]:
    """Yield the tensors that a data set consists of, each with the rows that its entries use; nothing for other data sets.

    Of units such as users, all examples are yielded: which of them an entry uses may be drawn anew when the units are made.
    """
    if _is_units(dataset):
        yield from tensor_rows(dataset.rows_of_entries()[0])
        return
    if any(map(_holds_units, _wrapped(dataset))):
        return
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
        if (
            type(parameter) in (Tensor, nn.Parameter)
            and parameter.layout is torch.strided
            and shape != "nested"
            and parameter.numel()
        ):
            flat, most = parameter.detach().reshape(-1), max(2, share // parameter.element_size())
            if len(flat) > most:
                positions = torch.linspace(0, len(flat) - 1, most, dtype=torch.float64, device=flat.device)
                flat = flat[positions.long()]
            found.update(memoryview(flat.contiguous().cpu().view(torch.uint8).numpy()))  # type: ignore[arg-type]
    return found.hexdigest()


def _wrapped(dataset: Any) -> Sequence[Any]:
    """Return the data sets that a wrapper of torch holds."""
    if isinstance(dataset, Subset):
        return [dataset.dataset]
    return list(dataset.datasets) if isinstance(dataset, ConcatDataset) else []


def _is_units(dataset: Any) -> bool:
    return callable(getattr(dataset, "rows_of_entries", None))


def _holds_units(dataset: Any) -> bool:
    return _is_units(dataset) or any(map(_holds_units, _wrapped(dataset)))


def _digest_data(key: bytes, dataset: Any) -> str | None:
    found, compared = hmac.new(key, digestmod="sha256"), False
    parts = list(tensor_rows(dataset))
    for tensors, index in parts:
        rows = torch.from_numpy(_spread(index, _BYTES // len(parts) // max(1, _row_bytes(tensors))))
        for tensor in tensors:
            found.update(f"{tensor.dtype} {tuple(tensor.shape[1:])} {len(index)};".encode())
            chosen = tensor.detach()[rows.to(tensor.device)].contiguous().cpu()
            if chosen.numel():
                found.update(memoryview(chosen.view(torch.uint8).numpy()).cast("B"))  # type: ignore[arg-type]
        compared = True
    return found.hexdigest() if compared else None


def _digest_text(key: bytes, text: str) -> str:
    return hmac.new(key, text.encode(), "sha256").hexdigest()


def _spread(index: Positions, most: int) -> Positions:
    """Return all rows, or about as many as are allowed, evenly spread, with the first and the last."""
    if len(index) <= most:
        return index
    return index[np.linspace(0, len(index) - 1, max(2, most)).astype(np.int64)]


def _row_bytes(tensors: Sequence[Tensor]) -> int:
    return sum(tensor[:1].numel() * tensor.element_size() for tensor in tensors)


def _is_plain(tensor: Tensor) -> bool:
    return type(tensor) is Tensor and tensor.layout is torch.strided and tensor.dim() > 0 and not tensor.is_quantized
