"""Files of archives are read by name; a source distribution must have the pinned hash."""

import io
import tarfile

import pytest

from privet_experiments.data_sets import archives
from privet_experiments.data_sets.archives import sdist_member, tar_member


def test_a_member_is_read_from_a_source_distribution_with_a_required_hash(monkeypatch):
    written, commands = [], []

    def pip(*command, folder):
        commands.append(command)
        written.append((folder / "requirements.txt").read_text(encoding="utf-8"))
        with tarfile.open(folder / "thing-1.tar.gz", "w:gz") as archive:
            entry = tarfile.TarInfo("thing-1/data.csv")
            entry.size = 7
            archive.addfile(entry, io.BytesIO(b"content"))

    monkeypatch.setattr(archives, "run_tool", pip)
    assert sdist_member("thing==1", "ab12", "thing-1/data.csv") == b"content"
    assert written == ["thing==1 --hash=sha256:ab12\n"]
    assert {"--require-hashes", "--no-binary"} <= set(commands[0])


def test_a_tar_archive_without_the_member_is_a_key_error():
    empty = io.BytesIO()
    tarfile.open(fileobj=empty, mode="w:gz").close()
    with pytest.raises(KeyError):
        tar_member(empty.getvalue(), "thing")
