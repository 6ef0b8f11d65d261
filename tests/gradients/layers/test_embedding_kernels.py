from dataclasses import replace
from itertools import product

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from privet.gradients.layers.embedding import embedding
from privet.gradients.layers.embedding import kernels as embedding_kernels
from privet.gradients.layers.embedding import reference as embedding_sums
from privet.gradients.layers.embedding.embedding import EmbeddingGrad
from privet.gradients.layers.embedding.kernels import IN_TORCH, is_consistent, load_kernels

LAYOUTS = {
    "own": lambda g: g, "shared": lambda g: g[:, :1].expand_as(g), "shared by all examples": lambda g: g[:1].expand_as(g),
    "time-major": lambda g: g.transpose(0, 1).contiguous().transpose(0, 1),
    "channels first": lambda g: g.transpose(1, 2).contiguous().transpose(1, 2),
    "every other": lambda g: torch.stack([g, g], 2).flatten(1, 2)[:, ::2],
    "part of a wider one": lambda g: torch.cat([g, g], 2)[:, :, g.shape[2] :],
    "one number each": lambda g: g.flip(0)[:, :, :1].expand_as(g),
}  # fmt: skip


@pytest.fixture(scope="module")
def compiled():
    form = load_kernels()
    assert "agree" not in form.description  # a machine may lack a compiler, but what it compiles computes the same as torch
    if not form.description.startswith("compiled"):
        pytest.skip(f"no kernels here: {form.description}")
    return form


@pytest.fixture(params=["torch", "here"])
def form(request, monkeypatch):
    """Each implementation in turn, installed for the test."""
    chosen = IN_TORCH if request.param == "torch" else request.getfixturevalue("compiled")
    monkeypatch.setattr(embedding, "load_kernels", lambda: chosen)
    return chosen


@pytest.fixture
def filled_memory():
    """New tensors are filled with NaN, so that entries that nobody writes are seen."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("examples", "positions"), [(250, 3540), (40, 30685)])
def test_terms_of_an_example_are_not_rounded_to_the_precision_of_the_sum(form, examples, positions, shared):
    """Every text is one token, repeated: added one after another to the sum of all, its terms moved it by up to 1.11 bounds."""
    indices = torch.zeros(1, 1, dtype=torch.long).expand(examples, positions)
    gradients = torch.full((examples, 1 if shared else positions, 1), 1 / positions).expand(examples, positions, 1)

    def total(count):
        grad = EmbeddingGrad(indices[:count], gradients[:count], 2)
        return float(grad.weighted_sum(1 / grad.squared_norms().sqrt())[0])

    assert total(examples) - total(examples - 1) <= 1 + 1e-4
    assert (1 - 2e-3) * examples <= total(examples) <= examples


def test_every_row_of_a_sum_is_written(form, filled_memory):
    assert torch.empty(3).isnan().all()
    indices = torch.tensor([[1, 4, 4], [2, 1, 6]])
    total = form.weighted_sum(indices, torch.ones(2, 3, 5), torch.tensor([1.0, 2.0]), 9, 6)
    assert total[:, 0].tolist() == [0, 3, 2, 0, 2, 0, 0, 0, 0]


def exact(indices, gradients, weights, size, padding):
    """Return norms, rounding, lengths and the sum from dense gradients in float64, independently of both implementations."""
    dense = torch.zeros(len(indices), size, gradients.shape[2], dtype=torch.float64)
    rounding, reach = torch.zeros(2, len(indices), dtype=torch.float64)
    for i, row in enumerate(indices.tolist()):
        for t, index in enumerate(row):
            if index != padding:
                length = gradients[i, t].double().norm()
                dense[i, index] += gradients[i, t].double()
                rounding[i] += length * (1 + row.count(index) / 2)
                reach[i] += length
    return dense.square().sum((1, 2)), rounding, reach, torch.einsum("b,bvd->vd", weights.double(), dense)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**31), shape=st.tuples(st.integers(0, 5), st.integers(0, 40), st.integers(0, 70)),
    size=st.integers(1, 60), padding=st.none() | st.integers(0, 29), layout=st.sampled_from(list(LAYOUTS)),
    dtype=st.sampled_from([torch.float32, torch.float64]), index=st.sampled_from([torch.int32, torch.int64]),
    shared_indices=st.booleans(), scale=st.sampled_from([1e-9, 1.0, 1e12]),
)  # fmt: skip
def test_norms_and_sums_are_those_of_dense_gradients(
    form, seed, shape, size, padding, layout, dtype, index, shared_indices, scale
):
    generator = torch.Generator().manual_seed(seed)
    gradients = LAYOUTS[layout]((torch.randn(shape, generator=generator, dtype=torch.float64) * scale).to(dtype))
    indices = torch.randint(size, shape[:2], generator=generator, dtype=index)
    indices = indices[:1].expand(shape[:2]) if shared_indices else indices.t().contiguous().t()
    weights = torch.rand(shape[0], generator=generator, dtype=torch.float64)
    padding = None if padding is None else padding % size
    squares, rounding, reach, total = exact(indices, gradients, weights, size, padding)
    before = gradients.clone(), indices.clone()
    found, allowed = form.measure(indices, gradients, padding)
    summed = form.weighted_sum(indices, gradients, weights, size, padding)
    eps = torch.finfo(dtype).eps
    assert (found.dtype, allowed.dtype, summed.dtype) == (torch.float64, torch.float64, dtype)
    assert torch.allclose(allowed, rounding, rtol=8 * eps, atol=0)
    assert torch.allclose(embedding_sums.abs_norm_bound(indices, gradients, padding), reach, rtol=8 * eps, atol=0)
    assert ((found.sqrt() - squares.sqrt()).abs() <= 4 * eps * rounding).all()
    assert (summed.double() - total).norm() <= 8 * eps * float((weights * rounding).sum())
    assert torch.equal(gradients, before[0])
    assert torch.equal(indices, before[1])


@pytest.mark.parametrize(("value", "dtype"), [
    (torch.nan, torch.float32), (torch.inf, torch.float64), (-torch.inf, torch.float32), (torch.nan, torch.float64),
])  # fmt: skip
@pytest.mark.parametrize("layout", ["own", "shared", "channels first"])
def test_a_gradient_that_is_not_finite_has_no_finite_norm(form, value, dtype, layout):
    for place, indices in product((0, 1, 36, 69), ([0, 1, 2, 3], [1, 1, 2, 1], [1, 1, 1, 1])):
        gradients = torch.ones(3, 4, 70, dtype=dtype)
        gradients[1, 0, place] = value
        grad = EmbeddingGrad(torch.tensor([indices] * 3), LAYOUTS[layout](gradients), 5, padding=4)
        assert grad.squared_norms().isfinite().tolist() == [True, False, True]
        assert grad.abs_norm_bound().isfinite().tolist() == [True, False, True]


@pytest.mark.parametrize("layout", ["own", "shared"])
@pytest.mark.parametrize("value", [7.0, torch.nan, torch.inf])
def test_gradients_at_padding_are_ignored(form, layout, value):
    gradients = LAYOUTS[layout](torch.full((2, 3, 4), value))
    grad = EmbeddingGrad(torch.full((2, 3), 1), gradients, 5, padding=1)
    assert grad.squared_norms().tolist() == grad.abs_norm_bound().tolist() == [0.0, 0.0]
    assert not grad.weighted_sum(torch.ones(2)).any()
    assert not grad.materialize().any()
    grad = EmbeddingGrad(torch.tensor([[1, 2], [2, 2], [1, 1]]), torch.ones(3, 2, 4), 5, padding=1)
    some = grad.index_select(slice(1, 3))
    for part in (some, grad.index_select(torch.tensor([1, 2])), some.double()):
        assert part.squared_norms().tolist() == pytest.approx([16.0, 0.0], rel=1e-5)


@pytest.mark.parametrize("padding", [None, 0, 3])
def test_moving_every_gradient_gives_the_same(padding):
    """The implementation for devices on which counting would force a synchronisation."""
    torch.manual_seed(0)
    indices, gradients = torch.randint(4, (6, 11)), torch.randn(6, 11, 3, dtype=torch.float64)
    expected = exact(indices, gradients, torch.ones(6), 4, padding)
    for found, wanted in zip(embedding_sums._measure_by_scatter(indices, gradients, padding), expected[:2], strict=True):
        assert torch.allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize("index", [5, -1, 2**40, -(2**62)])
@pytest.mark.parametrize("positions", [1, 20])
def test_an_index_that_is_not_in_the_table_is_an_error(form, index, positions):
    indices = torch.zeros(2, positions, dtype=torch.long)
    indices[1, -1] = index
    with pytest.raises((IndexError, RuntimeError), match=r"out of|index"):
        EmbeddingGrad(indices, torch.ones(2, positions, 3), 5).weighted_sum(torch.ones(2))


def measured(change):
    """A kernel whose squares, rounding and padding are changed."""

    def measure(indices, gradients, padding):
        return change(indices, gradients, padding, *embedding_sums.measure(indices, gradients, padding))

    return {"measure": measure}


@pytest.mark.parametrize("wrong", [
    measured(lambda indices, gradients, padding, squares, rounding: (squares * (1 - 1e-4), rounding)),
    measured(lambda i, g, padding, squares, rounding: (squares, 1.5 * embedding_sums.abs_norm_bound(i, g, padding))),
    measured(lambda indices, gradients, padding, *found: tuple(x.nan_to_num() for x in found)),
    measured(lambda indices, gradients, padding, *found: embedding_sums.measure(indices, gradients, None)),
    {"weighted_sum": lambda indices, gradients, weights, size, padding: embedding_sums.weighted_sum(
        indices, gradients, torch.ones_like(weights), size, padding)},
], ids=["too short", "without repeats", "blind to what is not finite", "blind to padding", "unweighted"])  # fmt: skip
def test_a_wrong_kernel_is_detected(wrong):
    assert is_consistent(IN_TORCH)
    assert not is_consistent(replace(IN_TORCH, **wrong))


@pytest.mark.parametrize("has_base", [True, False])
def test_indices_that_share_memory_until_they_are_written_are_read_where_they_are(has_base, monkeypatch):
    """By torch's own address of what is read, and where it has none."""
    if not has_base:
        monkeypatch.setattr(embedding_kernels, "_read_base", None)
    held, copy = torch.randint(0, 9, (4, 6)), getattr(torch, "_lazy_clone", torch.clone)
    gradients, weights = torch.randn(3, 4, 5), torch.rand(3)
    expected = embedding_sums.weighted_sum(held[1:, 2:], gradients, weights, 9, None)
    shared = copy(held)
    for x in (held[1:, 2:], shared[1:, 2:], held[1:, 2:].t().contiguous().t()):
        assert torch.allclose(load_kernels().weighted_sum(x, gradients, weights, 9, None), expected, rtol=1e-5, atol=1e-6)
    load_kernels().measure(shared, torch.randn(4, 6, 5), None)
    assert not has_base or not hasattr(torch, "_lazy_clone") or torch._C._is_cow_tensor(shared)  # it is not copied
    part = torch.arange(24).view(4, 6)[1:, 2:]
    assert embedding_kernels._address(part) == part.data_ptr()
