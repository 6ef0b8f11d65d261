import datetime
import math

import numpy as np
import pytest
from frames_of_users import numbers
from hypothesis import given
from hypothesis import strategies as st

from privet.errors import InvalidArgumentError
from privet.tables import Boolean, Category, Classification, Date, Number, Regression, Text
from privet.tables.cells import mark_missing, match, plain, spellings, to_cells, to_words
from privet.tables.columns import FITS, MISSING, UNFIT


def encoded(column, *cells):
    return column.encode(to_cells(cells)).tolist()


def test_bounds_become_minus_one_and_one():
    column = Number(10, 20)
    assert encoded(column, "10", "15", "20", "9", "1e9", "-inf", None, "ten") == [[-1], [0], [1], [-1], [1], [-1], [0], [0]]
    assert column.status(to_cells(["10", "9", None, "ten", "nan"])).tolist() == [FITS, UNFIT, MISSING, UNFIT, UNFIT]


def test_out_of_bounds_can_count_as_missing_and_missing_can_be_a_number_or_an_indicator():
    assert encoded(Number(0, 10, outside="missing", missing="indicator"), "10", "11", None) == [[1, 0], [0, 1], [0, 1]]
    assert encoded(Number(0, 10, missing=2.5), "x", 0) == [[-0.5], [-1]]


def test_the_log_scale_separates_small_from_large_amounts():
    column = Number(0, 99_999, scale="log")
    small, large = encoded(column, "100", "10000")
    assert small[0] == pytest.approx(2 * math.log1p(100) / math.log1p(99_999) - 1)
    assert large[0] > 0.5


@given(numbers(), st.lists(st.floats(allow_nan=False), min_size=2, max_size=2).map(sorted))
def test_scaling_keeps_the_order(column, pair):
    column = Number(column.lower, column.upper, column.scale)
    low, high = encoded(column, *pair)
    assert low <= high


@given(numbers(), st.floats(0, 1))
def test_restoring_inverts_scaling(column, share):
    value = column.lower + share * (column.upper - column.lower)
    again = column.restore(column.rescale(np.array([value])))[0]
    assert again == pytest.approx(value, abs=1e-6 * (column.upper - column.lower), rel=1e-6)
    assert column.lower <= again <= column.upper


@pytest.mark.parametrize("bounds", [(0, 0), (1, 0), (0, 5e-324), (1e300, 1e300), (-math.inf, 0), (0, math.nan), ("0", 1)])
def test_bounds_that_leave_no_range_are_refused(bounds):
    for kind in (Number, Regression):
        with pytest.raises(InvalidArgumentError, match=r"^(lower|upper) is"):
            kind(*bounds)


def test_the_largest_bounds_do_not_overflow():
    assert encoded(Number(-1.7e308, 1.7e308), "0", "1.7e308", "-inf") == [[0], [1], [-1]]


def test_a_date_is_scaled_by_public_bounds_in_days_and_its_time_does_not_count():
    column = Date("2020-01-01", "2020-01-05")
    cells = [
        "2020-01-01",
        "20200102",
        "2020-01-03 17:05:01",
        "2020-01-05T23:59:59.999999999+02:00",
        "1999-01-01",
        "2.1.2020",
        None,
    ]
    assert encoded(column, *cells) == [[-1], [-0.5], [0], [1], [-1], [0], [0]]
    assert column.status(to_cells(cells)).tolist() == [FITS, FITS, FITS, FITS, UNFIT, UNFIT, MISSING]
    assert encoded(column, datetime.date(2020, 1, 4), np.datetime64("2020-01-04T01", "ns")) == [[0.5], [0.5]]
    declared = Date(datetime.date(2020, 1, 1), "2020-01-05", "%d/%m/%Y", outside="missing", missing="indicator")
    assert encoded(declared, "02/01/2020", "01/02/2020", "2020-01-02", None) == [[-0.5, 0], [0, 1], [0, 1], [0, 1]]
    assert encoded(Date("2020-01-01", "2020-01-05", missing="2020-01-02"), None) == [[-0.5]]


@pytest.mark.parametrize("wrong", [
    {"lower": "x"}, {"upper": 2020}, {"upper": "2019-01-01"}, {"missing": "2019-01-01"}, {"missing": "x"}, {"outside": "x"},
    {"format": "%d.%m"}, {"format": "%y"}, {"format": "%"}, {"format": "%Y\0"}, {"format": 1},
], ids=str)  # fmt: skip
def test_a_date_without_bounds_that_its_format_can_write_is_refused(wrong):
    (name,) = wrong
    with pytest.raises(InvalidArgumentError, match=f"^{name} "):
        Date(**{"lower": "2020-01-01", "upper": "2020-12-31"} | wrong)


def test_a_category_is_one_hot_and_says_what_missing_and_unknown_become():
    usual = Category(("red", "7"))
    assert encoded(usual, "red", "7.0", 7, "blue", None, "Red") == [[1, 0], [0, 1], [0, 1], [0, 0], [0, 0], [0, 0]]
    asked = Category(("red", "7"), missing="indicator", unknown="indicator")
    assert asked.labels() == ("=red", "=7", " is missing", " is unknown")
    assert encoded(asked, "blue", None) == [[0, 0, 0, 1], [0, 0, 1, 0]]
    assert encoded(Category(("red", "other"), unknown="other", missing="red"), "x", None) == [[0, 1], [1, 0]]
    assert encoded(Category(("red",), unknown="missing", missing="indicator"), "x") == [[0, 1]]


def test_a_cell_that_python_does_not_write_is_missing():
    assert to_cells([10**5000]).distinct == (None,)


@pytest.mark.parametrize("cell", ["1" * 400, 10**400, "1" * 5000], ids=["text", "integer", "more digits than Python reads"])
def test_an_integer_beyond_floats_is_a_number_like_any_other(cell):
    assert Classification(("0", "1")).encode(to_cells([cell, "1"])).tolist() == [-100, 1]
    assert encoded(Category(("1", "2")), cell, "1")[1] == encoded(Category(("1", "2")), "1")[0]
    assert match([cell], ["1" * 400]).tolist() in ([0], [-1])


def test_a_complex_cell_is_its_real_part_if_that_is_all_and_bytes_are_text():
    assert to_cells([0.5 + 0j, np.complex64(2), 1j, complex("nan"), b" a ", b"\xff"]).distinct == (
        "0.5",
        "2",
        None,
        "a",
        "\ufffd",
    )


def test_of_two_spellings_of_a_number_only_the_exact_one_matches():
    assert match(["01", "1", "1.0", 1], ("01", "1")).tolist() == [0, 1, -1, -1]


@given(st.one_of(st.floats(), st.floats(width=32), st.integers(-(2**70), 2**70)))
def test_a_number_has_one_spelling_however_it_is_stored(number):
    (word,) = to_cells([number]).distinct
    if word is None:
        return
    stored = np.array([number], dtype=np.float64 if isinstance(number, float) else object)
    assert {word} == {*to_words(stored).distinct, *to_cells(stored).distinct, plain(word), plain(str(number))}


def test_single_precision_is_written_with_all_digits_as_in_an_array():
    number = np.float32(0.1)
    assert to_cells([number]).distinct == to_words(np.array([number])).distinct == (str(float(number)),)


@pytest.mark.parametrize("text", ["1_0", "1e5", "0e7", "12-3", "٧", "x2.0", "2.0.0", "", "nan", "-", "."])
def test_what_is_rather_an_identifier_than_a_number_keeps_its_spelling(text):
    assert plain(text) == text


def test_spellings_of_long_numbers_are_found_fast():
    for text in ("0" * 100_000, "0" * 100_000 + "x", "1." + "0" * 100_000 + "x", "1" * 100_000):
        assert plain(text) == (text if text.strip("0") else "0")


@given(st.lists(st.sampled_from([0, -9, 2**53, 2**53 + 1, 7, 1.5, math.inf, -math.inf]), min_size=1, max_size=6))
def test_missing_codes_are_found_in_numbers_as_in_their_texts(numbers):
    texts = spellings(["", "NA", "-9.0", "9007199254740993", "1.50", "inf", "7e0"])
    expected = [number in (-9, 2**53 + 1, 7, 1.5, math.inf) for number in numbers]
    kind = np.int64 if all(isinstance(number, int) for number in numbers) else object
    for cells in (to_cells(numbers), to_cells(map(str, numbers)), to_words(np.array(numbers, dtype=kind))):
        marked = to_words(mark_missing(cells, texts))
        assert [marked.distinct[place] is None for place in marked.places] == expected
    if kind is np.int64:
        marked = to_words(mark_missing(np.array(numbers), texts))
        assert [marked.distinct[place] is None for place in marked.places] == expected
    floats = [float(number) for number in numbers]
    expected = [number in (-9, 7, 1.5, math.inf) for number in floats]  # 2⁵³ + 1 is no float
    assert np.isnan(mark_missing(np.array(floats), texts)).tolist() == expected


def test_a_boolean_cannot_mean_both_in_two_spellings():
    with pytest.raises(InvalidArgumentError, match=r"^false is \['1'\]"):
        Boolean(true=("1",), false=("1.0",))


def test_a_boolean_is_one_or_minus_one():
    assert encoded(Boolean(), "TRUE", "no", 1, 0.0, True, "maybe", None) == [[1], [-1], [1], [-1], [1], [0], [0]]
    assert Boolean(true=1, false=0) == Boolean(("1",), ("0",))
    assert encoded(Boolean(true="M", false="F", missing="indicator"), "m", "f", "true") == [[1, 0], [-1, 0], [0, 1]]
    assert encoded(Boolean(missing="false"), None) == [[-1]]


def test_texts_with_the_same_words_are_alike_and_others_are_not():
    column = Text(4096)
    first, again, other, empty = np.array(encoded(column, "good wine, good price", "PRICE good Wine good", "bad plot", "!?"))
    assert np.array_equal(first, again)
    assert first @ first == pytest.approx(1, abs=1e-5)
    assert abs(first @ other) < 1e-6
    assert not empty.any()


def test_hashes_are_the_same_in_every_process():
    """Features of a text must not depend on Python's seed of hashes, or a model would not predict elsewhere."""
    assert np.flatnonzero(encoded(Text(64), "wine")).tolist() == [40]
    assert encoded(Text(64), "wine")[0][40] > 0.99


def test_numbers_beyond_floats_are_compared_exactly():
    task = Classification((str(2**53), "0"))
    assert task.encode(to_cells([2**53, 2**53 + 1, "0.0"])).tolist() == [0, -100, 1]


def test_predictions_are_in_the_words_and_units_of_the_target():
    assert Classification(("no", "yes")).decode(np.array([[1.0, 0.0], [0.0, 2.0]])).tolist() == ["no", "yes"]
    assert Regression(100, 300).decode(np.array([[-1.0], [0.0], [7.0]])).tolist() == [100, 200, 300]
