"""Compare the parts of a resumed run with those that it was started with."""

from __future__ import annotations

__all__ = ["NAME", "check", "to_files"]

import json
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Any

from privet._utils.documents import DocumentError, from_json, read_text
from privet.errors import LedgerError
from privet.training.manifest.description import Parts, numbers_of
from privet.training.manifest.fingerprint import FINGERPRINT, Fingerprint, frozen_digest

NAME = "manifest.json"
_FORMAT = 2
# Files of format 1 name the classes of optimizer, scheduler and average, and the order of the parameters.
_FORMATS = (1, _FORMAT)
_HERE = "__main__."
_ABSENT = object()
_MOST_LINES, _MOST_CHARACTERS = 8, 100


def to_files(parts: Parts) -> tuple[dict[str, str], dict[str, str]]:
    """Return the files that describe the parts of a new run.

    Returns:
        Name → text of the files that anybody may read, and of those that only their owner may read.
    """
    manifest = json.dumps({"format": _FORMAT, **parts.describe()}, indent=2) + "\n"
    return {NAME: manifest}, {FINGERPRINT: _fingerprint(parts).to_text()}


def check(directory: Path, parts: Parts, *, options: bool = True) -> None:
    """Refuse to resume a run with other parts than it was started with, before anything is restored or spent.

    What a run's files do not describe is not compared: runs of earlier versions, or without these files, resume as before, and
    their checkpoint alone decides which states there must be.

    Args:
        directory: directory of the run.
        parts: parts that it is resumed with.
        options: whether to compare options of optimizer and scheduler; a host may have restored them from later steps.

    Raises:
        LedgerError: a part differs; the message lists each difference as "before → now". Or a file is damaged.
    """
    before = _read(directory / NAME)
    lines = [] if before is None else list(_differences("", *_comparable(before, parts, options)))
    lines += _hidden_differences(directory / FINGERPRINT, parts)
    if not lines:
        return
    shown = lines[:_MOST_LINES]
    more = len(lines) - len(shown)
    raise LedgerError(
        f"the run in {directory} was started with other parts (before → now):\n  "
        + "\n  ".join(shown)
        + (f"\n  and {more} more" if more else "")
        + "\nNothing was restored or spent. Resume it with the parts that it was started with."
    )


def _read(path: Path) -> Mapping[str, Any] | None:
    if not path.exists():
        return None
    advice = "restore it, or remove it to compare with the checkpoint alone"
    try:
        held = from_json(read_text(path))
    except DocumentError as error:
        raise LedgerError(f"the manifest {path} cannot be read ({error}); {advice}") from None
    if not isinstance(held, dict) or held.get("format") not in _FORMATS or not isinstance(held.get("optimizer"), dict):
        raise LedgerError(f"{path} is not a manifest of a known format; {advice}")
    return held


def _comparable(before: Mapping[str, Any], parts: Parts, options: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the descriptions of the parts before and now, without what cannot be compared."""
    now: Any = parts.describe()
    ignored = {"format", "python"}
    if before.get("python") != now["python"]:
        ignored.add("code")  # compiled code differs between versions of Python
    if parts.stepped or not options:  # steps change options; those of the run are restored from its checkpoint
        ignored |= {"options", "settings"}
    if before["format"] == 1:
        ignored |= {"options", "settings", "modules", "wraps", "numbers", "calls", "code"}
        loss = before.get("loss")
        before = {**before, "loss": {"name": loss} if isinstance(loss, str) else now["loss"]}
    names = [key for key in before if key not in ignored]

    def comparable(part: str, description: Mapping[str, Any]) -> Any:
        # The names within a model are its author's.
        return description.get(part) if part == "model" else _without(description.get(part), ignored)

    return {name: comparable(name, before) for name in names}, {name: comparable(name, now) for name in names}


def _without(value: Any, names: Container[str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _without(item, names) for key, item in value.items() if key not in names}
    return [_without(item, names) for item in value] if isinstance(value, list) else value


def _differences(path: str, before: Any, now: Any) -> Iterator[str]:
    """Yield a line for each difference between two descriptions."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        named = [_identity(one) for one in (before, now)]
        if not _same(*named):
            yield _line(path, *named)
            return
        for key in {**before, **now}:
            yield from _differences(f"{path}.{key}" if path else str(key), before.get(key, _ABSENT), now.get(key, _ABSENT))
    elif isinstance(before, list) and isinstance(now, list):
        for number in range(max(len(before), len(now))):
            held = [one[number] if number < len(one) else _ABSENT for one in (before, now)]
            yield from _differences(f"{path}[{number}]", *held)
    elif not _same(before, now):
        yield _line(path, before, now)


def _hidden_differences(path: Path, parts: Parts) -> Iterator[str]:
    """Yield a line for each difference in what only the fingerprint tells, without saying what it is."""
    if not path.exists():
        return
    try:
        text = read_text(path)
    except DocumentError as error:
        raise LedgerError(f"{path} cannot be read ({error}); restore it, or remove it to resume without it") from None
    before = Fingerprint.from_text(text, path)
    now = _fingerprint(parts, before.key)
    if before.data != now.data:
        yield "data: the contents that the run was started with → other contents"
    if before.numbers != now.numbers:
        yield "loss: the numbers that its functions were built with → other numbers"
    if before.division is not None and before.division != now.division:
        yield "data: the division into units that the run was started with → another"
    if before.frozen is not None and before.frozen != now.frozen:
        fix = "load the same weights, or build the model after the same torch.manual_seed"
        yield f"model: the frozen parameters that the run was started with → others (checkpoints do not hold them: {fix})"


def _fingerprint(parts: Parts, key: bytes | None = None) -> Fingerprint:
    return Fingerprint.of(parts.dataset, numbers_of(parts.loss_fn), key, frozen_digest(parts.model))


def _identity(part: Mapping[str, Any]) -> object:
    """Return the class or the function that a mapping describes; if it differs, nothing else can be compared."""
    return part.get("class", part.get("name"))


def _same(before: object, now: object) -> bool:
    """Return whether two values are equal, where an option that is absent equals one that is off.

    Later versions of a library add options. A class may have been defined in a script and imported later.
    """
    off = (_ABSENT, None, False)
    if any(before is one for one in off) and any(now is one for one in off):
        return True
    if isinstance(before, str) and isinstance(now, str) and (before.startswith(_HERE) or now.startswith(_HERE)):
        return before.rpartition(".")[2] == now.rpartition(".")[2]
    return type(before) is type(now) and before == now


def _line(path: str, before: object, now: object) -> str:
    return f"{path}: {_show(before)} → {_show(now)}"


def _show(value: object) -> str:
    if value is None or value is _ABSENT:
        return "none"
    text = str(_identity(value) or "given") if isinstance(value, Mapping) else str(value)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"
