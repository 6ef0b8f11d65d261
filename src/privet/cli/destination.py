"""The check of a file that a command is to write, before any work."""

from __future__ import annotations

__all__ = ["check_destination"]

from collections.abc import Iterable
from pathlib import Path

from privet.errors import InvalidArgumentError


def check_destination(path: Path, endings: Iterable[str], *, force: bool, source: Path | None = None) -> None:
    """Check that `--out` names a file that may be written.

    Args:
        path: the file.
        endings: allowed endings of its name; none for any.
        force: replace a file that exists.
        source: the file that the command reads, which it never replaces.

    Raises:
        InvalidArgumentError: it is a folder, has another ending, or exists and `force` is not set.
    """
    allowed = tuple(endings)
    if allowed and path.suffix.lower() not in allowed:
        raise InvalidArgumentError("--out", str(path), f"a file that ends in {', '.join(allowed)}")
    if path.is_dir():
        raise InvalidArgumentError("--out", str(path), "a file, not a folder")
    if path.exists() and source is not None and source.exists() and path.samefile(source):
        raise InvalidArgumentError("--out", str(path), "another file than the one that is read")
    if path.exists() and not force:
        raise InvalidArgumentError("--out", str(path), "a new file", "Add --force to replace it.")
