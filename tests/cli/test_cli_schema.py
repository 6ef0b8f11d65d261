import gzip
import re

import pytest
from asked import ask, plan_in, refused, succeed, told
from frames_of_users import tables
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from privet.tables import Ignore, Schema

ROWS = "age,job,id,rich\n" + "".join(f"{20 + i % 60},{['a', 'b', '?'][i % 3]},{i},{['no', 'yes'][i % 2]}\n" for i in range(120))
FILLED = {
    'task = "?"': 'task = "classification"\nclasses = ["no", "yes"]',
    'age = "?"': 'age = { kind = "number", lower = 0, upper = 100 }',
    'job = "?"': 'job = { kind = "category", values = ["a", "b"] }',
    'id = "?"': 'id = "ignore"',
}
QUICK = ["--epsilon", 8, "--delta", "1e-4", "--steps", 3, "--model", "logistic", "--quiet"]


@pytest.fixture
def table(tmp_path):
    (tmp_path / "people.csv").write_text(ROWS)
    return tmp_path / "people.csv"


@pytest.fixture
def schema(table, capsys):
    _, text, _ = ask(capsys, "schema", "draft", table, "--target", "rich")
    for before, after in FILLED.items():
        text = text.replace(before, after)
    table.with_suffix(".toml").write_text(text)
    return table.with_suffix(".toml")


def test_a_draft_of_a_private_table_shows_no_cell_and_counts_what_is_left(capsys, table):
    code, text, notes = ask(capsys, "schema", "draft", table, "--target", "rich")
    table.write_text(ROWS.replace(",a,", ",SECRET,").replace(",no", ",OTHER"))
    assert (code, text, notes) == ask(capsys, "schema", "draft", table, "--target", "rich")
    assert '4 lines have a "?"' in notes
    table.with_suffix(".toml").write_text(text)
    options = ["--data", table, "--schema", table.with_suffix(".toml"), "--out", table.parent / "run"]
    assert "people.toml: target.task is '?'; it must be filled in" in refused(capsys, "train", *options, *QUICK)
    assert not (table.parent / "run").exists()


def test_a_draft_from_a_public_sample_trains_without_a_hand(capsys, table):
    sample = table.parent / "sample.csv"
    sample.write_text(ROWS.replace("?", ""))
    code, text, notes = ask(capsys, "schema", "draft", table, "--target", "rich", "--from-public", sample)
    assert (code, notes) == (0, "")
    table.with_suffix(".toml").write_text(text)
    options = ["--data", table, "--schema", table.with_suffix(".toml"), "--target", "rich", "--out", table.parent / "run"]
    assert succeed(capsys, "train", *options, *QUICK)["steps"] == 3


@pytest.mark.parametrize("verb", ["train", "fit"])
def test_training_on_a_table_says_how_to_count_what_does_not_fit_whatever_the_rows_are(capsys, table, schema, verb):
    notes = []
    for name, text in (("fits", ROWS), ("nothing fits", ROWS.replace(",no", ",No").replace(",yes", ",Yes"))):
        table.write_text(text)
        options = ["--data", table, "--schema", schema, "--out", table.parent / name, "--epsilon", 8, "--delta", "1e-4"]
        code, _, note = ask(capsys, verb, *options, *(["--steps", 3, "--quiet"] if verb == "train" else []))
        assert code == 0
        notes.append(note)
    assert f"Count what does not fit: privet schema check {table} --schema {schema}" in notes[0]
    assert notes[0] == notes[1]


def test_a_run_keeps_its_schema_in_plan_statement_and_folder(capsys, table, schema):
    run = table.parent / "run"
    succeed(capsys, "train", "--data", table, "--schema", schema, "--out", run, *QUICK)
    known = Schema.read(schema)
    assert plan_in(run).schema == known == Schema.read(run / "schema.toml")
    statement = (run / "guarantee.md").read_text()
    assert statement.count(known.describe()) == 1
    assert "it was written without looking at the private rows" in statement


def test_a_resumed_run_takes_its_own_schema_not_a_file_that_has_changed(capsys, interrupt_once, table, schema):
    run = table.parent / "run"

    interrupt_once(2)
    assert ask(capsys, "train", "--data", table, "--schema", schema, "--out", run, *QUICK)[0] == 130
    before = plan_in(run).schema
    schema.write_text(schema.read_text().replace('["a", "b"]', '["a", "b", "c"]'))
    (run / "schema.toml").write_text(schema.read_text())
    assert succeed(capsys, "train", "--resume", run, "--quiet")["steps"] == 3
    assert before.width == plan_in(run).schema.width == 3


def test_a_schema_beside_a_plan_with_another_one_is_refused(capsys, table, schema):
    run = table.parent / "run"
    ask(capsys, "train", "--data", table, "--schema", schema, "--out", run, *QUICK)
    schema.write_text(schema.read_text().replace("upper = 100", "upper = 99"))
    again = ["train", "--config", run / "plan.json", "--data", table, "--out", table.parent / "again", "--quiet"]
    assert "it must be the schema of the plan" in refused(capsys, *again, "--schema", schema)
    assert ask(capsys, *again)[0] == 0


def test_a_check_counts_for_the_owner_and_changes_nothing(capsys, table, schema):
    before = schema.read_bytes()
    out = told(capsys, "schema", "check", table, "--schema", schema)
    assert re.search(r"^job +category +40 +0$", out, re.MULTILINE)
    assert "must not be released" in out
    found = succeed(capsys, "schema", "check", table, "--schema", schema)
    assert found["columns"]["job"] == {"missing": 40, "unfit": 0}
    assert (found["rows"], found["features"], found["rows_without_target"]) == (120, 3, 0)
    assert "'a'" not in out
    table.write_text(table.read_text().replace(",a,", ",A,"))
    shown = told(capsys, "schema", "check", table, "--schema", schema, "--show")
    assert "Private cells of job that are not one of the 2 values a, b: 'A' (40)" in shown
    assert succeed(capsys, "schema", "check", table, "--schema", schema, "--show")["examples"] == {"job": {"A": 40}}
    assert schema.read_bytes() == before
    assert sorted(path.name for path in table.parent.iterdir()) == ["people.csv", "people.toml"]


UNFIT = {
    "a column is missing": ("people.csv", ROWS.replace("job", "work", 1).encode(), "It has no column 'job'"),
    "the target is missing": ("people.csv", ROWS.replace("rich", "wealth", 1).encode(), "It has no column 'rich'"),
    "no header": ("people.csv", ROWS.partition("\n")[2].encode(), "first line names each column once"),
    "no rows": ("people.csv", b"age,job,id,rich\n", "at least one row"),
    "another format": ("people.parquet", ROWS.encode(), "a readable .parquet file"),
    "half a file": ("people.csv.gz", gzip.compress(ROWS.encode())[:50], "a readable table of delimited text"),
    "an unknown ending": ("people.txt", b"", "--data is"),
    "a spreadsheet": ("people.xlsx", b"", "Save the sheet as CSV"),
    "no file": ("absent.csv", None, "No such file"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_a_table_that_does_not_fit_its_schema_is_refused_in_one_line_before_anything_is_written(capsys, tmp_path, schema, case):
    name, content, words = UNFIT[case]
    if content is not None:
        (tmp_path / name).write_bytes(content)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    options = ["--schema", schema, "--out", tmp_path / "run", *QUICK]
    assert words in refused(capsys, "train", "--data", tmp_path / name, *options)
    if case != "an unknown ending":
        assert words in refused(capsys, "schema", "check", tmp_path / name, "--schema", schema)
    assert before == {path: path.read_bytes() for path in tmp_path.iterdir()}


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=tables(least=2), data=st.data())
def test_any_table_without_a_column_of_its_schema_is_refused(capsys, tmp_path, drawn, data):
    known, cells = drawn
    lost = data.draw(st.sampled_from([name for name, kind in known.kinds.items() if not isinstance(kind, Ignore)]))
    names = [f"{name} " if name != lost else "another" for name in known.kinds]
    if lost == "another" or {*names} & {lost}:
        return
    (tmp_path / "own.toml").write_text(known.to_toml(), encoding="utf-8")
    rows = [[f'"{str(cell).replace(chr(34), chr(34) * 2)}"' for cell in row] for row in zip(*cells.values(), strict=True)]
    quoted = [f'"{name.replace(chr(34), chr(34) * 2)}"' for name in names]
    (tmp_path / "own.tsv").write_text("\n".join("\t".join(row) for row in (quoted, *rows)), encoding="utf-8", newline="")
    before = sorted(tmp_path.iterdir())
    words = ["train", "--data", tmp_path / "own.tsv", "--schema", tmp_path / "own.toml", "--out", tmp_path / "run", *QUICK]
    refused(capsys, *words)
    assert sorted(tmp_path.iterdir()) == before
