import json

import pytest

from privet.errors import InvalidArgumentError
from privet.report import run_files, write

VOLUME = {"up": 8_800, "down": 40_012, "dense_up": 40_000, "dense_down": 40_000}
SENT = {"cohort": 20.0, "rounds": 3, "rounds_per_epoch": 5.0} | dict.fromkeys(("client", "round", "epoch", "run"), VOLUME)
LINES = [
    {"step": step, "epsilon": 0.1, "test_accuracy": 0.5, "communicated": 4e5 * step, "communicated_dense": 1e6 * step}
    for step in (1, 2, 3)
]


@pytest.fixture
def federated(write_run):
    directory = write_run(metrics=LINES)
    (directory / "communication.json").write_text(json.dumps(SENT), encoding="utf-8")
    return directory


def test_bytes_are_in_a_table_and_a_figure(federated):
    page = write(federated).read_text(encoding="utf-8")
    assert "<h2>Communication</h2>" in page
    assert "expected 20 clients in each of 3 rounds" in page
    for shown in ("8.80 kB", "40.0 kB"):
        assert shown in page
    assert "communication.json" in page
    figure = (federated / "figures" / "communication.svg").read_text(encoding="utf-8")
    assert "MB sent and received by all clients" in figure
    assert "as sent" in figure


def test_a_damaged_file_is_named(federated):
    (federated / "communication.json").write_text('{"cohort": 3}', encoding="utf-8")
    with pytest.raises(InvalidArgumentError, match=r"communication\.json"):
        run_files.read(federated)
