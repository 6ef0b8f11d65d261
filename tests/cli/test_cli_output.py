import sys
from dataclasses import replace
from pathlib import Path

import pytest
from asked import ask, refused, told

from privet import Plan, clipping, noise, sampling
from privet._utils import malloc
from privet.cli import main
from privet.evaluation import Evaluation, HeldOutEstimate
from privet.runs import Outcome
from privet.runs.summary import format_summary

RUN = ["train", "--data", "digits", "--model", "logistic", "--epsilon", 3, "--delta", 1e-4, "--steps", 4, "--quiet"]
GUARANTEE = Plan(
    examples=500, sampling=sampling.Poisson(50), steps=9, delta=1e-4, clipping=clipping.Flat(0.3), noise=noise.Gaussian(2.0)
).guarantee()
TESTED = Evaluation(accuracy=0.5, negative_log_likelihood=0.7, confusion=((1, 1), (1, 1)), examples=4)
RELEASED = HeldOutEstimate(
    task="classification", metrics={"accuracy": 0.6}, intervals={"accuracy": (0.4, 0.7)}, examples=90, unit="example",
    epsilon=0.5, delta=1e-4, noise_multiplier=9.0,
)  # fmt: skip


@pytest.mark.parametrize(
    "results", [{}, {"evaluation": TESTED}, {"held_out": RELEASED}, {"evaluation": TESTED, "held_out": RELEASED}]
)
@pytest.mark.parametrize("defaults", [{}, {"steps": 9}])
@pytest.mark.parametrize("warnings", [0, 2, 7])
def test_a_summary_has_at_most_ten_lines(results, defaults, warnings):
    texts = tuple(f"number {index}" for index in range(warnings))
    given = {"evaluation": None, "held_out": None, **results}
    outcome = Outcome(
        directory=Path("runs/mine"), guarantee=replace(GUARANTEE, warnings=texts), test_data=None, seconds=1.0, defaults=defaults,
        **given,
    )  # fmt: skip
    lines = format_summary(outcome).splitlines()
    assert len(lines) <= 10
    assert lines[-1] == "Full statement: privet guarantee runs/mine"
    shown = [text for text in texts if f"Warning: {text}" in lines]
    hidden = [line for line in lines if line.endswith("in the full statement")]
    left = warnings - len(shown)
    assert hidden == ([f"Warning: {left} {'more ' if shown else ''}in the full statement"] if left else [])


@pytest.mark.parametrize("verb", ["train", "predict", "report", "noise"])
def test_help_has_no_marks_of_another_program(capsys, verb):
    code, text, _ = ask(capsys, verb, "--help")
    assert (code, "\\[" in text) == (0, False)
    assert ("--epsilon, --eps" in text) == (verb in ("train", "noise"))
    assert ("RUN..." in text) == (verb == "report")


def test_a_short_name_stands_for_its_option(capsys):
    asked = ["noise", "--examples", 1000, "--batch-size", 100, "--steps", 10, "--delta", "1e-5"]
    assert told(capsys, *asked, "--eps", 3) == told(capsys, *asked, "--epsilon", 3)


def scalars(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder)).Reload()
    return {name: [event.step for event in events.Scalars(name)] for name in events.Tags()["scalars"]}


def test_the_metrics_of_a_run_are_in_tensorboard_and_its_directory(tmp_path, capsys):
    pytest.importorskip("tensorboard", reason="the extra tensorboard")
    pytest.importorskip("sklearn", reason="the digits")
    run, elsewhere = tmp_path / "run", tmp_path / "events"
    told(capsys, *RUN, "--out", run, "--log", "tensorboard", "--log", f"tensorboard={elsewhere}")
    found = scalars(run / "tensorboard")
    assert found == scalars(elsewhere)
    assert found["epsilon"] == found["test_accuracy"] == [1, 2, 3, 4]
    assert (run / "metrics.jsonl").read_text().count('"test_accuracy"') == 4


def test_a_sink_without_its_library_ends_in_the_command_that_installs_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install 'privet[wandb]'" in refused(capsys, *RUN, "--out", tmp_path / "run", "--log", "wandb=mine")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("arguments", "kept"), [(None, 1), (["data", "list"], 0)])
def test_freed_memory_is_kept_only_in_the_commands_own_process(arguments, kept, monkeypatch):
    calls = []
    monkeypatch.setattr(malloc, "keep_freed_memory", lambda: calls.append(True))
    monkeypatch.setattr(sys, "argv", ["privet", "data", "list"])
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 0
    assert len(calls) == kept
