import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from model_folders import CLASSES, GUARANTEE, make

import privet
from privet.artifact import MisfitError
from privet.artifact.predictor import list_columns
from privet.data.preprocessing import Unchanged
from privet.errors import InvalidArgumentError, PrivetError
from privet.tables import Identifier, UserId, read_frame

ROWS = {
    "note": ["likes tea", None, "tea"], "age": [25, 40, None], "work": ["state", "?", "private"], "member": ["yes", "no", "1"],
}  # fmt: skip


def test_a_class_is_the_most_probable_one_by_name(table_model):
    model = privet.load(table_model)
    found, probabilities = model.predict(ROWS), model.predict_proba(ROWS)
    assert model.classes == ("<=50K", ">50K")
    assert probabilities.shape == (3, 2)
    assert np.allclose(probabilities.sum(axis=1), 1, atol=1e-12)
    assert found.tolist() == [model.classes[place] for place in probabilities.argmax(axis=1)]


def test_probabilities_are_the_softmax_of_the_network_on_the_encoded_table(table_model):
    model = privet.load(table_model)
    inputs = CLASSES.encode(read_frame(ROWS))
    assert np.allclose(model.predict_proba(ROWS), model.module(torch.from_numpy(inputs)).softmax(1).detach(), atol=1e-6)
    assert np.array_equal(model.predict_proba(ROWS), model.predict_proba(inputs, encoded=True))


def test_a_number_is_in_the_units_of_the_target_and_within_its_bounds(number_model):
    model = privet.load(number_model)
    with torch.no_grad():
        model.module.output.bias.fill_(0.5)
        model.module.output.weight.zero_()
    assert model.predict(ROWS).tolist() == pytest.approx([400.0] * 3)
    with torch.no_grad():
        model.module.output.bias.fill_(7.0)
    assert model.predict(ROWS).tolist() == [500.0] * 3
    assert model.classes is None
    with pytest.raises(PrivetError, match="predicts the number 'price'"):
        model.predict_proba(ROWS)


def test_schema_and_guarantee_come_along(table_model):
    model = privet.load(table_model)
    assert (model.schema, model.guarantee) == (CLASSES, GUARANTEE)
    assert "(3.0, 1e-05)-differential privacy for one example" in str(model.guarantee)
    assert not model.module.training


def test_rows_that_do_not_fit_are_counted_by_column_after_the_fix_and_named_on_request(table_model):
    rows = ROWS | {"age": [25, 140, "old"], "work": ["circus", "state", "circus"]}
    with pytest.raises(MisfitError) as refused:
        privet.load(table_model).predict(rows)
    found, message = refused.value.found, str(refused.value)
    assert (found.number, found.rows) == (3, 2)
    assert found.first == (
        "row 1, column 'work': 'circus' is not one of the 2 values private, state",
        "row 3, column 'age': 'old' is not a number from 17 to 90",
        "row 3, column 'work': 'circus' is not one of the 2 values private, state",
    )
    assert message.startswith("Correct the rows, or encode them as in training")
    assert "column 'work': 2 of 3 cells, such as in row 1: 'circus' is not one of the 2 values" in message
    assert all(place in str(MisfitError(found, "", verbose=True)) for place in found.first)


def test_a_number_beyond_its_bounds_is_encoded_as_in_training_and_counted(table_model):
    model = privet.load(table_model)
    found = model.answer(ROWS | {"age": [25, 140, -math.inf]})
    assert np.array_equal(found.probabilities, model.predict_proba(ROWS | {"age": [25, 90, 17]}))
    assert (found.misfits.number, found.misfits.columns[0].partition(",")[0]) == (2, "column 'age': 2 of 3 cells")


def test_identifiers_and_users_of_the_rows_stand_beside_their_predictions(table_model):
    model = privet.load(table_model)
    columns = {**dict(model.schema.columns), "id": Identifier(), "who": UserId()}
    schema = replace(model.schema, columns=tuple(columns.items()))
    model = replace(model, description=replace(model.description, schema=schema))
    found = model.answer(ROWS | {"id": ["007", None, "x"]})
    assert found.identifiers == {"id": ["007", "", "x"]}
    assert [*list_columns(found, model.description)][:3] == ["row", "id", "predicted income"]
    assert model.answer(ROWS | {"who": np.array([3, 4, 5])}).identifiers == {"who": [3, 4, 5]}


def test_the_first_twenty_places_are_named_and_all_are_counted(table_model):
    rows = {name: [cells[0]] * 500 for name, cells in ROWS.items()} | {"age": ["old"] * 500, "work": ["circus"] * 500}
    with pytest.raises(MisfitError, match="500 rows do not fit") as refused:
        privet.load(table_model).predict(rows)
    assert "and 980 more" in str(MisfitError(refused.value.found, "", verbose=True))
    assert len(refused.value.found.first) == 20
    assert refused.value.found.number == 1000


def test_misfits_become_what_the_schema_says_if_that_is_asked_for(table_model):
    model = privet.load(table_model)
    asked = model.answer(ROWS | {"age": [25, 1000, None]}, misfits="as-schema")
    assert (asked.misfits.number, asked.misfits.rows) == (1, 1)
    assert np.array_equal(asked.probabilities, model.predict_proba(ROWS | {"age": [25, 90, None]}))
    with pytest.raises(InvalidArgumentError, match="misfits is 'guess'"):
        model.predict(ROWS, misfits="guess")


def test_a_row_without_any_cell_is_refused(table_model, tmp_path):
    (tmp_path / "rows.csv").write_text("age,work,member,note\n25,state,yes,tea\n30,state,yes\n", encoding="utf-8")
    with pytest.raises(MisfitError, match="1 row does not fit the model: 1 of 2 rows, such as row 2: it has no values"):
        privet.load(table_model).predict(tmp_path / "rows.csv")


def test_other_columns_are_not_read_and_missing_ones_are_refused(table_model):
    model = privet.load(table_model)
    more = ROWS | {"income": ["nonsense"] * 3, "id": [None] * 3, "unknown": ["x"] * 3}
    assert np.array_equal(model.predict_proba(more), model.predict_proba(ROWS))
    with pytest.raises(InvalidArgumentError, match="no column 'age'"):
        model.predict({name: cells for name, cells in ROWS.items() if name != "age"})


def test_the_order_and_number_of_rows_do_not_matter(image_model):
    model = privet.load(image_model)
    images = np.random.default_rng(0).integers(0, 17, (1500, 16, 16), dtype=np.uint8)
    whole = model.predict_proba(images)
    assert np.allclose(whole[1400:1410], model.predict_proba(images[1400:1410]), atol=1e-6)
    assert np.allclose(whole[::-1], model.predict_proba(images[::-1]), atol=1e-6)


def test_raw_pixels_are_scaled_as_in_training(image_model):
    model = privet.load(image_model)
    images = np.random.default_rng(0).integers(0, 17, (5, 16, 16), dtype=np.uint8)
    scaled = torch.from_numpy(images[:, np.newaxis] / np.float32(16))
    assert np.array_equal(model.predict_proba(images), model.predict_proba(scaled, encoded=True))
    assert np.array_equal(model.predict_proba(images), model.predict_proba(images[:, np.newaxis].astype(np.int64)))


@pytest.mark.parametrize(("rows", "message"), [
    (np.zeros((2, 16, 16)), "array of float64.*whole number from 0 to 16.*encoded=True"),
    (np.zeros((2, 15, 16), dtype=np.uint8), r"shape \(2, 15, 16\).*\(N, 1, 16, 16\)"),
    (np.zeros((16,), dtype=np.uint8), "first dimension"),
    (np.zeros((0, 16, 16), dtype=np.uint8), r"shape \(0, 16, 16\)"),
    (np.full((2, 16, 16), 17, dtype=np.uint8), r"2 rows do not fit the model: row 1, entry \(0, 0\): 17 is not a whole"),
    (np.array(["a", "b"]), "array of <U1"),
    ({"age": [1]}, "rows is 'dict'"),
    ("rows.csv", "ends in .npz or .npy"),
    ("missing.npz", "no such file: rows is 'missing.npz'"),
], ids=str)  # fmt: skip
def test_other_arrays_are_refused(image_model, rows, message):
    with pytest.raises((InvalidArgumentError, MisfitError), match=message):
        privet.load(image_model).predict(rows)


def test_encoded_rows_are_finite_and_have_the_public_shape(image_model):
    model = privet.load(image_model)
    with pytest.raises(MisfitError, match="nan is not a finite number"):
        model.predict(torch.full((1, 1, 16, 16), torch.nan), encoded=True)
    with pytest.raises(InvalidArgumentError, match="shape"):
        model.predict(torch.zeros(1, 3, 16, 16), encoded=True)


def test_encoded_inputs_keep_their_shape(tmp_path):
    """Channels that look like the last dimension of an image are not moved."""
    model = privet.load(make(tmp_path / "model", "mlp", (4, 5, 3), CLASSES.task, None, Unchanged()))
    assert model.predict_proba(np.zeros((2, 4, 5, 3)), encoded=True).shape == (2, 2)


@pytest.mark.parametrize("names", [["x"], ["anything"], ["x", "y"], ["x_test", "x_train"]], ids=str)
def test_arrays_come_from_files(image_model, tmp_path, names):
    images = np.random.default_rng(0).integers(0, 17, (3, 16, 16), dtype=np.uint8)
    np.savez(tmp_path / "rows.npz", **dict.fromkeys(names, images))
    np.save(tmp_path / "rows.npy", images)
    model = privet.load(image_model)
    expected = model.predict_proba(images)
    assert np.array_equal(model.predict_proba(tmp_path / "rows.npz"), expected)
    assert np.array_equal(model.predict_proba(str(tmp_path / "rows.npy")), expected)


def test_a_file_with_several_arrays_says_which_is_meant(image_model, tmp_path):
    np.savez(tmp_path / "rows.npz", a=np.zeros(3), b=np.zeros(3))
    with pytest.raises(InvalidArgumentError, match="an array named x or x_test"):
        privet.load(image_model).predict(tmp_path / "rows.npz")


def test_a_model_that_diverged_says_so(table_model):
    model = privet.load(table_model)
    with torch.no_grad():
        model.module.output.bias.fill_(torch.nan)
    with pytest.raises(PrivetError, match="diverged"):
        model.predict(ROWS)
