import gzip
import io
import sys

import numpy as np
import pyarrow
import pyarrow.feather
import pyarrow.parquet
import pytest
from frames_of_users import NAMES, tables
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from privet.errors import InvalidArgumentError
from privet.tables import (
    Boolean,
    Category,
    Classification,
    Ignore,
    Number,
    Regression,
    Schema,
    Text,
    UserId,
    frames,
    read_frame,
    read_types,
)
from privet.tables.cells import Words, to_cells
from privet.tables.frames import Frame

SCHEMA = Schema(
    columns=(("age", Number(0, 100, missing="indicator")), ("colour", Category(("red", "7"))), ("note", Text(16))),
    target="sick",
    task=Classification(("False", "True")),
)
ROWS = {
    "age": [25.0, None, 900.0, 50.0], "colour": ["red", "7", None, "blue"], "note": ["a b", "", None, "b"],
    "sick": [True, False, None, True],
}  # fmt: skip


def as_text(delimiter=",", rows=ROWS):
    lines = [delimiter.join(rows)]
    lines += [delimiter.join("" if cell is None else str(cell) for cell in row) for row in zip(*rows.values(), strict=True)]
    return "\n".join(lines) + "\n"


def encoded(frame):
    return SCHEMA.encode(frame).tolist(), SCHEMA.encode_target(frame).tolist()


WRITERS = {
    "rows.csv": lambda path: path.write_text(as_text()),
    "semicolon.csv": lambda path: path.write_text(as_text(";")),
    "byte order mark.csv": lambda path: path.write_text("\ufeff" + as_text("|")),
    "rows.csv.gz": lambda path: path.write_bytes(gzip.compress(as_text().encode())),
    "rows.tsv": lambda path: path.write_text(as_text("\t")),
    "ROWS.TSV.GZ": lambda path: path.write_bytes(gzip.compress(as_text("\t").encode())),
    "rows.parquet": lambda path: pyarrow.parquet.write_table(pyarrow.table(ROWS), path),
    "rows.arrow": lambda path: pyarrow.feather.write_feather(pyarrow.table(ROWS), path),
    "rows.feather": lambda path: pyarrow.feather.write_feather(pyarrow.table(ROWS), path),
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_file_gives_the_same_rows(tmp_path, name):
    WRITERS[name](tmp_path / name)
    frame = read_frame(tmp_path / name)
    assert (frame.rows, frame.source) == (4, str(tmp_path / name))
    assert encoded(frame) == encoded(read_frame(ROWS))
    assert [*read_types(tmp_path / name)] == [*ROWS]


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_every_data_frame_gives_the_same_rows(library):
    module = pytest.importorskip(library)
    frame = module.table(ROWS) if library == "pyarrow" else module.DataFrame(ROWS)
    found = read_frame(frame)
    assert encoded(found) == encoded(read_frame(ROWS))
    assert found.types["age"] == "Float64"


KINDS = {
    "number": Number(0, 10, missing="indicator"), "category": Category(("1", "2"), missing="indicator", unknown="indicator"),
    "boolean": Boolean(("2",), ("1",), "indicator"), "text": Text(64), "user": UserId(),
}  # fmt: skip
TASKS = {"classes": Classification(("1", "2")), "range": Regression(0, 10)}
# Most libraries have no columns of numbers and texts: users turn all of them into text.
UNMIXED = {
    "parquet": lambda cells, path: _written(pyarrow.table({"c": _unmixed(cells)}), path / "t.parquet"),
    "pyarrow": lambda cells, _: pyarrow.table({"c": _unmixed(cells)}),
    "polars": lambda cells, _: pytest.importorskip("polars").DataFrame({"c": _unmixed(cells)}, strict=False),
    "parquet by pandas": lambda cells, path: _written(_pandas(_unmixed(cells)), path / "t.parquet"),
    "array": lambda cells, _: {"c": np.array([np.nan if cell is None else cell for cell in cells])},
    "pandas": lambda cells, _: _pandas(cells),
    "list": lambda cells, _: {"c": cells},
    "file by pandas": lambda cells, path: _written(_pandas(cells), path / "t.csv"),
    "file read by pandas": lambda cells, path: pytest.importorskip("pandas").read_csv(_written(_pandas(cells), path / "t.csv")),
}


def _pandas(cells):
    return pytest.importorskip("pandas").DataFrame({"c": cells})


def _unmixed(cells):
    return [None if cell is None else str(cell) for cell in cells] if any(isinstance(cell, str) for cell in cells) else cells


def _written(table, path):
    if hasattr(table, "to_csv"):
        table.to_csv(path, index=False) if path.suffix == ".csv" else table.to_parquet(path)
    else:
        pyarrow.parquet.write_table(table, path)
    return str(path)


def all_encodings(source, rows):
    frame = read_frame(source)
    columns = {**frame.columns, "y": frame.columns["c"], "x": frame.columns["c"]}
    frame = Frame(columns, frame.rows)
    found = []
    for kind in KINDS.values():
        schema = Schema((("c", kind), ("x", Number(0, 1))), "y", Regression(0, 1), missing_cells=("", "3", "1.5"))
        found += [schema.encode(frame)[:rows].tolist(), schema.status(frame, ["c"])["c"][:rows].tolist()]
        found += [] if schema.user_column is None else [schema.users(frame)[:rows].tolist()]
    for task in TASKS.values():
        schema = Schema((("x", Number(0, 1)),), "c", task, missing_cells=("", "3", "1.5"))
        found += [repr(schema.encode_target(frame)[:rows].tolist()), schema.status(frame, ["c"])["c"][:rows].tolist()]
    return found


COLUMNS = [[1, 2, 3, 2, 40, 0], [1.0, 2.0, 3.0, 2.5, 1.5, 1e-7], [2, 2**53 + 2, -3, 1, 5, 1]]
ODD = [None, "x", 2**63, 1e30, 0.5]


@pytest.mark.parametrize(
    ("reader", "one", "cells"),
    [(reader, one, COLUMNS[(r + o + c) % 3]) for r, reader in enumerate(UNMIXED) for o, one in enumerate(ODD) for c in (0, 1)],
    ids=str,
)
def test_one_cell_does_not_change_how_others_of_its_column_are_encoded(tmp_path, reader, one, cells):
    read = UNMIXED[reader]
    try:
        after = all_encodings(read([*cells, one], tmp_path), len(cells))
    except (pyarrow.ArrowException, OverflowError):
        pytest.skip("no such column")
    assert all_encodings(read(cells, tmp_path), len(cells)) == after


def _latin1(cells):
    encoded = pyarrow.array(cells, pyarrow.binary())
    return pyarrow.Array.from_buffers(pyarrow.string(), len(encoded), encoded.buffers())


# Cells that have no object in Python.
BEYOND = {
    "latin-1": (_latin1, [b"fine"] * 5, b"J\xf6rg"),
    "seconds": (lambda cells: pyarrow.array(cells, pyarrow.timestamp("s")), [0, 1, None, 253402300799, 2], 253402300800),
    "zone": (lambda cells: pyarrow.array(cells, pyarrow.timestamp("s", "Asia/Tokyo")), [0, 1, None, 3, 2], 253402300799),
    "milliseconds": (lambda cells: pyarrow.array(cells, pyarrow.timestamp("ms")), [0, 1, None, 3, 2], -(10**17)),
    "microseconds": (lambda cells: pyarrow.array(cells, pyarrow.timestamp("us")), [0, 1, None, 3, 2], 2**62),
    "durations": (lambda cells: pyarrow.array(cells, pyarrow.duration("s")), [0, 1, None, 3, 2], 10**15),
    "days": (lambda cells: pyarrow.array(cells, pyarrow.date32()), [0, 1, None, 2932896, -719162], 10**8),
    "date64": (lambda cells: pyarrow.array(cells, pyarrow.date64()), [0, 86400000, None, 0, 0], 86400000 * 10**8),
}


def _by_pyarrow(column, path):
    pyarrow.parquet.write_table(pyarrow.table({"c": column}), path)
    return path


def _by_series(column, _):
    return {"c": column}


def _by_series_of_polars(column, _):
    return {"c": pytest.importorskip("polars").Series(column)}


def _by_polars(column, _):
    return pytest.importorskip("polars").DataFrame({"c": column})


@pytest.mark.parametrize("read", [_by_pyarrow, _by_polars, _by_series, _by_series_of_polars])
@pytest.mark.parametrize("kind", BEYOND)
def test_a_cell_that_has_no_object_is_missing_and_the_others_stay(tmp_path, read, kind):
    if kind == "latin-1" and read in (_by_polars, _by_series_of_polars):
        pytest.skip("polars refuses to make such a table")
    make, cells, beyond = BEYOND[kind]

    def texts(column):
        words = read_frame(read(make(column), tmp_path / "t.parquet")).columns["c"]
        return [words.distinct[place] for place in words.places]

    plain = texts(cells)
    assert plain.count(None) == cells.count(None)
    for place in (0, 2, 5):
        try:
            found = texts([*cells[:place], beyond, *cells[place:]])
        except Exception as error:
            pytest.fail(f"raised {type(error).__name__}")
        assert found[place] is None or kind == "durations"  # polars stores them in milliseconds, of which Python has enough
        assert [*found[:place], *found[place + 1 :]] == plain


def test_columns_that_the_schema_does_not_use_are_not_converted(monkeypatch):
    converted = []
    monkeypatch.setattr(frames, "_from_series", lambda series: converted.append(series.name) or to_cells(series.to_list()))
    frame = read_frame(pyarrow.table({"age": [1.0, 2.0], "note": ["a", "b"], "other": ["a", "b"], "y": [0.0, 1.0]}))
    assert [*frame.columns] == ["age", "note", "other", "y"]
    assert ("age" in frame.columns, "none" in frame.columns, len(frame.columns)) == (True, False, 4)
    schema = Schema((("age", Number(0, 2)), ("note", Ignore())), "y", Regression(0, 1))
    assert schema.encode(frame).tolist() == [[0], [1]]
    assert schema.encode_target(frame).tolist() == [-1, 1]
    assert schema.encode(frame).tolist() == [[0], [1]]
    assert converted == ["age", "y"]


def test_a_data_frame_of_mixed_objects_is_read_cell_by_cell():
    pandas = pytest.importorskip("pandas")
    frame = read_frame(pandas.DataFrame({"o": ["x", 3, None, 2.5]}))
    assert isinstance(frame.columns["o"], Words)
    assert frame.columns["o"].distinct == ("x", "3", None, "2.5")


def test_columns_without_names_are_numbered_as_pandas_numbers_them_and_names_occur_once():
    pandas = pytest.importorskip("pandas")
    with pytest.raises(InvalidArgumentError, match="named once each"):
        read_frame(pandas.DataFrame([[1, 2]], columns=["a", "a"]))
    frame = read_frame(pandas.DataFrame([[1.5, 2.5], [3.5, 4.5]]))
    assert {name: cells.tolist() for name, cells in frame.columns.items()} == {"0": [1.5, 3.5], "1": [2.5, 4.5]}


def test_long_identifiers_with_gaps_stay_apart():
    ids = [2**60, 2**60 + 1, None]
    cells = read_frame(pyarrow.table({"who": ids})).columns["who"]
    assert cells.distinct == (str(2**60), str(2**60 + 1), None)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.binary(max_size=60).filter(lambda body: body.strip(b"\r\n")), ending=st.sampled_from(["csv", "tsv"]))
def test_whatever_the_rows_hold_reading_does_not_fail(tmp_path, body, ending):
    path = tmp_path / f"any.{ending}"
    path.write_bytes("age;b\n".replace(";", "\t").encode() + body)
    schema = Schema((("age", Number(0, 1)),), "b", Regression(0, 1))
    frame = read_frame(path)
    assert schema.encode(frame).shape == (frame.rows, 1)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=tables())
def test_a_file_says_what_its_data_frame_says(tmp_path, drawn):
    schema, cells = drawn
    names = list(schema.kinds)
    if any(name.isdecimal() for name in names):
        return
    texts = {name: ["" if cell is None else str(cell) for cell in column] for name, column in cells.items()}
    pyarrow.parquet.write_table(pyarrow.table(texts), tmp_path / "t.parquet")
    by_file, by_mapping = read_frame(tmp_path / "t.parquet"), read_frame(texts)
    np.testing.assert_array_equal(schema.encode(by_file), schema.encode(by_mapping))


def test_a_row_with_too_few_or_too_many_cells_keeps_its_place_and_is_missing(tmp_path):
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n1\n\n1,2,3\n3,4\n")
    frame = read_frame(tmp_path / "rows.csv")
    assert (frame.rows, frame.broken) == (4, 2)
    schema = Schema((("a", Number(1, 3)),), "b", Regression(2, 4))
    assert schema.encode(frame).tolist() == [[-1], [0], [0], [1]]
    np.testing.assert_array_equal(schema.encode_target(frame), np.array([-1, np.nan, np.nan, 1], dtype=np.float32))


def test_a_cell_of_any_length_is_read(tmp_path):
    (tmp_path / "rows.csv").write_text(f"a,b\n{'9' * 200_000},2\n")
    assert len(read_frame(tmp_path / "rows.csv").columns["a"].distinct[0]) == 200_000


HEADS = [
    "",
    "\n",
    "a,a\n1,2\n",
    "a,\n1,2\n",
    "1,2\n3,4\n",
    "39, State-gov, 77516, <=50K\n50, x, 83311, <=50K\n",
    "a,b,1.5\n1,2,3\n",
]


@pytest.mark.parametrize("text", HEADS)
def test_a_file_without_a_header_is_refused_and_its_first_line_is_not_shown(tmp_path, text):
    (tmp_path / "rows.csv").write_text(text)
    for read in (read_frame, read_types):
        with pytest.raises(InvalidArgumentError, match="whose first line names each column once") as caught:
            read(tmp_path / "rows.csv")
        assert not [cell for cell in ("State", "77516", "39", "1.5") if cell in str(caught.value).replace(str(tmp_path), "")]


def test_names_may_count_the_columns(tmp_path):
    (tmp_path / "rows.csv").write_text("0,1,y\n5,6,0\n")
    assert [*read_types(tmp_path / "rows.csv")] == ["0", "1", "y"]


@pytest.mark.parametrize(("name", "content", "message"), [
    ("absent.csv", None, "a readable table of delimited text in UTF-8, plain or .gz"),
    ("rows.csv.gz", b"no gzip", "a readable table of delimited text"),
    ("cut.csv.gz", gzip.compress(b"a,b\n1,2\n" * 99, mtime=0)[:30], "a readable table of delimited text"),
    ("rows.csv", "a,b\n1,2\n".encode("utf-16"), "a readable table of delimited text in UTF-8. It is in another encoding"),
    ("rows.csv", b"a,b\n", "a table with at least one row below its header"),
    ("rows.parquet", b"PAR1 no", "a readable .parquet file"),
    ("rows.xlsx", b"", "the path of a table that ends in .csv, .csv.gz, .tsv, .tsv.gz, .parquet, .arrow, .feather"),
])  # fmt: skip
def test_a_file_that_is_no_table_is_refused(tmp_path, name, content, message):
    cause = "No such file or directory" if content is None else r"\w+"
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidArgumentError, match=rf"^({cause}: )?data is '.*{name}'; it must be {message}"):
        read_frame(tmp_path / name)


@pytest.mark.parametrize("source", [5, [1], None, io.BytesIO(b"a,b\n1,2\n"), {}, {"a": []}, {"a": [1], "b": [1, 2]}])
def test_something_else_is_no_table(source):
    with pytest.raises(InvalidArgumentError, match=r"^data is"):
        read_frame(source)


@given(st.lists(NAMES.filter(lambda name: not name.isdecimal()), min_size=1, max_size=4, unique=True))
def test_names_are_kept(names):
    assert [*read_types({name: ["x"] for name in names})] == names


@pytest.mark.parametrize("module", ["narwhals.stable.v2", "pyarrow.parquet"])
def test_a_missing_reader_is_named_with_the_command_that_installs_it(tmp_path, monkeypatch, module):
    pyarrow.parquet.write_table(pyarrow.table(ROWS), tmp_path / "rows.parquet")
    monkeypatch.setitem(sys.modules, module, None)
    for read in (read_frame, read_types):
        with pytest.raises(InvalidArgumentError, match=r"reader is installed. .*pip install 'privet\[tables\]'"):
            read(tmp_path / "rows.parquet")
