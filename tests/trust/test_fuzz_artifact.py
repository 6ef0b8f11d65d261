"""Whatever became of a model's folder or of the rows to predict: an answer, or one line, status 2 and nothing written."""

import hashlib
import json
import shutil

import pytest
from fuzzing import altered, command, damaged, fuzzed
from hypothesis import given
from hypothesis import strategies as st

ROWS = "age,work,note\n20,state,likes tea\n?,private,\n90,,tea\n"
SCHEMA = """
[target]
column = "good"
task = "classification"
classes = ["no", "yes"]

[columns]
age = { kind = "number", lower = 17, upper = 90, missing = "indicator" }
work = { kind = "category", values = ["private", "state"] }
note = { kind = "text", size = 4 }
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run on a table."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "schema.toml").write_text(SCHEMA, encoding="utf-8")
    rows = "".join(f"{17 + i},{'private' if i % 3 else 'state'},tea,{'yes' if i % 2 else 'no'}\n" for i in range(60))
    (folder / "mine.csv").write_text("age,work,note,good\n" + rows, encoding="utf-8")
    data = ("--data", folder / "mine.csv", "--schema", folder / "schema.toml", "--model", "logistic")
    plan = ("--steps", 2, "--batch-size", 5, "--noise-multiplier", 2, "--delta", "1e-3")
    assert command("train", *map(str, (*data, *plan)), "--quiet", "--out", folder / "run") == 0
    (folder / "rows.csv").write_text(ROWS, encoding="utf-8")
    return folder


def predicted(folder, model, rows):
    """Return whether the command answers; if not, it has written nothing."""
    before = sorted(folder.iterdir())
    if command("predict", model, "--data", rows, "--out", folder / "found.csv", "--force") == 2:
        assert sorted(folder.iterdir()) == before
        return False
    return True


def test_the_undamaged_folder_answers(run, tmp_path):
    assert predicted(tmp_path, run / "run", run / "rows.csv")


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_a_damaged_file_is_refused_or_answers(run, tmp_path_factory, name):
    whole = (run / "run" / "model" / name).read_bytes()
    altering = altered(json.loads(whole)).map(lambda value: json.dumps(value).encode()) if name == "model.json" else st.nothing()

    @fuzzed(25)
    @given(damaged(whole) | altering)
    def hold(content):
        folder = tmp_path_factory.mktemp("damaged")
        model = shutil.copytree(run / "run" / "model", folder / "model")
        (model / name).write_bytes(content)
        if name == "model.safetensors":  # as somebody would who wants it read
            described = json.loads((model / "model.json").read_text(encoding="utf-8"))
            described["weights"] = hashlib.sha256(content).hexdigest()
            (model / "model.json").write_text(json.dumps(described), encoding="utf-8")
        predicted(folder, model, run / "rows.csv")

    hold()


def test_damaged_rows_are_refused_or_answered(run, tmp_path_factory):
    @fuzzed(25)
    @given(damaged(ROWS.encode()), st.sampled_from(["refuse", "as-schema"]))
    def hold(content, misfits):
        folder = tmp_path_factory.mktemp("rows")
        (folder / "rows.csv").write_bytes(content)
        words = ("--data", folder / "rows.csv", "--out", folder / "found.csv", "--misfits", misfits)
        if command("predict", run / "run", *words) == 2:
            assert [path.name for path in folder.iterdir()] == ["rows.csv"]

    hold()
