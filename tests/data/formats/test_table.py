import re
from dataclasses import replace

import pytest
import torch

import privet
from privet import clipping, data, sampling
from privet.data.formats.table import load_table
from privet.errors import InvalidArgumentError
from privet.tables import Category, Classification, Ignore, Number, Regression, Schema, UserId, read_frame
from privet.tables.cells import UNDECLARED

ROWS = "age,kind,size,colour\n1,cat,-10,red\n2,dog,5,blue\n3,cat,1e3,\n4,ant,oops,red\n5,emu,7,green\n"
PETS = Schema(
    columns=(("age", Number(0, 10)), ("size", Number(-10, 10)), ("colour", Category(("red", "blue")))),
    target="kind",
    task=Classification(("ant", "cat", "dog")),
)
OWNED = "x,who,y\n1,ann,0\n2,bob,1\n3,ann,1\n4,,0\n"
BY_USER = Schema(columns=(("x", Number(0, 4)), ("who", UserId())), target="y", task=Classification(("0", "1")))


def saved(folder, text, name="pets.csv"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_table_becomes_features_and_classes_of_its_schema(tmp_path):
    found = load_table(saved(tmp_path, ROWS), schema=PETS)
    assert (found.name, found.classes, found.input_shape, found.test, found.test_data) == ("pets", 3, (4,), None, None)
    assert (found.schema, found.class_names) == (PETS, ("ant", "cat", "dog"))
    features, labels = found.train.tensors
    assert labels.tolist() == [1, 2, 1, 0, UNDECLARED]
    assert features[:, 1].tolist() == [-1, 0.5, 1, 0, pytest.approx(0.7)]
    assert features[:, 2:].tolist() == [[1, 0], [0, 1], [0, 0], [1, 0], [0, 0]]


def test_regression_has_no_classes_and_marks_a_missing_target(tmp_path):
    schema = Schema(columns=(("age", Number(0, 10)),), target="size", task=Regression(-10, 10))
    found = load_table(saved(tmp_path, ROWS), schema=schema)
    assert (found.classes, found.class_names) == (None, ())
    torch.testing.assert_close(
        found.train.tensors[1], torch.tensor([-1, 0.5, 1, torch.nan, 0.7]), equal_nan=True, rtol=0, atol=1e-6
    )


def test_a_schema_may_be_a_file(tmp_path):
    path = saved(tmp_path, PETS.to_toml(), "pets.toml")
    assert all(data.load(saved(tmp_path, ROWS), schema=given).schema == PETS for given in (path, str(path)))
    plan = privet.Plan(examples=100, sampling=sampling.Poisson(10), steps=3, clipping=clipping.Flat(1.0), delta=1e-5)
    assert replace(plan, schema=path) == replace(plan, schema=PETS)


def test_a_table_prints_its_public_facts_and_not_its_schema(tmp_path):
    found = str(load_table(saved(tmp_path, ROWS), schema=PETS))
    assert found == "<DataSet 'pets': 5 training examples of shape (4,), a target of 3 classes, no test data>"


@pytest.mark.parametrize("name", ["my pets.csv", "pets.tsv", "pets.parquet"])
def test_without_a_schema_a_table_is_refused_with_the_command_that_drafts_one(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).touch()
    command = f"privet schema draft '?{re.escape(name)}'? --target kind > schema.toml"
    with pytest.raises(InvalidArgumentError, match=rf"^schema is missing; .* {command}"):
        data.load(name, target="kind", classes="a,b")
    with pytest.raises(InvalidArgumentError, match=r"^schema is missing; .* --target COLUMN > schema.toml"):
        data.load(tmp_path / name)
    with pytest.raises(InvalidArgumentError, match=r"^schema is missing; .* print\(privet.tables.draft\(.*'kind'\)"):
        data.load({"kind": ["a"]}, target="kind")


@pytest.mark.parametrize("option", [{"classes": 3}, {"user_column": "who"}])
def test_what_a_schema_declares_has_no_option(tmp_path, option):
    with pytest.raises(InvalidArgumentError, match=rf"^{next(iter(option))} is .* left out .* schema of a table declares"):
        data.load(saved(tmp_path, ROWS), schema=PETS, **option)


def test_the_target_is_that_of_the_schema(tmp_path):
    path = saved(tmp_path, ROWS)
    assert data.load(path, schema=PETS, target="kind").classes == 3
    with pytest.raises(InvalidArgumentError, match=r"^target is 'age'; it must be the target of the schema, 'kind'"):
        data.load(path, schema=PETS, target="age")


def test_test_data_is_encoded_alike(tmp_path):
    test = saved(tmp_path, "kind;colour;age;size\ndog;red;10;0\n", "test.csv")
    found = load_table(saved(tmp_path, ROWS), schema=PETS, test=str(test))
    assert found.test_data == f"the file {test}, provided as public test data"
    assert [part.tolist() for part in found.test.tensors] == [[[1, 0, 1, 0]], [2]]


@pytest.mark.parametrize(("text", "message"), [
    ("age,kind,size\n1,cat,2\n", "test is .*with the columns of its schema. It has no column 'colour'"),
    ("age,kind,size,colour\n1,cat,2,red\n1,emu,2,red\n", "row 2 has the target 'emu', .* 3 classes ant, cat, dog: test is"),
    ("a,a\n", "test is .*first line names each column once"),
], ids=["a column is missing", "a target is not declared", "no header"])  # fmt: skip
def test_unfit_test_data_is_refused(tmp_path, text, message):
    with pytest.raises(InvalidArgumentError, match=f"^{message}"):
        load_table(saved(tmp_path, ROWS), schema=PETS, test=saved(tmp_path, text, "test.csv"))


def test_private_rows_are_not_test_data(tmp_path):
    path = saved(tmp_path, ROWS)
    with pytest.raises(InvalidArgumentError, match=r"^test is .* other data than the private rows"):
        load_table(path, schema=PETS, test=str(path))
    head, *rows = ROWS.splitlines()
    copies = (saved(tmp_path, "\n".join((head, *reversed(rows))) + "\n", "copy.csv"), read_frame(path))
    for copy in copies:
        with pytest.raises(InvalidArgumentError, match=r"^test is .* other data than the private rows. It holds the same rows"):
            load_table(path, schema=PETS, test=copy)


def test_the_schema_declares_users_and_a_row_without_one_is_left_out(tmp_path):
    found = load_table(saved(tmp_path, OWNED), schema=BY_USER)
    assert found.users.tolist() == ["ann", "bob", "ann"]
    assert found.train.tensors[0].ravel().tolist() == [-0.5, 0, 0.5]
    ignored = load_table(saved(tmp_path, OWNED), schema=replace(BY_USER, columns=(("x", Number(0, 4)), ("who", Ignore()))))
    assert (ignored.users, len(ignored.train)) == (None, 4)
