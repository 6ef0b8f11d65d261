"""A run survives the file: nothing is lost by a round trip, and an interrupted write costs one run at most."""

import json
import math
from dataclasses import replace

import pytest

from privet.errors import InvalidArgumentError
from privet_experiments import Records, RunRecord

RECORD = RunRecord(
    recipe="small",
    arm="flat",
    settings={"model": "mlp", "plan": {"delta": 1e-5}},
    rate=0.3,
    seed=2,
    examples=100,
    plan={"delta": 1e-5},
    epsilon=math.inf,
    metrics={"accuracy": 0.75, "loss": math.nan},
    curve=[{"step": 3.0, "epsilon": 1.5, "accuracy": 0.75}],
    seconds=1.5,
    machine="a machine",
    versions={"privet": "0"},
    finished="2000-01-01T00:00:00+00:00",
)


def test_a_record_survives_the_file_with_numbers_that_json_has_not(tmp_path):
    Records(tmp_path / "new" / "runs.jsonl").add(RECORD)
    text = (tmp_path / "new" / "runs.jsonl").read_text(encoding="utf-8")
    assert json.loads(text, parse_constant=pytest.fail)["epsilon"] == "inf"
    found = Records(tmp_path / "new" / "runs.jsonl").get(RECORD.key)
    assert math.isnan(found.metrics["loss"])
    assert replace(found, metrics=RECORD.metrics) == RECORD


@pytest.mark.parametrize(
    "change", [{"arm": "other"}, {"rate": 0.6}, {"seed": 3}, {"examples": 99}, {"settings": {"model": "cnn"}}]
)
def test_what_differs_in_anything_that_decides_a_run_is_another_run(tmp_path, change):
    records = Records(tmp_path / "runs.jsonl")
    records.add(RECORD)
    assert records.get(replace(RECORD, **change).key) is None
    assert records.get(replace(RECORD, seconds=9.0, machine="another").key) == RECORD


def test_half_a_line_is_cut_off_and_the_next_run_starts_a_new_one(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text(RECORD.to_json() + "\n" + RECORD.to_json()[:50], encoding="utf-8")
    records = Records(path)
    assert len(records) == 1
    records.add(replace(RECORD, seed=3))
    assert len(Records(path)) == 2


@pytest.mark.parametrize("line", ["{", "[]", '{"arm": "flat"}'])
def test_a_damaged_line_is_refused_by_number(tmp_path, line):
    path = tmp_path / "runs.jsonl"
    path.write_text(RECORD.to_json() + "\n" + line + "\n", encoding="utf-8")
    with pytest.raises(InvalidArgumentError, match="Line 2 is damaged"):
        Records(path)
