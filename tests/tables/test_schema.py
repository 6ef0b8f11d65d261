import json

import numpy as np
import pytest
from frames_of_users import CELLS, schemas, tables
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.errors import InvalidArgumentError
from privet.tables import Boolean, Category, Classification, Ignore, Number, Regression, Schema, Text, UserId, read_frame
from privet.tables.cells import UNDECLARED
from privet.tables.columns import FITS

HAND = """
[target]
column = "income"
task = "classification"
classes = ["<=50K", ">50K"]

[columns]
age = { kind = "number", lower = 17, upper = 90 }
sex = { kind = "boolean", true = "Male", false = "Female" }
"capital gain" = { kind = "number", lower = 0, upper = 99999, scale = "log" }
who = "user"
id = "ignore"

[columns.workclass]
kind = "category"
values = ["Private", "Gov"]
"""
WRITTEN = Schema(
    columns=(
        ("age", Number(17, 90)),
        ("sex", Boolean(true=("Male",), false=("Female",))),
        ("capital gain", Number(0, 99999, scale="log")),
        ("who", UserId()),
        ("id", Ignore()),
        ("workclass", Category(("Private", "Gov"))),
    ),
    target="income",
    task=Classification(("<=50K", ">50K")),
)


@settings(max_examples=100)
@given(tables())
def test_no_cell_raises_and_every_feature_is_bounded(drawn):
    schema, cells = drawn
    frame = read_frame(cells)
    features = schema.encode(frame)
    assert (features.shape, features.dtype) == ((frame.rows, schema.width), np.float32)
    assert np.abs(features).max() <= 1
    start = 0
    for _, column in schema.columns:
        end = start + len(column.labels())
        if isinstance(column, Text):
            assert (np.linalg.norm(features[:, start:end].astype(np.float64), axis=1) <= 1).all()
        start = end
    target = schema.encode_target(frame)
    if schema.classes:
        assert set(target.tolist()) <= {*range(len(schema.classes)), UNDECLARED}
    else:
        assert target.dtype == np.float32
        assert (np.isnan(target) | (np.abs(target) <= 1)).all()


@settings(max_examples=100)
@given(tables(least=2), st.data())
def test_a_row_is_encoded_by_its_own_cells_only(drawn, data):
    schema, cells = drawn
    changed = data.draw(st.integers(0, len(cells[schema.target]) - 1))
    others = {
        name: [data.draw(CELLS) if row != changed else cell for row, cell in enumerate(column)] for name, column in cells.items()
    }
    before, after = (read_frame(columns) for columns in (cells, others))
    for encode in (schema.encode, schema.encode_target):
        np.testing.assert_array_equal(encode(before)[changed], encode(after)[changed])
    for name, status in schema.status(before, schema.kinds).items():
        assert status[changed] == schema.status(after, [name])[name][changed]


@settings(max_examples=100)
@given(schemas())
def test_a_schema_survives_its_toml_and_its_json(schema):
    assert Schema.from_toml(schema.to_toml()) == schema
    again = Schema.from_dict(json.loads(json.dumps(schema.to_dict())))
    assert again == schema
    assert again.fingerprint == schema.fingerprint
    assert len(schema.feature_names) == schema.width


def test_a_schema_is_written_by_hand():
    assert Schema.from_toml(HAND) == WRITTEN
    assert WRITTEN.user_column == "who"
    assert WRITTEN.feature_names == ("age", "sex", "capital gain", "workclass=Private", "workclass=Gov")


def test_whole_and_fractional_spellings_of_a_number_are_one_schema():
    one, other = (Schema((("a", Number(lower, 9, missing=mid)),), "y", Regression(0, 1)) for lower, mid in ((0, 4), (0.0, 4.0)))
    assert one.fingerprint == other.fingerprint == Schema.from_toml(one.to_toml()).fingerprint


def test_the_fingerprint_is_that_of_the_meaning_not_of_the_layout():
    laid_out = HAND.replace("lower = 17,", "lower = 17.0, ").replace("[columns]", "# a remark\n[columns]")
    assert Schema.from_toml(laid_out).fingerprint == WRITTEN.fingerprint
    assert Schema.from_toml(HAND.replace("17", "18")).fingerprint != WRITTEN.fingerprint


@pytest.mark.parametrize(("before", "after", "message"), [
    ("lower = 17", 'lower = "?"', r"^columns.age.lower is '\?'; it must be filled in"),
    ('who = "user"', 'who = "?"', r"^columns.who.kind is '\?'; it must be filled in"),
    ('["Private", "Gov"]', '["?"]', r"^columns.workclass.values is \['\?'\]; it must be filled in"),
    ('"classification"', '"?"', r"^target.task is '\?'; it must be filled in"),
    ("lower = 17, ", "", r"^columns.age.lower is missing; it must be given"),
    ("lower = 17", "low = 17", r"^columns.age.low is 17; it must be left out: number has lower, upper, scale"),
    ("upper = 90", "upper = 17", r"^columns.age.upper is 17.0; it must be above lower = 17"),
    ("upper = 90", "upper = inf", r"^columns.age.upper is inf; it must be finite"),
    ("upper = 90", 'upper = "90"', r"^columns.age.upper is '90'; it must be a real number"),
    ('scale = "log"', 'scale = "sqrt"', r"^columns.capital gain.scale is 'sqrt'; it must be one of 'linear', 'log'"),
    ('who = "user"', 'who = "person"', r"^columns.who.kind is 'person'; it must be one of 'number', 'date', 'category'"),
    ('who = "user"', "who = 3", r"^columns.who is 3; it must be a table"),
    ('id = "ignore"', 'id = "user"', r"^columns is \['who', 'id'\]; it must be a single column of users"),
    ('["Private", "Gov"]', '["Private", "Private"]', r"^columns.workclass.values is 'Private'; it must be .* distinct"),
    ('["Private", "Gov"]', '"Private"', r"^columns.workclass.values is 'Private'; it must be a list of values"),
    ('["<=50K", ">50K"]', '["<=50K"]', r"^target.classes is 'a list of 1'; it must be a list of 2 to 1,000 values"),
    ('["<=50K", ">50K"]', '["1", "1.0"]', r"^target.classes is \('1', '1.0'\); it must be distinct as numbers"),
    ('false = "Female"', 'false = "male"', r"^columns.sex.false is \['male'\]; it must be different"),
    ('column = "income"', 'column = "age"', r"^columns.age is 'the target'; it must be a column other than the target"),
    ("[target]", "[goal]", r"^goal is 'a section'; it must be left out"),
], ids=lambda value: None)  # fmt: skip
def test_a_wrong_schema_is_refused_by_column_key_and_fix(tmp_path, before, after, message):
    assert before in HAND
    text = HAND.replace(before, after)
    with pytest.raises(InvalidArgumentError, match=message):
        Schema.from_toml(text)
    (tmp_path / "own.toml").write_text(text)
    with pytest.raises(InvalidArgumentError, match=f"^.*own.toml: {message.removeprefix('^')}"):
        Schema.read(tmp_path / "own.toml")


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"[columns"])
def test_a_file_that_cannot_be_read_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "own.toml").write_bytes(content)
    with pytest.raises(
        InvalidArgumentError, match=r"^(No such file|It is not UTF-8|It does not parse).*: .*own.toml.*; it must be"
    ):
        Schema.read(tmp_path / "own.toml")


@settings(max_examples=50)
@given(tables())
def test_a_table_without_a_column_is_refused_by_the_name_in_the_schema(drawn):
    schema, cells = drawn
    for name in schema.kinds:
        frame = read_frame({other: column for other, column in cells.items() if other != name} | {name + "!": cells[name]})
        with pytest.raises(InvalidArgumentError, match="a table with the columns of its schema") as caught:
            schema.status(frame, schema.kinds)
        assert repr(name) in str(caught.value)


def test_text_that_stands_for_a_missing_cell_is_none_unless_it_is_a_value():
    columns = (("a", Category(("?", "x"), missing="indicator")), ("b", Category(("x",), missing="indicator")))
    schema = Schema(columns, "y", Regression(0, 1), missing_cells=("?", "-"))
    frame = read_frame({"a": ["?", "-"], "b": ["?", "-"], "y": [0, 1]})
    assert schema.encode(frame).tolist() == [[1, 0, 0, 0, 1], [0, 0, 1, 0, 1]]


def test_a_missing_code_is_one_in_every_spelling_unless_one_of_them_is_a_value():
    columns = (("a", Number(0, 10, missing="indicator")), ("b", Category(("0", "1"), missing="indicator")))
    schema = Schema(columns, "y", Regression(0, 1), missing_cells=("-9", "1.0"))
    cells = [-9, 1, 0]
    for kind in (int, float, str, np.int64, np.float32):
        column = [kind(cell) for cell in cells]
        for stored in (column, np.array(column)):
            frame = read_frame({"a": stored, "b": stored, "y": stored})
            assert schema.encode(frame).tolist() == [[0, 1, 0, 0, 1], [0, 1, 0, 1, 0], [-1, 0, 1, 0, 0]]
            assert np.isnan(schema.encode_target(frame)).tolist() == [True, True, False]


def test_spellings_of_a_number_are_one_user():
    schema = Schema((("a", Number(0, 1)), ("who", UserId())), "y", Regression(0, 1))
    users = [7, 7.0, "7", "007", "1_0", "1e5", "a7", None]
    frame = read_frame({"a": [0] * 8, "who": users, "y": [0] * 8})
    assert schema.users(frame).tolist() == ["7", "7", "7", "7", "1_0", "1e5", "a7", ""]


def test_a_schema_without_features_is_refused():
    with pytest.raises(InvalidArgumentError, match="at least one feature"):
        Schema((("id", Ignore()),), "y", Regression(0, 1))


@settings(max_examples=50)
@given(tables())
def test_what_fits_is_encoded_as_itself(drawn):
    """A cell that fits is no one's default: decoding gives it back."""
    schema, cells = drawn
    frame = read_frame(cells)
    fits = schema.status(frame, [schema.target])[schema.target] == FITS
    target = schema.encode_target(frame)
    if schema.classes:
        assert ((target >= 0) == fits).all()
        scores = np.eye(len(schema.classes))[target[fits].astype(int)]
        again = schema.task.encode(read_frame({"y": [*schema.decode(scores), "x"]}).columns["y"])[:-1]
        assert (again == target[fits]).all()
    else:
        assert not np.isnan(target[fits]).any()
        span = schema.task.upper - schema.task.lower
        values = np.array([float(cell) for cell, fit in zip(cells[schema.target], fits, strict=True) if fit])
        if schema.task.scale == "linear":
            np.testing.assert_allclose(schema.decode(target[fits]), values, atol=span * 1e-6)


@pytest.mark.parametrize("columns", [5, "age", ("age",), (("age",),), (("age", Ignore(), 3),), {"age": Ignore()}])
def test_columns_that_are_no_pairs_are_refused_by_name(columns):
    with pytest.raises(InvalidArgumentError, match=r"^columns is .*; it must be pairs of a name and a kind"):
        Schema(columns=columns, target="y", task=Classification(("no", "yes")))
