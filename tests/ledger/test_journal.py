import errno
import fcntl
import gc
import json
import os
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.errors import LedgerError
from privet.ledger import Journal, read
from privet.ledger.journal import Chain

WHAT = "the diary"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "diary"


def written(path, number=3):
    with Journal(path, WHAT) as journal:
        for i in range(number):
            journal.append({"record": "entry", "number": i})
    return path.read_bytes().splitlines(keepends=True)


def numbers(path):
    return [record["number"] for record in read(path, WHAT).records]


def test_appended_records_are_read_back_and_continued(path):
    written(path, 2)
    written(path, 1)
    assert numbers(path) == [0, 1, 0]


def test_a_journal_that_is_dropped_is_released(path):
    """So a notebook in which a run was forgotten can open it again."""
    journal = Journal(path, WHAT)
    journal.append({"record": "entry", "number": 0})
    with pytest.raises(LedgerError, match="in use"):
        Journal(path, WHAT)
    del journal
    gc.collect()
    written(path, 1)
    assert numbers(path) == [0, 0]


def test_a_torn_last_line_was_never_acknowledged_and_is_dropped(path):
    lines = written(path)
    path.write_bytes(b"".join(lines)[:-2])
    assert read(path, WHAT).torn
    assert numbers(path) == [0, 1]
    written(path, 1)
    assert numbers(path) == [0, 1, 0]
    assert not read(path, WHAT).torn


def test_a_last_line_that_lacks_its_newline_alone_counts(path):
    """It may have been acknowledged, and lost that byte later; dropping it would forget what was spent."""
    lines = written(path)
    path.write_bytes(b"".join(lines)[:-1])
    assert not read(path, WHAT).torn
    assert numbers(path) == [0, 1, 2]
    written(path, 1)
    assert numbers(path) == [0, 1, 2, 0]


def test_a_last_newline_that_became_something_else_is_refused(path):
    lines = written(path)
    path.write_bytes(b"".join(lines)[:-1] + b"\x0b")
    for opened in (lambda: read(path, WHAT), lambda: Journal(path, WHAT)):
        with pytest.raises(LedgerError, match=r"end of the last line .* is damaged"):
            opened()


@pytest.mark.parametrize("line", [0, 1, 2])
def test_a_changed_line_is_refused(path, line):
    lines = written(path)
    lines[line] = lines[line].replace(b"entry", b"entrY", 1)
    path.write_bytes(b"".join(lines))
    with pytest.raises(LedgerError, match=f"line {line + 1} .* is damaged"):
        Journal(path, WHAT)


@pytest.mark.parametrize("kept", [(0, 2), (1, 2), (0, 2, 1), (0, 1, 1, 2)])
def test_lines_that_are_lost_moved_or_repeated_are_refused_though_each_is_whole(path, kept):
    lines = written(path)
    path.write_bytes(b"".join(lines[i] for i in kept))
    with pytest.raises(LedgerError, match="lines were lost or changed"):
        Journal(path, WHAT)


def test_a_rewritten_line_with_a_new_checksum_breaks_the_chain(path):
    lines = written(path)
    body = json.dumps({**json.loads(lines[1].partition(b" ")[2]), "number": 7}, sort_keys=True).encode()
    lines[1] = b"%08x %s\n" % (zlib.crc32(body), body)
    path.write_bytes(b"".join(lines))
    with pytest.raises(LedgerError, match="line 3"):
        Journal(path, WHAT)


@pytest.mark.parametrize("body", [b"[1, 2]", b"7", b"{", b"\xff", b"[" * 100_000])
def test_a_line_that_is_no_object_is_refused_though_its_checksum_is_right(path, body):
    path.write_bytes(b"%08x %s\n" % (zlib.crc32(body), body))
    with pytest.raises(LedgerError, match=r"line 1 .* is damaged"):
        Journal(path, WHAT)


@settings(max_examples=100)
@given(data=st.data())
def test_no_content_is_read_as_other_records_than_a_prefix_of_those_written(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("fuzz") / "diary"
    content = bytearray(b"".join(written(path)))
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        del content[place:]
    else:
        content[place] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        found = numbers(path)
    except LedgerError:
        return
    assert found == [0, 1, 2][: len(found)]


@pytest.mark.parametrize(("module", "name", "code", "says"), [
    (fcntl, "flock", errno.ENOLCK, "use a local disk"),
    (fcntl, "flock", errno.EOPNOTSUPP, "use a local disk"),
    (fcntl, "flock", errno.EINVAL, "use a local disk"),
    (os, "fsync", errno.EINVAL, "use a local disk"),  # of a folder
    (os, "open", errno.EROFS, "Read-only file system"),
])  # fmt: skip
def test_file_systems_that_cannot_lock_make_durable_or_write_are_refused_as_such(path, monkeypatch, module, name, code, says):
    def refuse(*arguments):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(module, name, refuse)
    with pytest.raises(LedgerError, match=says):
        Journal(path, WHAT)


def test_a_waiting_process_gets_the_lock_when_it_is_free(path):
    with Journal(path, WHAT) as journal:
        child = os.fork()
        if child == 0:
            with Journal(path, WHAT, wait=True) as waited:
                waited.append({"record": "entry", "number": len(waited.records)})
            os._exit(0)
        journal.append({"record": "entry", "number": 0})
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert numbers(path) == [0, 1]


def test_nothing_is_appended_after_the_body_of_an_append_failed(path):
    with Journal(path, WHAT) as journal:
        with pytest.raises(ZeroDivisionError), journal.appending({"record": "entry", "number": 0}):
            raise ZeroDivisionError
        with pytest.raises(LedgerError, match="interrupted"):
            journal.append({"record": "entry", "number": 1})
    assert numbers(path) == [0]


def test_a_chain_in_memory_knows_its_lines():
    chain = Chain("memory")
    chain.append({"record": "entry"})
    assert chain.includes(chain.tip)
    chain.close()
    with pytest.raises(LedgerError, match="it was closed"):
        chain.append({"record": "entry"})


@pytest.mark.parametrize("change", ["replaced", "removed"])
def test_a_file_that_is_no_longer_there_is_not_written_to(change, tmp_path):
    """Records of steps would be lost with the file that has the name no more."""
    path = tmp_path / "journal"
    with Journal(path, "the journal") as journal:
        journal.append({"kind": "one"})
        if change == "replaced":
            (tmp_path / "copy").write_bytes(path.read_bytes())
            (tmp_path / "copy").replace(path)
        else:
            path.unlink()
        with pytest.raises(LedgerError, match="could not be made durable"):
            journal.append({"kind": "two"})
        with pytest.raises(LedgerError, match="cannot be written any more"):
            journal.append({"kind": "three"})
