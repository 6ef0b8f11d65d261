"""Damaged data files are loaded or refused by name, and no pickled object in them is ever created."""

import gzip
import io
import warnings

import numpy as np
import pytest
from fuzzing import bomb, damaged, fuzzed
from hypothesis import given
from hypothesis import strategies as st

from privet import data
from privet.data.sets.image_set import decode_idx, encode_idx
from privet.errors import InvalidArgumentError
from privet.tables import Category, Classification, Ignore, Number, Regression, Schema, UserId

X, Y = np.arange(24, dtype=np.float32).reshape(6, 4), np.array([0, 1, 2, 0, 1, 2])
CSV = b"age,income,label,who\n" + b"".join(b"%d,%d.5,%s,user%d\n" % (20 + i, i, b"ab"[i % 2 :][:1], i % 3) for i in range(12))
INCOME = ("income", Number(0, 20, missing="indicator"))
BY_LABEL = Schema((("age", Number(0, 100)), INCOME, ("who", Ignore())), "label", Classification(("a", "b")))
BY_USER = Schema((("age", Category(("20", "21"))), INCOME, ("who", UserId())), "label", Classification(("b", "a")))
BY_AGE = Schema((INCOME, ("label", Category(("a", "b")))), "age", Regression(0, 100))
KINDS = ["f2", "f4", "f8", "g", "i1", "i8", "u1", "u8", "c8", "?", "U3", "S2", "M8[s]", "m8[s]", "V4", "O", ">f4", [("a", "f4")]]
SHAPES = [(), (0,), (6,), (6, 4), (6, 0), (0, 4), (6, 2, 2), (6, 4, 4, 1), (6, 1, 2, 2, 1), (1, 1), (5, 4)]


def saved(packed=False, **arrays):
    file = io.BytesIO()
    (np.savez_compressed if packed else np.savez)(file, **arrays)
    return file.getvalue()


def array(kind, shape, filling):
    zeros = np.zeros(shape, dtype=kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            zeros[...] = filling
        except (TypeError, ValueError, OverflowError):
            return zeros
    return zeros


ARRAYS = st.builds(
    array, st.sampled_from(KINDS), st.sampled_from(SHAPES), st.sampled_from([0, 1, 5, -1, 2**31, 2**63, 1e300, np.nan, np.inf])
)


def loaded_or_refused(path, content, **options):
    path.write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = data.load(path, **options)
        except InvalidArgumentError as error:
            refusal = str(error)
            assert "\n" not in refusal
            return
    inputs, labels = found.train.tensors
    assert inputs.isfinite().all()
    # A table whose rows all lack a user has no units, which is known by their public number.
    assert len(inputs) == len(labels) >= (0 if found.users is not None and found.schema else 1)
    if found.classes is None:
        assert bool((labels.isnan() | (labels.abs() <= 1)).all())
    else:
        assert set(labels.tolist()) <= {data.UNDECLARED, *range(found.classes)}
    if found.test is not None:
        assert set(found.test.tensors[1].tolist()) <= set(range(found.classes))


@fuzzed(60)
@given(st.booleans().flatmap(lambda packed: damaged(saved(packed, x_train=X, y_train=Y, x_test=X, y_test=Y))))
def test_a_damaged_npz(tmp_path_factory, content):
    loaded_or_refused(tmp_path_factory.mktemp("npz") / "mine.npz", content, classes=3)


@fuzzed(60)
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(("x_train", "y_train", "x_test", "y_test", "who", "odd"), ARRAYS)))
def test_an_npz_with_other_arrays(tmp_path_factory, arrays):
    whole = {"x_train": X, "y_train": Y} | arrays
    path = tmp_path_factory.mktemp("npz") / "mine.npz"
    for options in ({"classes": 3}, {"classes": "1,0", "user_column": "who"}):
        loaded_or_refused(path, saved(**whole), **options)


@pytest.mark.parametrize("where", ["beside", "in the place of an array", "as an array of objects"])
def test_a_pickle_in_an_npz_is_never_read(tmp_path, where):
    marker = tmp_path / "executed"
    if where == "in the place of an array":
        content = bomb(marker)
    elif where == "beside":
        content = saved(x_train=X, y_train=Y, odd=np.array([bomb(marker)], dtype=object))
    else:
        file = io.BytesIO()
        np.lib.format.write_array_header_1_0(file, {"descr": "|O", "fortran_order": False, "shape": (1,)})
        content = saved(x_train=X, y_train=Y)
        start = content.index(b"\x93NUMPY")
        content = content[:start] + file.getvalue() + bomb(marker) + content[start + len(file.getvalue()) :]
    path = tmp_path / "mine.npz"
    path.write_bytes(content)
    with pytest.raises(InvalidArgumentError):
        data.load(path, classes=3)
    assert not marker.exists()


@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_a_damaged_table(tmp_path_factory, ending):
    packed = ending.endswith("gz")

    @fuzzed(40)
    @given(st.one_of(damaged(gzip.compress(CSV)), damaged(CSV).map(gzip.compress)) if packed else damaged(CSV))
    def hold(content):
        path = tmp_path_factory.mktemp("csv") / f"mine.{ending}"
        for schema in (BY_LABEL, BY_USER, BY_AGE):
            loaded_or_refused(path, content, schema=schema)

    hold()


@fuzzed(80)
@given(damaged(encode_idx(np.arange(24, dtype=np.uint8).reshape(2, 3, 4))))
def test_a_damaged_idx_file(content):
    try:
        found = decode_idx(content)
    except ValueError:
        return
    assert found.dtype == np.uint8
    assert encode_idx(found) == content
