"""`privet train --log` sends the metrics of a run to a sink, and refuses a wrong one before any work."""

import pytest

from privet.cli import main

RUN = "train --data digits --model logistic --epsilon 3 --delta 1e-4 --steps 4 --quiet"


def command(text, *more):
    with pytest.raises(SystemExit) as stop:
        main([*text.split(), *map(str, more)])
    return stop.value.code


def scalars(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder)).Reload()
    return {name: [event.step for event in events.Scalars(name)] for name in events.Tags()["scalars"]}


def test_the_metrics_of_a_run_are_in_tensorboard_and_its_directory(tmp_path):
    pytest.importorskip("tensorboard", reason="the extra tensorboard")
    pytest.importorskip("sklearn", reason="the digits")
    run, elsewhere = tmp_path / "run", tmp_path / "events"
    assert command(RUN, "--out", run, "--log", "tensorboard", "--log", f"tensorboard={elsewhere}") == 0
    found = scalars(run / "tensorboard")
    assert found == scalars(elsewhere)
    assert found["epsilon"] == found["test_accuracy"] == [1, 2, 3, 4]
    assert (run / "metrics.jsonl").read_text().count('"test_accuracy"') == 4


def test_a_sink_without_its_library_ends_in_the_command_that_installs_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert command(RUN, "--out", tmp_path / "run", "--log", "wandb=mine") == 2
    assert "pip install 'privet[wandb]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
