"""Processes that carry runs out share the cores and keep their memory."""

import torch

from privet._utils import malloc
from privet_experiments.reproduction import workers


def test_a_process_begins_with_its_threads_and_keeps_what_runs_free(monkeypatch):
    called = []
    monkeypatch.setattr(malloc, "keep_freed_memory", lambda: called.append("memory"))
    monkeypatch.setattr(torch, "set_num_threads", called.append)
    workers._begin(3)
    assert called == [3, "memory"]
