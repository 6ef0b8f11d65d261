from dataclasses import replace

import numpy as np
import pytest
import tiny

from privet import data, tables
from privet.data import loading
from privet.errors import InvalidArgumentError


def test_a_name_of_the_catalogue_takes_a_folder(tmp_path, monkeypatch):
    monkeypatch.setitem(loading.published_sets(), "mnist", replace(tiny.image_set(tiny.unreachable), name="mnist"))
    folder = tiny.write_idx(tmp_path / "mine", packed=True)
    assert str(folder) in data.load("mnist", folder=folder).provenance


@pytest.mark.parametrize("ending", [".csv", ".CSV", ".tsv"])
def test_a_path_may_be_text_or_a_path(tmp_path, ending):
    path = tmp_path / f"rows{ending}"
    path.write_text("a,y\n1,0\n2,1\n3,0\n".replace(",", "\t" if ending == ".tsv" else ","))
    schema = tables.Schema(columns=(("a", tables.Number(0, 9)),), target="y", task=tables.Classification(("0", "1")))
    assert data.load(str(path), schema=schema).classes == data.load(path, schema=schema).classes == 2


def test_priors_that_an_own_loss_would_ignore_are_refused(tmp_path):
    (tmp_path / "rows.csv").write_text("a,y\n1,0\n2,1\n")
    task = tables.Classification(("0", "1"), priors=(0.9, 0.1))
    schema = tables.Schema(columns=(("a", tables.Number(0, 9)),), target="y", task=task)
    with pytest.raises(InvalidArgumentError, match=r"^schema is 'one with priors = \[0.9, 0.1\]'.* Remove this line"):
        data.load(tmp_path / "rows.csv", schema=schema)
    assert loading.load_for_run(tmp_path / "rows.csv", schema=schema).schema.priors == (0.9, 0.1)


@pytest.mark.parametrize("source", ["cifar", "rows.xlsx", "mnist.gz"])
def test_an_unknown_source_is_refused_with_the_known_ones(source):
    with pytest.raises(InvalidArgumentError, match=r"source is .*mnist, fashion-mnist, digits, .*\.npz, \.csv, .*\.parquet"):
        data.load(source)


@pytest.mark.parametrize(("source", "options", "culprit"), [
    ("mnist", {"target": "y"}, "target"),
    ("digits", {"classes": 10}, "classes"),
    ("digits", {"test": "mine.csv"}, "test"),
    ("arrays.npz", {"classes": 2, "schema": "schema.toml"}, "schema"),
    ("arrays.npz", {"classes": 2, "folder": "somewhere"}, "folder"),
    ("mnist", {"user_column": "who"}, "user_column"),
    ("rows.csv", {"schema": "schema.toml", "folder": "somewhere"}, "folder"),
])  # fmt: skip
def test_an_option_that_does_not_apply_is_refused(source, options, culprit):
    with pytest.raises(InvalidArgumentError, match=f"^{culprit} is .* it must be left out for '{source}'"):
        data.load(source, **options)


@pytest.mark.parametrize(("source", "options"), [("absent.npz", {"classes": 2}), ("absent.npz", {}), ("absent.csv", {})])
def test_a_file_that_is_missing_is_named_before_anything_is_asked_for_it(source, options):
    with pytest.raises(
        InvalidArgumentError, match=rf"^there is no such file: source is '{source}'; it must be the path of a file\.$"
    ):
        data.load(source, **options)


def test_test_data_of_arrays_are_a_file():
    with pytest.raises(InvalidArgumentError, match=r"^test is 'dict'; it must be the path of a file"):
        data.load("arrays.npz", classes=2, test={"x_test": []})


def test_an_npz_file_is_loaded_by_its_ending(tmp_path):
    np.savez(tmp_path / "arrays.npz", x_train=np.zeros((3, 5)), y_train=np.array([0, 1, 1]))
    assert data.load(tmp_path / "arrays.npz", classes=2).input_shape == (5,)
