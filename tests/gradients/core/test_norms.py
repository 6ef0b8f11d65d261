"""Squared norms of long, short and empty rows with large and small numbers; blocks that cover all examples once."""

import pytest
import torch

from privet.gradients.core.norms import _FEW, blocks, factor_norms, full_precision, join_few, squared_norms


@pytest.mark.parametrize("numbers", [1, _FEW + 1])
@pytest.mark.parametrize("length", [1, 1023, 1024, 1025, 100_000, 4_000_000])
def test_rows_of_any_length_are_exact(length, numbers):
    torch.manual_seed(0)
    x = torch.randn(-(-numbers // length), length)
    exact = x.double().square().sum(1)
    assert torch.allclose(squared_norms(x), exact, rtol=2e-6)  # 1e-6 of the norm
    assert torch.allclose(factor_norms(x), exact.sqrt(), rtol=1e-6)


@pytest.mark.parametrize("numbers", [1, _FEW + 1])
def test_a_factor_does_not_lose_what_underflows(numbers):
    x = torch.full((-(-numbers // 4), 4), 1e-30)
    assert squared_norms(x.double())[0] > 0
    assert (factor_norms(x) >= 2e-30).all()


def test_a_long_row_of_equal_numbers_is_not_under_estimated():
    x = torch.full((1, 4_000_000), 0.1)
    exact = x.double().square().sum(1)
    assert (squared_norms(x) >= exact * (1 - 1e-6)).all()


def test_a_large_number_does_not_swallow_the_small_ones_in_other_pieces():
    x = torch.full((1, 4096), 1.0)
    x[0, 0] = 4e6
    exact = x.double().square().sum(1)
    assert torch.allclose(squared_norms(x), exact, rtol=1e-7)


def test_a_row_whose_square_float32_cannot_hold_is_measured_from_pieces_that_it_can():
    found = squared_norms(torch.full((1, 102_400), 1e17))
    assert found.tolist() == pytest.approx([1.024e39], rel=1e-6)


def test_the_result_is_float64_and_of_one_number_per_example():
    for dtype in (torch.float32, torch.float64):
        found = squared_norms(torch.ones(3, 2, 5, dtype=dtype))
        assert found.dtype == torch.float64
        assert found.tolist() == pytest.approx([10.0] * 3)
    assert squared_norms(torch.full((3,), 2.0)).tolist() == [4.0] * 3


SHAPES = {
    "small": [(3,), (2, 2), (4,)], "scalars": [(), (), ()], "an empty one": [(0,), (5,)], "none": [],
    "large between small": [(3,), (_FEW,), (4,), (_FEW, 2), (5, 1)], "as many as are still small": [(_FEW // 8,)] * 9,
}  # fmt: skip


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("examples", [0, 1, 4])
def test_joined_tensors_have_the_same_squared_norms_in_total(shapes, examples):
    torch.manual_seed(0)
    tensors = [torch.randn(examples, *shape) for shape in SHAPES[shapes]]
    joined = join_few(iter(tensors))
    alone = [x.double().square().flatten(1).sum(1) if x.dim() > 1 else x.double().square() for x in tensors]
    assert torch.allclose(sum(map(squared_norms, joined), torch.zeros(1)), sum(alone, torch.zeros(1)), rtol=2e-6)
    made = [x for x in joined if not any(x is one for one in tensors)]
    assert all(x.numel() <= _FEW for x in made)
    assert all(any(x is one for one in joined) for x in tensors if x.numel() > _FEW)


def test_small_tensors_of_different_precision_are_joined_in_the_higher():
    (joined,) = join_few([torch.full((2, 3), 0.1), torch.full((2, 1), 0.1, dtype=torch.float64)])
    assert joined.dtype == torch.float64
    assert joined[0].tolist() == [*torch.full((3,), 0.1).double().tolist(), 0.1]


@pytest.mark.parametrize("rows", [3, _FEW])
def test_complex_numbers_have_the_length_of_their_two_parts(rows):
    x = torch.complex(torch.full((rows, 2), 3.0), torch.full((rows, 2), 4.0))
    for given in (x, x.conj()):
        assert squared_norms(given)[:3].tolist() == pytest.approx([50.0] * 3)
        assert factor_norms(given)[:3].tolist() == pytest.approx([50.0**0.5] * 3)


def test_empty_shapes_have_no_length():
    assert squared_norms(torch.ones(0, 4)).shape == (0,)
    assert squared_norms(torch.ones(3, 0)).tolist() == [0.0] * 3


def test_rows_that_are_not_contiguous_are_measured_as_they_are():
    x = torch.arange(12.0).view(3, 4).t()
    assert squared_norms(x).tolist() == pytest.approx(x.double().square().sum(1).tolist())


@pytest.mark.parametrize("value", [1e25, torch.inf, torch.nan])
def test_a_square_that_float32_cannot_represent_is_finite_only_for_few_numbers(value):
    few, many = torch.tensor([[1.0, value]]), torch.tensor([[1.0, value]]).expand(_FEW, 2)
    assert squared_norms(few).isfinite().item() == (value == 1e25)
    assert not squared_norms(many).isfinite().any()


@pytest.mark.parametrize("repeats", [1, _FEW])
def test_a_row_that_is_not_finite_leaves_its_neighbours_alone(repeats):
    found = squared_norms(torch.tensor([[1.0, 2.0], [torch.nan, 0.0], [3.0, 0.0]]).repeat(repeats, 1))
    assert found[[0, 2]].tolist() == pytest.approx([5.0, 9.0])


@pytest.mark.parametrize(("examples", "numbers"), [(0, 5), (1, 5), (7, 0), (7, 1), (1000, 10_000), (3, 10**9)])
def test_blocks_cover_every_example_once(examples, numbers):
    covered = [i for block in blocks(examples, numbers, torch.device("cpu")) for i in range(examples)[block]]
    assert covered == list(range(examples))


def test_other_devices_get_fewer_and_larger_blocks():
    on_cpu, elsewhere = (blocks(1000, 10_000, torch.device(name)) for name in ("cpu", "cuda"))
    assert len(elsewhere) < len(on_cpu)
    assert [i for block in elsewhere for i in range(1000)[block]] == list(range(1000))


def test_norms_and_sums_are_measured_without_rounded_products():
    backend = torch.backends.mkldnn.matmul
    before, backend.fp32_precision = backend.fp32_precision, "bf16"
    try:
        with torch.autocast("cpu", torch.bfloat16):
            with full_precision(torch.device("cpu")):
                inside, product = backend.fp32_precision, torch.ones(2, 2) @ torch.ones(2, 2)
            outside = backend.fp32_precision
    finally:
        backend.fp32_precision = before
    assert (inside, product.dtype, outside) == ("ieee", torch.float32, "bf16")
