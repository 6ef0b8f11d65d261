"""The command tunes the allocator of its own process, but not of a process that calls it as a function."""

import sys

import pytest

from privet._utils import malloc
from privet.cli import main


@pytest.mark.parametrize(("arguments", "kept"), [(None, 1), (["data", "list"], 0)])
def test_freed_memory_is_kept_only_in_the_commands_own_process(arguments, kept, monkeypatch):
    calls = []
    monkeypatch.setattr(malloc, "keep_freed_memory", lambda: calls.append(True))
    monkeypatch.setattr(sys, "argv", ["privet", "data", "list"])
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 0
    assert len(calls) == kept
