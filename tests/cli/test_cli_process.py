"""The command decides about memory in a process of its own, and not in the one that calls it as a function."""

import sys

import pytest

from privet._utils import malloc
from privet.cli import main


@pytest.mark.parametrize(("arguments", "kept"), [(None, 1), (["data", "list"], 0)])
def test_memory_is_kept_where_the_process_is_ours(arguments, kept, monkeypatch):
    calls = []
    monkeypatch.setattr(malloc, "keep_freed_memory", lambda: calls.append(True))
    monkeypatch.setattr(sys, "argv", ["privet", "data", "list"])
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 0
    assert len(calls) == kept
