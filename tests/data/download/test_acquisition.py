import pytest

from privet.data import DataUnavailableError
from privet.data.download.acquisition import Place, first


def failing(error):
    def get():
        raise error

    return get


def test_the_first_working_place_wins_and_later_ones_are_not_touched():
    asked = []
    places = [
        Place("one", failing(OSError("down"))),
        Place("two", lambda: asked.append("two") or 2),
        Place("three", lambda: asked.append("three") or 3),
    ]
    assert first("numbers", places, lambda value: value, "") == (2, "two")
    assert asked == ["two"]


def test_what_is_not_accepted_counts_as_a_failure_of_its_place():
    def even(value):
        if value % 2:
            raise ValueError("odd")
        return value

    assert first("numbers", [Place("one", lambda: 1), Place("two", lambda: 2)], even, "") == (2, "two")


def test_the_final_error_lists_every_place_its_reason_and_the_fix():
    places = [Place("the cache", failing(FileNotFoundError("it is not\nthere"))), Place("the web", failing(KeyError()))]
    with pytest.raises(DataUnavailableError) as caught:
        first("numbers", places, lambda value: value, "Count them yourself.")
    assert str(caught.value).splitlines() == [
        "numbers could not be had. Tried, in this order:",
        "  1. the cache: it is not there",
        "  2. the web: KeyError",
        "Count them yourself.",
    ]
