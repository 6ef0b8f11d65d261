"""What tests of the command line share: a command that runs in this process, and the plan that it leaves."""

import json

import pytest

from privet import Plan
from privet.cli import main


def ask(capsys, *words):
    """Return exit status, standard output and standard error of a command."""
    with pytest.raises(SystemExit) as stop:
        main(list(map(str, words)))
    return stop.value.code, *capsys.readouterr()


def ask_json(capsys, *words):
    """Return exit status, the JSON object in the last line of standard output, if any, and standard error."""
    code, out, error = ask(capsys, *words, "--json")
    return code, out.splitlines()[-1:] and json.loads(out.splitlines()[-1]), error


def succeed(capsys, *words):
    """Return the JSON object that a command prints, which must succeed."""
    code, found, error = ask_json(capsys, *words)
    assert code == 0, error
    return found


def told(capsys, *words):
    """Return what a command prints, which must succeed."""
    code, out, error = ask(capsys, *words)
    assert code == 0, error
    return out


def refused(capsys, *words):
    """Return the only line of a refusal."""
    code, out, error = ask(capsys, *words)
    assert (code, out, error.count("\n")) == (2, "", 1), (code, out, error)
    return error


def plan_in(directory):
    return Plan.from_json((directory / "plan.json").read_text(encoding="utf-8"))
