import gzip
import math

import numpy as np
import pytest
import torch

from privet.data.table import load_csv
from privet.errors import InvalidArgumentError

ROWS = "age,kind,size\n1,cat,-10\n2,dog,0.5\n3,cat,1e3\n4,ant,0\n5,dog,7\n"


def saved(folder, text, name="pets.csv"):
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


@pytest.mark.parametrize("name", ["pets.csv", "pets.csv.gz"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("start", ["", "\ufeff"])
def test_delimiter_compression_and_byte_order_mark_make_no_difference(tmp_path, name, delimiter, start):
    path = saved(tmp_path, start + ROWS.replace(",", delimiter), name)
    data = load_csv(path, target="kind", scaling="raw", test_fraction=0)
    assert (data.name, data.classes, data.input_shape, data.test) == ("pets", 3, (2,), None)
    order = data.train.tensors[0][:, 0].argsort()
    assert data.train.tensors[0][order, 1].tolist() == [-10, 0.5, 1000, 0, 7]
    assert data.train.tensors[1][order].tolist() == [1, 2, 1, 0, 2]  # ant, cat, dog


def test_a_delimiter_inside_quotes_does_not_count(tmp_path):
    path = saved(tmp_path, '"a, b, c";y\n1;0\n2;1\n')
    assert load_csv(path, target="y", test_fraction=0).input_shape == (1,)


def test_the_logarithm_keeps_the_sign_and_looks_at_one_value_only(tmp_path):
    data = load_csv(saved(tmp_path, ROWS), target="kind", test_fraction=0)
    expected = sorted(math.copysign(math.log1p(abs(x)), x) for x in (-10, 0.5, 1000, 0, 7))
    torch.testing.assert_close(data.train.tensors[0][:, 1].sort().values, torch.tensor(expected, dtype=torch.float32))


def test_numeric_targets_are_sorted_as_numbers(tmp_path):
    path = saved(tmp_path, "x,y\n0,10\n1,9\n2,9.0\n")
    data = load_csv(path, target="y", scaling="raw", test_fraction=0)
    inputs, labels = data.train.tensors
    assert (data.classes, labels[inputs[:, 0].argsort()].tolist()) == (2, [1, 0, 0])


def test_the_test_part_depends_on_positions_only(tmp_path):
    rows = range(50)
    first = saved(tmp_path, "x,y\n" + "".join(f"{row},{row % 2}\n" for row in rows))
    other = saved(tmp_path, "x,y\n" + "".join(f"{row + 1000},{row % 2}\n" for row in rows), "other.csv")
    data = [load_csv(path, target="y", scaling="raw") for path in (first, other)]
    assert [len(part) for part in (data[0].train, data[0].test)] == [40, 10]
    assert torch.equal(data[0].test.tensors[0] + 1000, data[1].test.tensors[0])


OWNED = "x,who,y\n" + "".join(f"{row},user {row % 40},{row % 2}\n" for row in range(200))


def test_a_users_rows_are_in_one_part_and_their_column_is_no_feature(tmp_path):
    data = load_csv(saved(tmp_path, OWNED), target="y", scaling="raw", user_column="who")
    assert data.input_shape == (1,)
    rows = data.train.tensors[0][:, 0].long().tolist()
    assert data.users.tolist() == [f"user {row % 40}" for row in rows]
    tested = {row % 40 for row in data.test.tensors[0][:, 0].long().tolist()}
    assert tested
    assert tested.isdisjoint(row % 40 for row in rows)
    assert len(data.train) + len(data.test) == 200


def test_whether_a_user_is_tested_on_depends_on_nobody_else(tmp_path):
    lines = OWNED.splitlines(keepends=True)
    others = [lines[0], *(line for line in lines[1:] if ",user 7," not in line)]
    kept, fewer = (
        set(load_csv(saved(tmp_path, "".join(text)), target="y", scaling="raw", user_column="who").users)
        for text in (lines, others)
    )
    assert kept - {"user 7"} == fewer - {"user 7"}


@pytest.mark.parametrize(
    ("column", "message"),
    [("whom", "user_column is 'whom'; it must be one of the columns x, who, y"), ("y", "another column than the target")],
)
def test_a_user_column_must_be_a_column_of_its_own(tmp_path, column, message):
    with pytest.raises(InvalidArgumentError, match=message):
        load_csv(saved(tmp_path, OWNED), target="y", user_column=column)


def test_a_row_of_nobody_is_refused(tmp_path):
    with pytest.raises(InvalidArgumentError, match="Column 'who' is empty in row 2"):
        load_csv(saved(tmp_path, "x,who,y\n1,a,0\n2, ,1\n"), target="y", user_column="who")


BAD = {
    "text": ("a,b,y\n1,2,0\n1,SECRET,1\n", "Column 'b' holds something else in row 2"),
    "a gap": ("a,b,y\n,2,0\n", "Column 'a' holds something else in row 1"),
    "NaN": ("a,y\n1,0\nnan,1\n", "Column 'a' holds something else in row 2"),
    "infinity": ("a,y\n1,0\n2,0\n-inf,1\n", "Column 'a' holds something else in row 3"),
    "a target gap": ("a,y\n1,0\n1, \n", "Column 'y' is empty in row 2"),
    "a short row": ("a,b,y\n1,2,0\n1,2\n", "Row 2 after the header has 2"),
    "a long row": ("a,b,y\n1,2,0,4\n", "Row 1 after the header has 4"),
    "no rows": ("a,y\n", "at least one row"),
    "no features": ("y\n0\n1\n", "one column beside the target"),
    "a column twice": ("a,a,y\n1,2,0\n", "names each column once"),
    "a column without name": ("a,,y\n1,2,0\n", "names each column once"),
    "no header": ("5.1,SECRET\n4.9,SECRET\n", "names each column once"),
    "no header, whole numbers": ("1,2,3\n4,5,6\n", "names each column once"),
    "one class": ("a,y\n1,0\n2,0\n", "2 to 1000 classes"),
    "a continuous target": ("a,y\n" + "".join(f"1,{row / 7}\n" for row in range(1001)), "Group the values"),
    "nothing": ("", "names each column once|target is"),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD)
def test_a_bad_table_is_refused_by_place_and_never_by_value(tmp_path, text, message):
    with pytest.raises(InvalidArgumentError, match=message) as caught:
        load_csv(saved(tmp_path, text), target="y")
    assert "SECRET" not in str(caught.value)


def test_columns_may_be_numbered(tmp_path):
    assert load_csv(saved(tmp_path, "0,1,y\n5,6,0\n7,8,1\n"), target="y", test_fraction=0).input_shape == (2,)


def test_numbers_beyond_32_bits_are_refused_unless_the_logarithm_tames_them(tmp_path):
    path = saved(tmp_path, "a,y\n1,0\n1e300,1\n")
    assert load_csv(path, target="y", test_fraction=0).train.tensors[0].max() == np.float32(math.log1p(1e300))
    with pytest.raises(InvalidArgumentError, match="Column 'a' holds something else in row 2"):
        load_csv(path, target="y", scaling="raw")


@pytest.mark.parametrize("target", [None, "colour"])
def test_a_target_that_is_no_column_is_answered_with_the_columns(tmp_path, target):
    with pytest.raises(InvalidArgumentError, match=f"target is {target!r}; it must be one of the columns age, kind, size"):
        load_csv(saved(tmp_path, ROWS), target=target)


@pytest.mark.parametrize("fraction", [-0.1, 1, 1.5, math.nan, "0.2", True, 0.99])
def test_a_test_fraction_that_leaves_nothing_is_refused(tmp_path, fraction):
    with pytest.raises(InvalidArgumentError, match=r"^test_fraction is"):
        load_csv(saved(tmp_path, ROWS), target="kind", test_fraction=fraction)


def test_an_unknown_scaling_is_refused(tmp_path):
    with pytest.raises(InvalidArgumentError, match="scaling is 'standard'; it must be one of 'log', 'raw'"):
        load_csv(saved(tmp_path, ROWS), target="kind", scaling="standard")


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    (tmp_path / "latin.csv").write_bytes("a,y\n1,café\n".encode("latin1"))
    (tmp_path / "plain.csv.gz").write_bytes(ROWS.encode())
    packed = bytearray(gzip.compress(ROWS.encode()))
    packed[10] ^= 0xFF
    (tmp_path / "damaged.csv.gz").write_bytes(packed)
    for name in ("absent.csv", "latin.csv", "plain.csv.gz", "damaged.csv.gz"):
        with pytest.raises(InvalidArgumentError, match="a readable CSV file"):
            load_csv(tmp_path / name, target="y")
