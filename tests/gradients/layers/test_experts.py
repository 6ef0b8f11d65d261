import math
import warnings
from itertools import pairwise

import cases
import oracle
import pytest
import torch
from recording import Seen, assert_agrees, cover, record, underlying
from torch import nn
from torch.nn import functional as F

from privet.clipping import Automatic, Flat
from privet.gradients import clipped_sum
from privet.gradients.combine.sums import sum_grads
from privet.gradients.core import norms
from privet.gradients.core.batching import is_batched
from privet.gradients.core.examples import split_batch
from privet.gradients.layers import experts
from privet.gradients.layers.experts import GroupedLinearGrad
from privet.gradients.masking.dispatch import mask_grad
from privet.gradients.masking.masks import Mask
from privet.gradients.methods.tape import Tape, clip
from privet.gradients.probe.probe import probe

needs_kernel = pytest.mark.skipif(not hasattr(F, "grouped_mm"), reason="this torch has no grouped_mm")


def make_grad(n, d, p, size, examples=6, seed=0, outside=True):
    """Return factors of rows assigned to random experts, some to none."""
    made = torch.Generator().manual_seed(seed)
    chosen = torch.randint(size + outside, (examples, n), generator=made)
    a, g = (torch.randn(examples, n, width, generator=made) * (chosen < size)[..., None] for width in (d, p))
    return GroupedLinearGrad(a, g, chosen, size)


def formed(some):
    """Return the gradients in float64, one row after another."""
    total = torch.zeros(some.examples, some.size + 1, some.inputs.shape[2], some.gradients.shape[2], dtype=torch.float64)
    for example in range(some.examples):
        for row, expert in enumerate(some.experts[example]):
            total[example, expert] += torch.outer(some.inputs[example, row].double(), some.gradients[example, row].double())
    return total[:, :-1]


SHAPES = pytest.mark.parametrize(
    ("n", "d", "p", "size"), [(1, 8, 9, 3), (4, 30, 20, 3), (12, 5, 6, 4), (3, 30, 1, 2), (6, 6, 6, 6)]
)


@pytest.mark.parametrize("cache", [1, 1000, 1 << 18])
@SHAPES
def test_norms_and_sums_are_those_of_the_materialised_gradients(n, d, p, size, cache, monkeypatch):
    monkeypatch.setattr(norms, "CACHE", cache)
    some, weights = make_grad(n, d, p, size), torch.rand(6, dtype=torch.float64)
    gradients = formed(some)
    squares = gradients.square().flatten(1).sum(1)
    assert torch.allclose(some.squared_norms(), squares, rtol=5e-5)
    assert torch.allclose(some.double().squared_norms(), squares, rtol=1e-12)
    assert torch.allclose(some.materialize().double(), gradients, rtol=1e-5, atol=1e-5)
    expected = torch.einsum("b,bedp->edp", weights, gradients)
    assert torch.allclose(some.weighted_sum(weights).double(), expected, rtol=1e-4, atol=1e-5)
    assert torch.allclose(some.double().weighted_sum(weights), expected, rtol=1e-12)
    assert (some.abs_norm_bound() >= squares.sqrt() * (1 - 1e-6)).all()
    mask = Mask(torch.rand(size, d, p, generator=torch.Generator().manual_seed(1)) < 0.4)
    masked, kept = mask_grad(some, mask), gradients * mask.kept
    assert torch.allclose(masked.squared_norms(), kept.square().flatten(1).sum(1), rtol=5e-5)
    assert torch.allclose(masked.weighted_sum(torch.ones(6)).double(), kept.sum(0), rtol=1e-4, atol=1e-5)


def test_gradients_of_the_same_weights_are_concatenated():
    some, other = make_grad(4, 30, 20, 3), make_grad(2, 30, 20, 3, seed=1)
    both = sum_grads([some, other])
    assert isinstance(both, GroupedLinearGrad)
    gradients = formed(some) + formed(other)
    assert torch.allclose(both.materialize().double(), gradients, rtol=1e-4, atol=1e-4)
    assert torch.allclose(both.squared_norms(), gradients.square().flatten(1).sum(1), rtol=5e-5)


@pytest.mark.parametrize(("d", "p"), [(6, 6), (256, 128)])
def test_equal_rows_that_are_taken_back_stay_within_the_bound(d, p):
    """Rows of one expert nearly cancel, next to a short row of another."""
    for seed, size in ((seed, size) for seed in range(5) for size in (1.0, 1e4, 1e6)):
        made = torch.Generator().manual_seed(seed)
        a, g = (size * torch.rand(1, 1, width, generator=made).repeat(1, 65, 1) for width in (d, p))
        g[:, 16:64] *= -1 / 3
        g[:, 64] *= 1e-8
        chosen = torch.zeros(1, 65, dtype=torch.long)
        chosen[:, 64] = 1
        both = GroupedLinearGrad(a, g, chosen, 2)
        sums, _ = clip(Tape(1, {"w": torch.zeros(2, d, p)}, {"w": both}), Flat(0.7), (("w",),))
        assert float(sums["w"].double().norm()) <= 0.7


# ---- the rule


def mixture(product, shape):
    return cases.With(lambda m, x, offsets: product(x, m.weight, offsets), weight=shape)


def batch(examples, n, d, ends, dtype=torch.float32):
    torch.manual_seed(0)
    offsets = torch.tensor([ends[i % len(ends)] for i in range(examples)], dtype=torch.int32)
    return torch.randn(examples, n, d, dtype=dtype), offsets


def kept(rows, offsets):
    """Return the rows that have an expert: torch leaves the others undefined."""
    return torch.where((torch.arange(rows.shape[1]) < offsets[:, -1:])[..., None], rows, 0.0)


def by_expert(x, weight, offsets):
    """Return the layer for one example, as plain matrix products."""
    bounds = [0, *offsets.tolist()]
    found = [x[start:end] @ weight[expert] for expert, (start, end) in enumerate(pairwise(bounds))]
    return torch.cat([*found, x.new_zeros(len(x) - bounds[-1], weight.shape[2])])


def grouped(x, weight, offsets):
    """Return the layer for a batch of one; torch's own kernel refuses the oracle's float64."""
    alone = x.dtype == torch.float64 and not is_batched(x)
    call = by_expert if alone else lambda x, weight, ends: F.grouped_mm(x, weight, offs=ends)
    return kept(call(x[0], weight, offsets[0])[None], offsets)


ENDS = {
    "all": [[2, 3, 5], [1, 4, 5]],
    "experts without rows": [[0, 0, 5], [5, 5, 5], [0, 2, 5]],
    "rows without an expert": [[1, 2, 3], [0, 0, 0], [2, 2, 5]],
}
LAYOUTS = {"as it is": (lambda w: w, (3, 4, 8)), "transposed": (lambda w: w.transpose(-2, -1), (3, 8, 4))}


@needs_kernel
@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_norms_and_sums_are_those_of_one_example_at_a_time(ends, layout):
    turn, shape = LAYOUTS[layout]
    model, some = mixture(lambda x, w, o: grouped(x, turn(w), o), shape), batch(6, 5, 4, ENDS[ends])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_agrees(model, cases.energy, some)
    found, looped = (clipped_sum(model, cases.energy, some, Automatic(0.7), method=method) for method in ("ghost", "loop"))
    assert oracle.relative_error(found.tensors, looped.tensors) <= 1e-5


@needs_kernel
@pytest.mark.parametrize("width", [8, 40])
def test_rows_without_an_expert_have_no_gradient_whatever_is_in_them(width):
    """The same whether gradients are formed or norms come from Gram matrices."""
    model = mixture(lambda x, w, o: F.grouped_mm(x[0], w, offs=o[0])[None], (3, width, width))
    x, offsets = batch(3, 5, width, [[1, 2, 3]])
    x[:, 3:] = math.nan

    def loss(m, given):
        rows = m(*given)
        return rows[:, :3].square().sum((1, 2)) + 1e3 * rows[:, 3:].sum((1, 2))

    tape = record(model, loss, (x, offsets))
    without = mixture(grouped, (3, width, width))
    without.load_state_dict(model.state_dict())
    expected = record(without, lambda m, given: m(*given).square().sum((1, 2)), (x.nan_to_num(), offsets))
    assert expected.gradients()["weight"].any()
    assert torch.equal(tape.gradients()["weight"], expected.gradients()["weight"])
    assert torch.equal(*(each.group_norms((("weight",),)) for each in (tape, expected)))


@needs_kernel
def test_shared_offsets_and_autocast():
    """Autocast does not cast torch's kernel, and shared offsets may apply to per-example rows."""
    offsets = torch.tensor([2, 3, 5], dtype=torch.int32)

    def product(x, w, _):
        with torch.autocast("cpu"):
            return F.grouped_mm(x[0], w, offs=offsets)[None]

    model, some = mixture(product, (3, 4, 8)), batch(6, 5, 4, ENDS["all"])
    found, expected = record(model, cases.energy, some).gradients(), cover(model, cases.energy, some, "loop").gradients
    assert oracle.relative_error_per_example(found, expected) <= 1e-5


# ---- counts


def outputs(call, *tensors):
    """Return a function's result for every example in a pass, (B, …)."""
    seen = Seen()

    def loss(m, given):
        found = call(*(x[0] for x in given))
        seen(underlying(found).detach().clone())
        return m(torch.ones(1, 1)).sum(1) + 0 * found.sum()[None]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        record(nn.Linear(1, 1), loss, tensors)
    return seen.items[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("bins", "low", "high"), [(4, 0, 3), (7, -1.3, 2.7), (10, 0.1, 0.7), (3, 0, 1e-3), (1, -5, 5)])
def test_histograms_are_those_of_torch(bins, low, high, dtype):
    made = torch.Generator().manual_seed(0)
    x = torch.randn(5, 40, 10, generator=made, dtype=dtype) * (high - low) + low
    x[:, 0] = torch.linspace(low, high, 10, dtype=dtype)
    x[:, 1, :8] = torch.tensor([math.nan, math.inf, -math.inf, low, high, 0.0, -0.0, 1.0])
    x[:, 2:20] = torch.linspace(low, high, bins + 1, dtype=dtype)[torch.randint(bins + 1, (5, 18, 10), generator=made)]
    expected = torch.stack([torch.histc(each, bins, low, high) for each in x])
    for call in (lambda x: torch.histc(x, bins=bins, min=low, max=high), lambda x: x.histc(bins, low, high)):
        found = outputs(call, x)
        assert found.dtype == dtype
        assert torch.equal(found, expected)


@pytest.mark.parametrize("minlength", [5, 9])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_counts_are_those_of_torch(minlength, dtype):
    x = torch.randint(5, (6, 20), generator=torch.Generator().manual_seed(0)).to(dtype)
    expected = torch.stack([torch.bincount(each, minlength=minlength) for each in x])
    assert torch.equal(outputs(lambda x: torch.bincount(x, minlength=minlength), x), expected)
    assert torch.equal(outputs(lambda x: x.bincount(None, minlength), x), expected)


def test_lengths_of_counts_are_agreed_upon():
    def loss(m, x):
        counts = torch.bincount(x[0])
        return (m(counts[:2][None].to(m.weight)).square().sum() * len(counts))[None]

    model, x = nn.Linear(2, 2), torch.tensor([[0, 1, 1], [2, 0, 0], [1, 0, 1], [2, 2, 2]])
    assert_agrees(model, loss, x)
    assert cover(model, loss, x).groups == 2


# ---- a model


@needs_kernel
def test_mixtral_is_followed_without_a_loop(monkeypatch):
    transformers = pytest.importorskip("transformers")
    config = transformers.MixtralConfig(
        vocab_size=30, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        num_local_experts=4, num_experts_per_tok=2, max_position_embeddings=12,
    )  # fmt: skip
    torch.manual_seed(0)
    model, tokens = transformers.MixtralForCausalLM(config), torch.randint(30, (5, 7))

    def loss(m, tokens):
        logits = m(input_ids=tokens).logits
        return F.cross_entropy(logits[:, :-1].transpose(1, 2), tokens[:, 1:], reduction="none").mean(1)

    expected = cover(model, loss, tokens, method="loop")
    for keep in (0, experts.KEEP):
        monkeypatch.setattr(experts, "KEEP", keep)
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            covered = cover(model, loss, tokens)
        slow = [str(warning.message) for warning in heard if "There is a performance drop" in str(warning.message)]
        assert not [message for message in slow if "grouped_mm" in message or "histc" in message]
        assert covered.looped == 0
        assert oracle.relative_error_per_example(covered.gradients, expected.gradients) <= 1e-5
        assert torch.allclose(covered.norms, expected.norms, rtol=1e-4)
    assert probe(model, loss, [split_batch(tokens)]) == "ghost"  # torch's grouped products have no float64 kernel
