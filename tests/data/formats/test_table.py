import gzip
import math

import numpy as np
import pytest
import torch

from privet.data.classes import UNDECLARED
from privet.data.formats.table import load_csv
from privet.errors import InvalidArgumentError

ROWS = "age,kind,size\n1,cat,-10\n2,dog,0.5\n3,cat,1e3\n4,ant,0\n5,dog,7\n"


KINDS = ("ant", "cat", "dog")


def saved(folder, text, name="pets.csv"):
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


@pytest.mark.parametrize("name", ["pets.csv", "pets.csv.gz"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("start", ["", "\ufeff"])
def test_delimiter_compression_and_byte_order_mark_make_no_difference(tmp_path, name, delimiter, start):
    path = saved(tmp_path, start + ROWS.replace(",", delimiter), name)
    data = load_csv(path, target="kind", classes=KINDS, scaling="raw")
    assert (data.name, data.classes, data.input_shape, data.test, data.test_data) == ("pets", 3, (2,), None, None)
    assert data.train.tensors[0][:, 1].tolist() == [-10, 0.5, 1000, 0, 7]
    assert data.train.tensors[1].tolist() == [1, 2, 1, 0, 2]


def test_a_delimiter_inside_quotes_does_not_count(tmp_path):
    path = saved(tmp_path, '"a, b, c";y\n1;0\n2;1\n')
    assert load_csv(path, target="y", classes=2).input_shape == (1,)


def test_the_logarithm_keeps_the_sign_and_uses_one_value_only(tmp_path):
    data = load_csv(saved(tmp_path, ROWS), target="kind", classes=KINDS)
    expected = [math.copysign(math.log1p(abs(x)), x) for x in (-10, 0.5, 1000, 0, 7)]
    torch.testing.assert_close(data.train.tensors[0][:, 1], torch.tensor(expected, dtype=torch.float32))


def test_classes_are_in_the_declared_order(tmp_path):
    path = saved(tmp_path, ROWS)
    for classes in (("dog", "ant", "cat"), ["dog", "ant", "cat"], "dog,ant, cat"):
        assert load_csv(path, target="kind", classes=classes).train.tensors[1].tolist() == [2, 0, 2, 1, 0]


def test_numbers_are_compared_as_numbers(tmp_path):
    path = saved(tmp_path, "x,y\n0,10\n1,9\n2,9.0\n")
    assert load_csv(path, target="y", classes="9,10").train.tensors[1].tolist() == [1, 0, 0]


def test_without_classes_a_table_is_refused_and_rows_are_not_disclosed(tmp_path):
    refusals = set()
    for labels in ("SECRET,SECRET,SECRET", "SECRET,OTHER,THIRD"):
        path = saved(tmp_path, "x,y\n" + "".join(f"1,{label}\n" for label in labels.split(",")))
        with pytest.raises(
            InvalidArgumentError, match=r"^classes is None; it must be declared .*--classes 3 .*classes=3"
        ) as caught:
            load_csv(path, target="y")
        refusals.add(str(caught.value))
    assert len(refusals) == 1
    assert "SECRET" not in refusals.pop()


@pytest.mark.parametrize("stray", ["fox", "", " ", "nan", "-1", "3", "1e400", "cat dog"])
def test_a_changed_label_affects_only_its_row(tmp_path, stray):
    before = load_csv(saved(tmp_path, ROWS), target="kind", classes=KINDS)
    other = ROWS.replace("3,cat", f"3,{stray}")
    after = load_csv(saved(tmp_path, other), target="kind", classes=KINDS)
    assert (after.classes, after.input_shape, len(after.train)) == (before.classes, before.input_shape, len(before.train))
    assert torch.equal(after.train.tensors[0], before.train.tensors[0])
    assert after.train.tensors[1].tolist() == [1, 2, UNDECLARED, 0, 2]
    assert (after.notes, after.assumptions, after.provenance) == (before.notes, before.assumptions, before.provenance)


def test_no_row_of_a_private_table_is_test_data(tmp_path):
    path = saved(tmp_path, "x,y\n" + "".join(f"{row},{row % 2}\n" for row in range(50)))
    data = load_csv(path, target="y", classes=2)
    assert (len(data.train), data.test, data.test_data) == (50, None, None)


def test_a_file_of_test_data_is_read_by_the_same_columns_and_classes(tmp_path):
    test = saved(tmp_path, "note;kind;size;age\nold;dog;5;1\nnew;ant;6;2\n", "test.csv")
    data = load_csv(saved(tmp_path, ROWS), target="kind", classes=KINDS, scaling="raw", test=str(test))
    assert [column.tolist() for column in data.test.tensors] == [[[1, 5], [2, 6]], [2, 0]]
    assert len(data.train) == 5
    assert data.test_data == f"the file {test}, provided as public test data"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("age,kind,size\n1,fox,2\n", "test is .*labels are all among the declared classes. Row 1"),
        ("age,kind\n1,cat\n", "test is .*It has no column 'size'"),
        ("age,size\n1,2\n", "target is 'kind'; it must be one of the columns age, size"),
        ("age,kind,size\n1,cat,old\n", "test is .*Column 'size' has no finite number in row 1"),
    ],
)
def test_mismatched_test_data_are_refused(tmp_path, text, message):
    with pytest.raises(InvalidArgumentError, match=message):
        load_csv(saved(tmp_path, ROWS), target="kind", classes=KINDS, test=saved(tmp_path, text, "test.csv"))


def test_the_private_file_is_refused_as_test_data(tmp_path):
    path = saved(tmp_path, ROWS)
    (tmp_path / "link.csv").symlink_to(path)
    for test in (path, tmp_path / "link.csv"):
        with pytest.raises(InvalidArgumentError, match=r"test is .*a file other than the private one"):
            load_csv(path, target="kind", classes=KINDS, test=test)


OWNED = "x,who,y\n" + "".join(f"{row},user {row % 40},{row % 2}\n" for row in range(200))


def test_the_user_column_is_not_a_feature(tmp_path):
    data = load_csv(saved(tmp_path, OWNED), target="y", classes=2, scaling="raw", user_column="who")
    assert data.input_shape == (1,)
    assert data.users.tolist() == [f"user {row % 40}" for row in range(200)]


@pytest.mark.parametrize(
    ("column", "message"),
    [("whom", "user_column is 'whom'; it must be one of the columns x, who, y"), ("y", "a column other than the target")],
)
def test_the_user_column_must_be_a_separate_column(tmp_path, column, message):
    with pytest.raises(InvalidArgumentError, match=message):
        load_csv(saved(tmp_path, OWNED), target="y", classes=2, user_column=column)


def test_a_row_without_a_user_is_refused(tmp_path):
    with pytest.raises(InvalidArgumentError, match="Column 'who' is empty in row 2"):
        load_csv(saved(tmp_path, "x,who,y\n1,a,0\n2, ,1\n"), target="y", classes=2, user_column="who")


BAD = {
    "text": ("a,b,y\n1,2,0\n1,SECRET,1\n", "Column 'b' has no finite number in row 2"),
    "a gap": ("a,b,y\n,2,0\n", "Column 'a' has no finite number in row 1"),
    "NaN": ("a,y\n1,0\nnan,1\n", "Column 'a' has no finite number in row 2"),
    "infinity": ("a,y\n1,0\n2,0\n-inf,1\n", "Column 'a' has no finite number in row 3"),
    "a short row": ("a,b,y\n1,2,0\n1,2\n", "Row 2 after the header has 2"),
    "a long row": ("a,b,y\n1,2,0,4\n", "Row 1 after the header has 4"),
    "no rows": ("a,y\n", "at least one row"),
    "no features": ("y\n0\n1\n", "a column besides the target"),
    "a column twice": ("a,a,y\n1,2,0\n", "names each column once"),
    "a column without name": ("a,,y\n1,2,0\n", "names each column once"),
    "no header": ("5.1,SECRET\n4.9,SECRET\n", "names each column once"),
    "no header, whole numbers": ("1,2,3\n4,5,6\n", "names each column once"),
    "nothing": ("", "names each column once|target is"),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD)
def test_errors_about_tables_give_the_place_and_never_the_value(tmp_path, text, message):
    with pytest.raises(InvalidArgumentError, match=message) as caught:
        load_csv(saved(tmp_path, text), target="y", classes=2)
    assert "SECRET" not in str(caught.value)


def test_columns_may_be_numbered(tmp_path):
    assert load_csv(saved(tmp_path, "0,1,y\n5,6,0\n7,8,1\n"), target="y", classes=2).input_shape == (2,)


def test_numbers_beyond_float32_are_refused_unless_log_scaled(tmp_path):
    path = saved(tmp_path, "a,y\n1,0\n1e300,1\n")
    assert load_csv(path, target="y", classes=2).train.tensors[0].max() == np.float32(math.log1p(1e300))
    with pytest.raises(InvalidArgumentError, match="Column 'a' has no finite number in row 2"):
        load_csv(path, target="y", classes=2, scaling="raw")


@pytest.mark.parametrize("target", [None, "colour"])
def test_an_unknown_target_is_refused_with_the_list_of_columns(tmp_path, target):
    with pytest.raises(InvalidArgumentError, match=f"target is {target!r}; it must be one of the columns age, kind, size"):
        load_csv(saved(tmp_path, ROWS), target=target, classes=KINDS)


def test_an_unknown_scaling_is_refused(tmp_path):
    with pytest.raises(InvalidArgumentError, match="scaling is 'standard'; it must be one of 'log', 'raw'"):
        load_csv(saved(tmp_path, ROWS), target="kind", classes=KINDS, scaling="standard")


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    (tmp_path / "latin.csv").write_bytes("a,y\n1,café\n".encode("latin1"))
    (tmp_path / "plain.csv.gz").write_bytes(ROWS.encode())
    packed = bytearray(gzip.compress(ROWS.encode()))
    packed[10] ^= 0xFF
    (tmp_path / "damaged.csv.gz").write_bytes(packed)
    for name in ("absent.csv", "latin.csv", "plain.csv.gz", "damaged.csv.gz"):
        with pytest.raises(InvalidArgumentError, match="a readable CSV file"):
            load_csv(tmp_path / name, target="y", classes=2)
