import hashlib

import pytest

from privet.data import ChecksumError, DataUnavailableError
from privet.data.download.packages import Place, get_from_first, require_digest


def failing(error):
    def get():
        raise error

    return get


def test_the_first_working_source_is_used_and_later_ones_are_not_tried():
    asked = []
    places = [
        Place("one", failing(OSError("down"))),
        Place("two", lambda: asked.append("two") or 2),
        Place("three", lambda: asked.append("three") or 3),
    ]
    assert get_from_first("numbers", places, lambda value: value, "") == (2, "two")
    assert asked == ["two"]


def test_the_final_error_lists_every_source_its_reason_and_the_fix():
    places = [Place("the cache", failing(FileNotFoundError("it is not\nthere"))), Place("the web", failing(KeyError()))]
    with pytest.raises(DataUnavailableError) as caught:
        get_from_first("numbers", places, lambda value: value, "Count them yourself.")
    assert str(caught.value).splitlines() == [
        "numbers is not available. Tried, in this order:",
        "  1. the cache: it is not there",
        "  2. the web: KeyError",
        "Count them yourself.",
    ]


@pytest.mark.parametrize("kind", ["md5", "sha256"])
def test_only_the_bytes_with_the_checksum_pass(kind):
    digest = hashlib.new(kind, b"bytes").hexdigest()
    require_digest("the file", b"bytes", digest, kind)
    with pytest.raises(ChecksumError, match=f"the file has .* instead of {digest}"):
        require_digest("the file", b"Bytes", digest, kind)
