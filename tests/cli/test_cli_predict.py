import csv
import json
import re

import numpy as np
import pytest
from safetensors.torch import load_file

import privet
from privet.cli import main

pytest.importorskip("sklearn", reason="the digits come with scikit-learn: pip install 'privet[data]'")

SCHEMA = """
[target]
column = "good"
task = "classification"
classes = ["no", "yes"]

[columns]
age = { kind = "number", lower = 17, upper = 90 }
work = { kind = "category", values = ["private", "state"] }
"""


def run(*words):
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return stop.value.code


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A finished run on digits, and one on a table of people."""
    folder = tmp_path_factory.mktemp("runs")
    common = ("--epsilon", 8, "--delta", "1e-5", "--steps", 3, "--quiet")
    assert run("train", "--data", "digits", "--model", "mlp", *common, "--out", folder / "digits") == 0
    (folder / "people.toml").write_text(SCHEMA, encoding="utf-8")
    rows = "".join(f"{17 + i % 70},{'private' if i % 3 else 'state'},{'yes' if i % 2 else 'no'}\n" for i in range(200))
    (folder / "people.csv").write_text("age,work,good\n" + rows, encoding="utf-8")
    table = ("--data", folder / "people.csv", "--schema", folder / "people.toml", "--model", "logistic")
    assert run("train", *table, *common, "--license", "mit", "--out", folder / "people") == 0
    (folder / "new.csv").write_text("work,age\nstate,20\n?,90\n", encoding="utf-8")
    return folder


def test_a_number_is_predicted_in_its_units_and_released_results_are_on_the_card(runs, tmp_path):
    (tmp_path / "prices.toml").write_text(
        '[target]\ncolumn = "price"\ntask = "regression"\nlower = 100\nupper = 500\n\n'
        '[columns]\nsize = { kind = "number", lower = 0, upper = 50 }\nrooms = { kind = "number", lower = 0, upper = 9 }\n',
        encoding="utf-8",
    )
    rows = "".join(f"{i % 50},{i % 9},{100 + 8 * (i % 50)}\n" for i in range(200))
    (tmp_path / "prices.csv").write_text("size,rooms,price\n" + rows, encoding="utf-8")
    table = ("--data", tmp_path / "prices.csv", "--schema", tmp_path / "prices.toml", "--model", "table")
    paid = ("--holdout", 0.2, "--evaluation-epsilon", 1)
    assert run("train", *table, *paid, "--epsilon", 8, "--delta", "1e-5", "--steps", 3, "--quiet", "--out", tmp_path / "run") == 0
    assert run("predict", tmp_path / "run", "--data", tmp_path / "prices.csv", "--out", tmp_path / "found.csv") == 0
    found = read_rows(tmp_path / "found.csv")
    assert list(found[0]) == ["row", "predicted price"]
    assert all(100 <= float(row["predicted price"]) <= 500 for row in found)
    card = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    released = json.loads((tmp_path / "run" / "holdout.json").read_text(encoding="utf-8"))["metrics"]["root_mean_squared_error"]
    assert f"| RMSE. Root mean squared error, in the unit of the target. | {released:.4g} |" in card
    assert "| 40 held-out examples; released with noise, which the guarantee covers |" in card


@pytest.mark.parametrize(("task", "measured"), [
    ('task = "classification"\nclasses = ["no", "yes"]', "accuracy"),
    ('task = "regression"\nlower = 0\nupper = 1', "mean_squared_error"),
], ids=["classes", "number"])  # fmt: skip
def test_predictions_of_the_test_file_have_the_accuracy_of_the_run(tmp_path, task, measured):
    (tmp_path / "schema.toml").write_text(
        f'[target]\ncolumn = "good"\n{task}\n\n[columns]\nage = {{ kind = "number", lower = 17, upper = 90 }}\n', encoding="utf-8"
    )
    words = ("no", "yes") if measured == "accuracy" else ("0", "1")
    for name, shift in (("train", 0), ("test", 7)):
        rows = "".join(f"{17 + (11 * i + shift) % 80},{words[(i * i + shift) % 3 % 2]}\n" for i in range(150))
        (tmp_path / f"{name}.csv").write_text("age,good\n" + rows, encoding="utf-8")
    data = ("--data", tmp_path / "train.csv", "--schema", tmp_path / "schema.toml", "--test", tmp_path / "test.csv")
    plan = ("--epsilon", 8, "--delta", "1e-5", "--steps", 5, "--quiet", "--out", tmp_path / "run")
    assert run("train", *data, *plan) == 0
    test = ("--data", tmp_path / "test.csv", "--misfits", "as-schema")
    assert run("predict", tmp_path / "run", *test, "--out", tmp_path / "found.csv") == 0
    predicted = [row["predicted good"] for row in read_rows(tmp_path / "found.csv")]
    targets = [row["good"] for row in read_rows(tmp_path / "test.csv")]
    if measured == "accuracy":
        found = np.mean(np.array(predicted) == np.array(targets))
    else:
        found = np.mean((np.array(predicted, dtype=float) - np.array(targets, dtype=float)) ** 2)
    evaluation = json.loads((tmp_path / "run" / "evaluation.json").read_text(encoding="utf-8"))
    assert found == pytest.approx(evaluation[measured], rel=1e-6)


def read_rows(path, delimiter=","):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter=delimiter))


def test_the_folder_of_a_run_is_complete_and_described(runs):
    assert {path.name for path in (runs / "people" / "model").iterdir()} == {
        "model.safetensors",
        "model.json",
        "README.md",
        "guarantee.json",
        "guarantee.md",
    }
    model = privet.load(runs / "people")
    assert model.classes == ("no", "yes")
    assert model.schema.to_toml() == (runs / "people" / "schema.toml").read_text(encoding="utf-8")
    assert model.guarantee.epsilon == json.loads((runs / "people" / "guarantee.json").read_text(encoding="utf-8"))["epsilon"]
    weights = load_file(runs / "people" / "model" / "model.safetensors")
    assert all(np.array_equal(value, weights[name]) for name, value in model.module.state_dict().items())


def test_the_card_names_no_private_file_and_keeps_the_licence(runs):
    card = (runs / "people" / "model" / "README.md").read_text(encoding="utf-8")
    assert 'license: "mit"' in card
    assert "people.csv" not in card
    assert "No number was measured on public test data" in card
    assert "360 public test examples" in (runs / "digits" / "model" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("ending", "delimiter"), [("csv", ","), ("tsv", "\t")])
def test_a_table_gets_a_class_and_probabilities_for_every_row(runs, tmp_path, ending, delimiter, capsys):
    out = tmp_path / f"found.{ending}"
    assert run("predict", runs / "people", "--data", runs / "new.csv", "--out", out, "--json") == 0
    answer = json.loads(capsys.readouterr().out.splitlines()[-1])
    first, second = read_rows(out, delimiter)
    assert list(first) == ["row", "predicted good", "probability of no", "probability of yes"] == answer["columns"]
    assert (answer["rows"], answer["misfits"]) == (2, 0)
    model = privet.load(runs / "people")
    expected = model.predict_proba(runs / "new.csv")
    for number, (row, probabilities) in enumerate(zip((first, second), expected, strict=True), start=1):
        assert row["row"] == str(number)
        assert [float(row["probability of no"]), float(row["probability of yes"])] == pytest.approx(probabilities, abs=1e-8)
        assert row["predicted good"] == model.classes[probabilities.argmax()]


def test_parquet_is_written_by_its_ending(runs, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="an extra: pip install 'privet[tables]'")
    assert run("predict", runs / "people", "--data", runs / "new.csv", "--out", tmp_path / "found.parquet") == 0
    table = parquet.read_table(tmp_path / "found.parquet").to_pydict()
    assert table["row"] == [1, 2]
    assert np.array_equal(table["probability of yes"], privet.load(runs / "people").predict_proba(runs / "new.csv")[:, 1])


def test_the_public_test_split_and_raw_pixels_have_the_same_answers(runs, tmp_path):
    from sklearn.datasets import load_digits

    from privet.data.dataset import public_split

    _, test = public_split(1797, 360)
    np.savez(tmp_path / "pixels.npz", x=load_digits().images[test].astype(np.uint8))
    assert run("predict", runs / "digits", "--data", "digits", "--out", tmp_path / "named.csv") == 0
    assert run("predict", runs / "digits", "--data", tmp_path / "pixels.npz", "--out", tmp_path / "pixels.csv") == 0
    assert (tmp_path / "named.csv").read_bytes() == (tmp_path / "pixels.csv").read_bytes()
    rows = read_rows(tmp_path / "named.csv")
    labels = map(str, load_digits().target[test])
    accuracy = np.mean([row["predicted class"] == label for row, label in zip(rows, labels, strict=True)])
    evaluation = json.loads((runs / "digits" / "evaluation.json").read_text(encoding="utf-8"))
    assert accuracy == pytest.approx(evaluation["accuracy"], abs=1e-9)


def test_a_file_is_replaced_only_on_request_and_never_the_one_that_is_read(runs, tmp_path, capsys):
    out = tmp_path / "found.csv"
    out.write_text("mine", encoding="utf-8")
    words = ("predict", runs / "people", "--data", runs / "new.csv", "--out", out)
    assert run(*words) == 2
    assert "Add --force" in capsys.readouterr().err
    assert out.read_text(encoding="utf-8") == "mine"
    assert run(*words, "--force") == 0
    before = (runs / "new.csv").read_bytes()
    assert run(*words[:-1], runs / "new.csv", "--force") == 2
    assert (runs / "new.csv").read_bytes() == before


@pytest.mark.parametrize(("table", "message"), [
    (
        "age,work\n20,state\n140,circus\n",
        "error: Correct the rows, or encode them as in training with --misfits as-schema; --verbose lists them. 1 row does",
    ),
    ("age\n20\n", "no column 'work'"),
    ("age,work\n20,state\n20\n", "such as row 2: it has no values"),
    ("", "people"),
    ("age,work\n", "row"),
], ids=str)  # fmt: skip
def test_rows_that_do_not_fit_end_in_one_line_and_nothing_is_written(runs, tmp_path, capsys, table, message):
    (tmp_path / "people.csv").write_text(table, encoding="utf-8")
    assert run("predict", runs / "people", "--data", tmp_path / "people.csv", "--out", tmp_path / "found.csv") == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert message in err
    assert [path.name for path in tmp_path.iterdir()] == ["people.csv"]


def test_misfits_become_what_the_schema_says_on_request(runs, tmp_path, capsys):
    (tmp_path / "old.csv").write_text("age,work\n140,circus\n", encoding="utf-8")
    (tmp_path / "fit.csv").write_text("age,work\n90,\n", encoding="utf-8")
    for name, *more in (("old", "--misfits", "as-schema", "--verbose"), ("fit",)):
        words = ("predict", runs / "people", "--data", tmp_path / f"{name}.csv", "--out", tmp_path / f"{name}.out.csv", *more)
        assert run(*words) == 0
    out = capsys.readouterr().out
    assert "Values that did not fit, and became what the schema says: 2\nrow 1, column 'age': '140' is not a number" in out
    assert (tmp_path / "old.out.csv").read_bytes() == (tmp_path / "fit.out.csv").read_bytes()


@pytest.mark.parametrize(("words", "message"), [
    (["--data", "new.csv", "--out", "found.txt"], "--out is .*ends in .csv, .tsv, .parquet"),
    (["--data", "new.csv", "--out", "."], "--out is"),
    (["--data", "missing.csv", "--out", "found.csv"], "--data is .*missing.csv"),
    (["--data", "mnist", "--out", "found.csv"], "--data is 'mnist'"),
    (["--data", "new.csv", "--out", "found.csv", "--misfits", "guess"], "--misfits is 'guess'"),
    (["--data", "new.csv", "--out", "found.csv", "--device", "abacus"], "abacus"),
], ids=str)  # fmt: skip
def test_other_requests_are_refused_in_one_line(runs, tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "new.csv").write_text("age,work\n20,state\n", encoding="utf-8")
    assert run("predict", runs / "people", *words) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert re.search(message, err)
    assert [path.name for path in tmp_path.iterdir()] == ["new.csv"]


def test_a_network_is_exported(runs, tmp_path, capsys):
    out = tmp_path / "people.pt2"
    assert run("export", runs / "people", "--out", out, "--json") == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"out": str(out), "format": "torch-export"}
    assert run("export", runs / "people", "--out", out) == 2
    assert "Add --force" in capsys.readouterr().err
    assert run("export", runs / "people", "--out", tmp_path / "people.tflite") == 2
    assert "ends in .onnx, .pt2" in capsys.readouterr().err
    assert run("export", runs / "people", "--out", tmp_path / "people", "--to", "pickle") == 2
    assert "--to is 'pickle'" in capsys.readouterr().err
