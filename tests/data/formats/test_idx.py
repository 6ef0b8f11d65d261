import numpy as np
import pytest

from privet.data.formats import idx


@pytest.mark.parametrize("shape", [(5,), (3, 4, 2), (0,), (2, 0, 3)])
def test_an_array_survives_the_round_trip(shape):
    array = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    assert np.array_equal(idx.decode(idx.encode(array)), array)
    assert idx.decode(idx.encode(array)).shape == shape


def test_the_bytes_match_the_format_description():
    assert idx.encode(np.array([[7, 8]], dtype=np.uint8)) == bytes((0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 2, 7, 8))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not an IDX file"),
        (b"\x00\x00\x0d\x01\x00\x00\x00\x01\x00\x00\x00\x00", "not an IDX file of unsigned bytes"),
        (b"\x00\x00\x08\x02\x00\x00", "truncated"),
        (b"\x00\x00\x08\x01\x00\x00\x00\x03\x01\x02", "gives the shape"),
        (b"\x00\x00\x08\x02\xff\xff\xff\xff\xff\xff\xff\xff", "gives the shape"),
    ],
)
def test_invalid_idx_files_are_refused(content, reason):
    with pytest.raises(ValueError, match=reason):
        idx.decode(content)
