import re

import numpy as np
import pytest
from frames_of_users import CELLS, NAMES
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.errors import InvalidArgumentError
from privet.tables import (
    Boolean,
    Category,
    Classification,
    Date,
    Identifier,
    Ignore,
    Number,
    Regression,
    Schema,
    Text,
    UserId,
    count_misfits,
    draft,
    read_frame,
    read_types,
)  # fmt: skip

ROWS = 200
NOISE = np.random.default_rng(0)
PUBLIC = {
    "age": NOISE.integers(18, 91, ROWS).tolist(),
    "capital gain": np.exp(NOISE.normal(6, 2, ROWS)).round().tolist(),
    "sex": NOISE.choice(["Male", "Female"], ROWS).tolist(),
    "smokes": NOISE.choice(["no", "yes"], ROWS).tolist(),
    "stars": NOISE.integers(1, 6, ROWS).tolist(),
    "job": NOISE.choice(["Private", "Gov", "?"], ROWS).tolist(),
    "rowid": list(range(ROWS)),
    "code": [f"x{row}" for row in range(ROWS)],
    "patient": NOISE.integers(0, 50, ROWS).tolist(),
    "review": [f"it was {row} times as good as that" for row in range(ROWS)],
    "empty": [None] * ROWS,
    "income": NOISE.choice(["<=50K", ">50K"], ROWS).tolist(),
}


def drafted(cells, target):
    return Schema.from_toml(draft(read_types(cells), target, read_frame(cells)))


def test_a_draft_from_a_public_sample_needs_no_hand():
    schema = drafted(PUBLIC, "income")
    kinds = dict(schema.columns)
    assert schema.task == Classification(("<=50K", ">50K"))
    assert kinds["age"] == Number(10, 98)
    assert (kinds["capital gain"].lower, kinds["capital gain"].scale) == (0, "log")
    assert kinds["sex"] == Boolean(true=("Male",), false=("Female",))
    assert kinds["smokes"] == Boolean()
    assert kinds["stars"] == Category(("1", "2", "3", "4", "5"))
    assert kinds["job"] == Boolean(true=("Private",), false=("Gov",))
    assert kinds["rowid"] == kinds["code"] == Identifier()
    assert kinds["empty"] == Ignore()
    assert kinds["patient"] == UserId()
    assert kinds["review"] == Text(1024)
    found = count_misfits(read_frame(PUBLIC), schema)
    assert sum(unfit for _, unfit in found.columns.values()) == 0


@pytest.mark.parametrize(("values", "task"), [
    ([1.5, 2.25, 10] * 10, Regression(0, 11)),
    (list(range(100)), Regression(0, 110)),
    (["7", "9", "10"] * 10, Classification(("7", "9", "10"))),
    ([True, False] * 10, Classification(("False", "True"))),
], ids=["fractions", "many whole numbers", "few whole numbers", "booleans"])  # fmt: skip
def test_the_task_follows_the_public_target(values, task):
    assert drafted({"x": [0.5 + row for row in range(len(values))], "y": values}, "y").task == task


@settings(max_examples=60)
@given(st.lists(NAMES, min_size=2, max_size=4, unique=True), st.data())
def test_a_draft_from_any_public_sample_can_be_read_and_fits_its_numbers(names, data):
    number = data.draw(st.integers(1, 30))
    cells = {name: data.draw(st.lists(CELLS, min_size=number, max_size=number)) for name in names}
    text = draft(read_types(cells), names[0], read_frame(cells))
    refusal = None
    try:
        schema = Schema.from_toml(text)
    except InvalidArgumentError as error:
        refusal = str(error)
    if refusal is not None:  # a sample can lack classes or features, which is said; whatever a draft says, it is TOML
        assert re.search("at least one feature|filled in", refusal), text
        return
    counts = count_misfits(read_frame(cells), schema).columns
    kinds = dict(schema.columns)
    assert not [name for name, (_, unfit) in counts.items() if unfit and isinstance(kinds.get(name), Number)]


@given(st.lists(NAMES, min_size=2, max_size=4, unique=True), st.data())
def test_a_draft_from_a_private_table_depends_on_its_names_only(names, data):
    one, other = ({name: data.draw(st.lists(CELLS, min_size=1, max_size=3)) for name in names} for _ in range(2))
    rows = [{name: column[:1] for name, column in cells.items()} for cells in (one, other)]
    assert draft(read_types(rows[0]), names[-1]) == draft(read_types(rows[1]), names[-1])


def test_a_draft_from_names_is_refused_until_it_is_filled_in():
    text = draft(dict.fromkeys(["age", "capital gain", "income"]), "income")
    assert '"capital gain" = "?"' in text
    for before, after, culprit in (
        ('task = "?"', 'task = "classification"\nclasses = ["a", "b"]', "target.task"),
        ('age = "?"', 'age = { kind = "number", lower = 0, upper = 120 }', "columns.age.kind"),
        ('"capital gain" = "?"', '"capital gain" = "ignore"', "columns.capital gain.kind"),
    ):
        with pytest.raises(InvalidArgumentError, match=rf"^{culprit} is '\?'; it must be filled in"):
            Schema.from_toml(text)
        assert before in text
        text = text.replace(before, after)
    assert Schema.from_toml(text).width == 1


def test_declared_types_narrow_a_draft_down():
    types = {"n": "Int64", "f": "Float32", "b": "Boolean", "s": "String", "d": "Datetime(time_unit='us')", "c": "Categorical"}
    text = draft(types, "f")
    assert 'task = "regression"\nlower = "?"' in text
    assert 'n = { kind = "number", lower = "?", upper = "?" }' in text
    assert 'b = "boolean"\ns = "?"' in text
    assert 'd = { kind = "date", lower = "?", upper = "?" }' in text
    assert 'c = { kind = "category", values = ["?"] }' in text
    assert 'classes = ["False", "True"]' in draft(types, "b")


@pytest.mark.parametrize(("cells", "column"), [
    (["1970-03-01", "1989-05-02 10:00:00", ""], Date("1968-01-01", "1991-12-31")),
    (["31.12.1999", "01.01.2000"], Date("1999-01-01", "2000-12-31", "%d.%m.%Y")),
    (["12/31/1999", "1/1/2000"], Date("1999-01-01", "2000-12-31", "%m/%d/%Y")),
    (["0001-01-01", "9999-12-31"], Date("1000-01-01", "9999-12-31")),
], ids=str)  # fmt: skip
def test_dates_of_a_public_sample_get_their_format_and_bounds_of_whole_years(cells, column):
    assert dict(drafted({"born": cells, "y": [0, 1, 0][: len(cells)]}, "y").columns)["born"] == column


def test_a_format_that_fits_as_well_is_named():
    sample = read_frame({"born": ["01/02/2000", "03/04/2001"], "y": [0, 1]})
    assert 'format = "%d/%m/%Y" }  # or format = "%m/%d/%Y"' in draft({"born": None, "y": None}, "y", sample)


def test_columns_that_the_sample_lacks_stay_open():
    text = draft({"age": None, "new": None, "y": None}, "y", read_frame({"age": [1.5, 2.5, 7.5], "y": ["a", "b", "a"]}))
    assert 'new = "?"' in text
    assert 'age = { kind = "number"' in text


@pytest.mark.parametrize("types", [{"a": None, "b": None}, {"y": None}])
def test_a_table_without_target_or_features_is_refused(types):
    with pytest.raises(InvalidArgumentError, match=r"^(target|data) is"):
        draft(types, "y")


def test_misfits_are_counted_by_column():
    schema = Schema((("age", Number(0, 100)), ("job", Category(("a",)))), "y", Regression(0, 1))
    frame = read_frame(
        {"age": ["5", "x", "", "900"], "job": ["a", "b", None, "?"], "y": ["0.5", "", "7", "no"], "id": [1, 2, 3, 4]}
    )
    found = count_misfits(frame, schema)
    assert found.columns == {"age": (1, 2), "job": (2, 1), "y": (1, 2)}
    assert found.examples == {"age": {"x": 1, "900": 1}, "job": {"b": 1}, "y": {"7": 1, "no": 1}}
    assert (found.rows, found.rows_without_target, found.unused) == (4, 2, ("id",))
