"""Runs draw no report, which takes longer than training here, unless a test is about it."""

import pytest
from asked import ask

from privet import Training
from privet.runs import run


@pytest.fixture(autouse=True)
def no_report(request, monkeypatch):
    if "with_report" not in request.keywords:
        monkeypatch.setattr(run.report, "write", lambda directory: None)


@pytest.fixture
def prepared(capsys, monkeypatch):
    """Return a function of the words of a training command that returns settings and plan of the run that it does not begin."""
    found = []
    for verb in ("train", "federate"):
        monkeypatch.setattr(f"privet.cli._verbs.{verb}.start_run", lambda given, *made: found.append(made[:2]))

    def prepare(*words, verb="train"):
        code, _, error = ask(capsys, verb, *words)
        assert code == 0, error
        return found.pop()

    return prepare


@pytest.fixture
def interrupt_once(monkeypatch):
    """Return a function that lets the next training stop, as by Ctrl-C, in this step."""
    take = Training._take

    def interrupt(number):
        stopped = iter([True])

        def interrupted(training, update):
            for step in take(training, update):
                if step.number == number and next(stopped, False):
                    raise KeyboardInterrupt
                yield step

        monkeypatch.setattr(Training, "_take", interrupted)

    return interrupt
