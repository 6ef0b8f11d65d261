"""The manifest of a run: the parts that it was started with, compared before a resumed run changes or spends anything.

`manifest.json` describes them in words that anybody may read: nothing in it depends on the contents of the data.
`fingerprint.json`, which only its owner can read, tells other data, functions and frozen parameters by digests under a secret
key that is in it too. Who can read it can test a guess of all compared entries at once; keep it like the data.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import secrets
import sys
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset
from torch.utils.weak import WeakTensorKeyDictionary

from privet._utils.documents import DocumentError, from_json, read_text
from privet.collate import Collate
from privet.errors import LedgerError
from privet.gradients.core.losses import LossFunction
from privet.gradients.parameters import own_class
from privet.reading.entries import Positions, iter_pieces
from privet.training.checks import is_blank, list_leaves, wrapped

MANIFEST, FINGERPRINT = "manifest.json", "fingerprint.json"
_FORMAT = 3
# How an optimizer computes its step, not what it computes: these may change between sessions.
_EXECUTION = ("foreach", "fused", "capturable", "differentiable")
_NOT_SETTINGS = ("optimizer", "last_epoch", "step", "verbose")
_MOST_LINES, _MOST_CHARACTERS = 8, 100
# Bytes of the data, and of frozen parameters, that are compared, spread evenly: 10 ms, and all of a small data set.
_BYTES = 2**24
_LEAST = 2**12  # bytes of one frozen parameter
_DIFFERENCES = {
    "data": "data: the contents that the run was started with → other contents",
    "arguments": "loss, collate or average: the functions and numbers that they were built with → others",
    "division": "data: the division into units that the run was started with → another",
    "frozen": "model: the frozen parameters that the run was started with → others (checkpoints do not hold them: load the same "
    "weights, or build the model after the same torch.manual_seed)",
}


@dataclass(frozen=True, eq=False)
class Parts:
    """The parts of a training that a resumed run must have in common with its start."""

    model: nn.Module
    loss_fn: LossFunction
    optimizer: torch.optim.Optimizer
    dataset: Dataset[Any]
    scheduler: LRScheduler | None = None
    average: AveragedModel | None = None
    collate: Collate | None = None
    public: Dataset[Any] | None = None

    @property
    def stepped(self) -> bool:
        """Whether optimizer or scheduler have taken steps, which change their options; a checkpoint restores those."""
        states = [leaf for each in wrapped(self.optimizer) for _, leaf in list_leaves(list(each.state.values()))]
        return not all(map(is_blank, states)) or getattr(self.scheduler, "last_epoch", 0) > 0


def to_files(parts: Parts) -> tuple[dict[str, str], dict[str, str]]:
    """Return name → text of the files that describe a new run: those for anybody, and those for their owner alone."""
    held = {"format": _FORMAT, "parts": describe(parts)}
    return {MANIFEST: json.dumps(held, indent=2) + "\n"}, {FINGERPRINT: fingerprint(parts)}


def check(directory: Path, parts: Parts, *, options: bool = True) -> None:
    """Refuse to resume a run with other parts than it was started with, before anything is restored or spent.

    What the files do not describe is not compared: runs of earlier versions, or without these files, resume with what fits their
    checkpoint. Without `options`, those of optimizer and scheduler are not compared: a host may have restored later ones.

    Raises:
        LedgerError: a part differs; the message lists each difference as "before → now". Or a file is damaged.
    """
    described = read(directory)
    before, now = ({}, {}) if described is None else (described, describe(parts))
    ignored = (".options.", ".settings.") if parts.stepped or not options else ()  # the checkpoint restores those
    lines, differing = [], [name for name in {**before, **now} if before.get(name) != now.get(name)]
    for name in differing:
        # Of another class, nothing else can be compared.
        owners = [f"{other}{end}" for other in differing for end in ".["]
        if not any(map(name.startswith, owners)) and not any(part in name for part in ignored):
            lines.append(f"{name}: {_show(before.get(name))} → {_show(now.get(name))}")
    if (path := directory / FINGERPRINT).exists():
        lines += _compare(path, parts)
    if not lines:
        return
    more = len(lines) - _MOST_LINES
    raise LedgerError(
        f"the run in {directory} was started with other parts (before → now):\n  "
        + "\n  ".join(lines[:_MOST_LINES])
        + (f"\n  and {more} more" if more > 0 else "")
        + "\nNothing was restored or spent. Resume it with the parts that it was started with."
    )


def read(directory: Path) -> Mapping[str, Any] | None:
    """Return the description of a run's parts, as `describe` returned it; None if there is none, or one of an earlier version."""
    path, advice = directory / MANIFEST, "restore it, or remove it to compare with the checkpoint alone"
    if not path.exists():
        return None
    try:
        held = from_json(read_text(path))
    except DocumentError as error:
        raise LedgerError(f"the manifest {path} cannot be read ({error}); {advice}") from None
    match held:
        case {"format": 3, "parts": dict() as parts}:
            return parts
        case {"format": 1 | 2, "optimizer": dict()}:
            return None
    raise LedgerError(f"{path} is not a manifest of a known format; {advice}")


def _show(value: object) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"


def describe(parts: Parts) -> dict[str, Any]:
    """Return path → plain value for names, kinds, shapes and settings of all parts, without what is None or off.

    Guarantee:
        Nothing here depends on the contents of the data: of a data set, only its type, its public length, and the public shapes
        and types of its items are described. Of functions, only the names are described.
    """
    # Later versions of a library add options that are off.
    return {path: value for path, value in _items(parts) if value is not None and value is not False}


def _items(parts: Parts) -> Iterator[tuple[str, Any]]:
    names = {id(parameter): name for name, parameter in parts.model.named_parameters()}
    for name, module in parts.model.named_modules():
        yield f"model.modules.{name or '(model)'}", name_of(own_class(module))
    for name, parameter in parts.model.named_parameters():
        yield f"model.parameters.{name}", f"{_kind(parameter)}, {'trained' if parameter.requires_grad else 'frozen'}"
    for name, buffer in parts.model.named_buffers():
        yield f"model.buffers.{name}", _kind(buffer)
    yield "loss", _name_function(parts.loss_fn)
    yield "collate", None if parts.collate is None else _name_function(parts.collate)
    first, *inner = wrapped(parts.optimizer)
    yield "optimizer", name_of(first)
    for number, one in enumerate(inner):
        yield f"optimizer.wraps[{number}]", name_of(one)
    for number, group in enumerate(first.param_groups):
        for key, value in group.items():
            if key == "params":
                yield from _settings(f"optimizer.groups[{number}].parameters", [names.get(id(member), "") for member in value])
            elif key not in ("param_names", *_EXECUTION):
                yield from _settings(f"optimizer.groups[{number}].options.{key}", value)
    yield from _settings("scheduler", parts.scheduler)
    yield "average", None if parts.average is None else name_of(parts.average)
    for name, dataset in (("data", parts.dataset), ("public", parts.public)):
        if dataset is not None:
            yield name, name_of(dataset)
            yield f"{name}.entries", len(dataset)  # type: ignore[arg-type]
            kinds = (" and ".join(_kind(one, one.shape[1:]) for one in tensors) for tensors, _ in _tensor_rows(dataset))
            yield from _settings(f"{name}.items", list(dict.fromkeys(kinds)))


def _name_function(function: object) -> str:
    """Return the name of a function; that of a lambda says where it was written, which may change."""
    name = name_of(function)
    return "<lambda>" if name.endswith("<lambda>") else name


def _settings(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield a setting as plain JSON values: in words if it is no number, text or list of these."""
    if isinstance(value, LRScheduler):
        yield path, name_of(value)
        found = {key: one for key, one in vars(value).items() if key[0] != "_" and key not in _NOT_SETTINGS}
        if combined := getattr(value, "_schedulers", None):
            found |= {"milestones": getattr(value, "_milestones", []), "schedulers": combined}
        for key, one in found.items():
            yield from _settings(f"{path}.settings.{key}", one)
    elif isinstance(value, list | tuple):
        for number, one in enumerate(value):
            yield from _settings(f"{path}[{number}]", one)
    elif isinstance(value, Tensor):
        yield path, f"tensor {value.item() if value.numel() == 1 else _kind(value)}"
    elif isinstance(value, np.generic) and value.shape == ():
        yield path, value.item()
    elif isinstance(value, float) and not math.isfinite(value):
        yield path, str(value)  # JSON has no such numbers
    else:
        yield path, value if value is None or isinstance(value, bool | int | float | str) else name_of(value)


def _kind(tensor: Tensor, shape: Sequence[int] | None = None) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape if shape is None else shape)}"


def name_of(thing: object) -> str:
    """Return the qualified name of a function, or of an object's class.

    >>> name_of(partial(len))
    'builtins.len'
    """
    while isinstance(thing, partial):
        thing = thing.func
    thing = getattr(thing, "__func__", thing)
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{getattr(named, '__module__', None)}.{getattr(named, '__qualname__', '')}"


def fingerprint(parts: Parts, key: bytes | None = None) -> str:
    """Return the text of `fingerprint.json`, under a new key of 32 random bytes if none is given.

    Contents are compared where a data set consists of plain tensors: a `TensorDataset`, also through torch's wrappers and
    Privet's users and groups. No code of the data set's items is called.

    Guarantee:
        Without the key, the digests are indistinguishable from random bytes, so no guess of the data can be tested with them.
    """
    key = secrets.token_bytes(32) if key is None else key
    average = [getattr(parts.average, name, None) for name in ("avg_fn", "multi_avg_fn")]
    texts = {
        "arguments": str([_arguments(function) for function in (parts.loss_fn, parts.collate, *average)]),
        "frozen": frozen_digest(parts.model),
        "division": getattr(parts.dataset, "division", None) if hasattr(parts.dataset, "rows_of_entries") else None,
    }
    digests = {name: None if text is None else hmac.new(key, text.encode(), "sha256").hexdigest() for name, text in texts.items()}
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    held = {"format": 2, "python": python, "key": key.hex(), "data": digest_data(key, parts.dataset), **digests}
    return json.dumps(held) + "\n"


def _arguments(value: object, depth: int = 4) -> object:
    """Return what a function was built with, by plain values and names; a lambda's code, too, as its name tells little."""
    if isinstance(value, partial):
        return [_arguments(one, depth) for one in (value.func, *value.args, *value.keywords.items())]
    if isinstance(value, tuple):
        return [_arguments(one, depth) for one in value]
    if isinstance(value, FunctionType):
        code, name = value.__code__, _name_function(value)
        known = (code.co_code.hex(), code.co_names, code.co_consts) if name == "<lambda>" else ()
        held = [cell.cell_contents for cell in value.__closure__ or ()] if depth else []
        return [name, *(_arguments(one, depth - 1) for one in (*known, *held) if one is not value)]
    return value if value is None or isinstance(value, bool | int | float | str) else _name_function(value)


def _compare(path: Path, parts: Parts) -> list[str]:
    """Return a line for each difference between the fingerprint in a file and the parts now, without saying what it is."""
    try:
        before = from_json(read_text(path))
        now = from_json(fingerprint(parts, bytes.fromhex(before["key"])))
        if not isinstance(before["data"], str | None):
            raise TypeError
    except (DocumentError, ValueError, TypeError, KeyError):
        raise LedgerError(f"{path} is damaged; restore it, or remove it to resume without a comparison of the data") from None
    known = {name: digest for name, digest in before.items() if digest is not None}  # earlier versions kept less
    if before.get("python") != now["python"]:  # compiled code differs between versions of Python
        known.pop("arguments", None)
    return [line for name, line in _DIFFERENCES.items() if name in known and known[name] != now[name]]


def _tensor_rows(dataset: Any) -> Iterator[tuple[tuple[Tensor, ...], Positions]]:
    """Yield the tensors that a data set consists of, each with the rows that its entries use; nothing for other data sets.

    Of units such as users, all examples are yielded: which of them an entry uses may be drawn anew when the units are made.
    """
    if hasattr(dataset, "rows_of_entries"):
        dataset = dataset.rows_of_entries()[0]
    for piece in () if _holds_units(dataset) else iter_pieces(dataset):
        tensors = piece.base.tensors if type(piece.base) is TensorDataset else ()
        if tensors and all(type(one) is Tensor and one.layout is torch.strided and not one.is_quantized for one in tensors):
            yield tensors, piece.index


def _holds_units(dataset: Any) -> bool:
    inside = [dataset.dataset] if isinstance(dataset, Subset) else dataset.datasets if isinstance(dataset, ConcatDataset) else ()
    return hasattr(dataset, "rows_of_entries") or any(map(_holds_units, inside))


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
        if shape != "nested" and parameter.layout is torch.strided and (type(parameter) is nn.Parameter or _is_shard(parameter)):
            found.update(_bytes_of(_choose_numbers(parameter, share // parameter.element_size())))
    return found.hexdigest()


def _choose_numbers(parameter: Tensor, most: int) -> Tensor:
    """Return numbers of a parameter; of a shard (FSDP2), all ranks ask for them the first time, and after a change."""
    version, found = _CHOSEN.get(parameter, (-1, None))
    if found is None or version != parameter._version:
        whole: Any = parameter
        flat = (whole.full_tensor() if _is_shard(parameter) else whole).detach().reshape(-1)
        chosen = _spread(len(flat), most)
        found = flat if chosen is None else flat[torch.from_numpy(chosen).to(flat.device)]
        if _is_shard(parameter):
            _CHOSEN[parameter] = parameter._version, found
    return found


_CHOSEN: MutableMapping[Tensor, tuple[int, Tensor]] = WeakTensorKeyDictionary()


def _is_shard(parameter: Tensor) -> bool:
    return hasattr(parameter, "placements")


def digest_data(key: bytes, dataset: Any) -> str | None:
    """Return the HMAC-SHA256 of the contents of a data set; None if it does not consist of tensors."""
    found, parts = hmac.new(key, digestmod="sha256"), list(_tensor_rows(dataset))
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
