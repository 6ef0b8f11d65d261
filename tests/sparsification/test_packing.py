"""An encoded sparse release takes the space of its kept values, and decodes bit by bit."""

import json
import struct

import pytest
import torch

from privet.clipping.clipped_sum import ClippedSum
from privet.errors import InvalidArgumentError
from privet.noise import SecureSource, Token, release
from privet.noise.noised_sum import NoisedSum
from privet.sparsification import Random, Selection, decode, encode

SHAPES = {"w": (300, 200), "b": (300,), "s": ()}
SIZE = 60_301


def released(selection, dtype=torch.float32, dense=False, **statistics):
    masks = selection.masks(SHAPES)
    tensors = {name: torch.randn(shape, dtype=dtype) * masks[name] for name, shape in SHAPES.items()}
    total = ClippedSum({**tensors, **statistics}, 0.7, torch.zeros(0), noise_scales={"b": 2.0}, support=None if dense else masks)
    return release(total, Token(1, 2.3), SecureSource())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rate", [0.0, 0.3, 0.9, 0.999])
def test_a_round_trip_gives_every_bit_back_in_as_many_numbers_as_are_kept(rate, dtype):
    selection = Selection(seed=11, block=4, zeros=round(rate * SIZE))
    made = released(selection, dtype, dense=rate == 0)
    data = encode(made, selection)
    assert len(data) <= (SIZE - selection.zeros) * dtype.itemsize + 500
    found = decode(data)
    assert found.tensors.keys() == made.tensors.keys()
    for name, tensor in made.tensors.items():
        assert torch.equal(found.tensors[name], tensor)
        assert found.tensors[name].dtype == tensor.dtype
        assert found.tensors[name].shape == tensor.shape
    assert (found.sensitivity, found.standard_deviation) == (made.sensitivity, made.standard_deviation)
    assert found.noise_scales == made.noise_scales
    if rate:
        assert all(torch.equal(found.support[name], mask) for name, mask in made.support.items())


def test_statistics_go_along_whole():
    selection = Selection(1, 2, 50_000)
    made = released(selection, **{"clipping:count": torch.tensor([3.0, 5.0], dtype=torch.float64)})
    assert torch.equal(decode(encode(made, selection)).tensors["clipping:count"], made.tensors["clipping:count"])


def test_dense_noise_is_refused():
    selection = Selection(1, 2, 50_000)
    with pytest.raises(InvalidArgumentError, match="noise on every coordinate"):
        encode(released(selection, dense=True), selection)


@pytest.mark.parametrize("other", [Selection(2, 2, 50_000), Selection(1, 3, 50_000), Selection(1, 2, 49_999), Selection(1, 2, 0)])
def test_another_mask_is_refused(other):
    with pytest.raises(InvalidArgumentError, match="selection"):
        encode(released(Selection(1, 2, 50_000)), other)


def test_the_selection_is_that_of_the_plans_value():
    kind = Random(final_rate=0.9, seed=77)
    selection = kind.selection(3, 5, SIZE)
    assert selection == Selection(77, 3, round(0.675 * SIZE))
    masks = kind.masks(3, 5, SHAPES, {})
    made = NoisedSum({name: torch.randn(s) * masks[name] for name, s in SHAPES.items()}, 1.0, 1.0, support=masks)
    assert torch.equal(decode(encode(made, selection)).tensors["w"], made.tensors["w"])


def test_bytes_that_are_no_release_are_refused():
    selection = Selection(1, 2, 60_000)
    data = encode(released(selection), selection)
    broken = [b"", b"privet", data[:-1], data + b"\0", b"x" + data, data[:30]]
    start = data.index(b"{")
    header = json.loads(data[start : start + struct.unpack("<Q", data[start - 8 : start])[0]])
    for change in ({"selection": [1, 2, 10**9]}, {"tensors": [["w", "int8", [3]]]}, {"sensitivity": None, "tensors": 3}):
        text = json.dumps({**header, **change}).encode()
        broken.append(data[: start - 8] + struct.pack("<Q", len(text)) + text)
    for bad in broken:
        with pytest.raises(InvalidArgumentError, match=r"^data is"):
            decode(bad)
