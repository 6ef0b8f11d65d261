import oracle
import pytest
import torch
from recording import Seen, assert_agrees, cover, physical
from torch import nn
from torch.nn import functional as F

B, N, H, L, S, E = 3, 2, 3, 3, 3, 3  # all sizes equal the number of examples
MASKS = [None, (L, S), (1, S), (H, L, S), (1, L, S), (N, 1, L, S), (N, H, L, S), (1, 1, 1, S), (N, 1, 1, S)]


@pytest.mark.parametrize("mask", MASKS, ids=str)
@pytest.mark.parametrize("own", [True, False], ids=["of an example", "shared"])
@pytest.mark.parametrize("boolean", [True, False], ids=["bool", "float"])
def test_masks_of_every_shape(mask, own, boolean):
    if mask is None and (own or boolean):
        return
    torch.manual_seed(0)
    model = nn.Linear(E, E).double()
    shape = (B, *(mask or ()))
    masks = torch.rand(shape) < 0.7 if boolean else torch.randn(shape).double()
    if boolean:
        masks[..., 0] = True  # a row without a key has no value

    def loss(m, b):
        q = m(b[0][0])
        given = None if mask is None else b[1][0] if own else masks[0]
        return F.scaled_dot_product_attention(q, q.roll(1, 0), b[0][0], attn_mask=given).square().sum()[None]

    x = torch.randn(B, N, H, L, E, dtype=torch.float64)
    assert_agrees(model, loss, (x, masks), 1e-10)


FEW = {
    # Each example has its own mask or all share one, in products of two, three and four dimensions, with one row in front.
    **{f"masks of {lead}": (lead, (*lead, 5, 5), lambda x, mask: attend(x, x.flip(-2), attn_mask=mask))
       for lead in ((), (1,), (1, 3))},
    **{f"a mask of keys alone, {lead}": (lead, (5,), lambda x, mask: attend(x, x.flip(-2), attn_mask=mask))
       for lead in ((), (2,))},
    # Three dimensions, of which torch takes the first for heads.
    "groups of heads in front share keys": ((4,), (), lambda x, mask: attend(x, x[:2], enable_gqa=True)),
}  # fmt: skip


def attend(q, keys, **options):
    return F.scaled_dot_product_attention(q, keys, keys.tanh(), **options).square().sum()[None]


@pytest.mark.parametrize("own", [True, False], ids=["of an example", "shared"])
@pytest.mark.parametrize("name", FEW)
def test_masks_of_examples_with_few_dimensions(name, own):
    torch.manual_seed(0)
    lead, shape, call = FEW[name]
    model, masks = nn.Linear(4, 4).double(), torch.randn(5, *shape, dtype=torch.float64)
    x = torch.randn(5, *lead, 5, 4, dtype=torch.float64)
    assert_agrees(model, lambda m, b: call(m(b[0][0]), b[1][0] if own else masks[0]), (x, masks), 1e-10)


@pytest.mark.parametrize("options", [{"is_causal": True}, {"scale": 0.3}, {"enable_gqa": True}], ids=str)
@pytest.mark.parametrize("lead", [(), (1,), (2,), (2, 2)], ids=str)
def test_options_and_dimensions(options, lead):
    torch.manual_seed(0)
    model, x = nn.Linear(4, 4).double(), torch.randn(5, *lead, 4, 5, 4, dtype=torch.float64)

    def loss(m, x):
        keys = m(x[..., :2, :, :]) if options.get("enable_gqa") else m(x)
        return F.scaled_dot_product_attention(m(x), keys, keys.tanh(), **options).square().flatten(1).sum(1)

    assert_agrees(model, loss, x, 1e-10)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("masks", ["none", "padding", "scores", "both", "per head", "causal"])
def test_multi_head_attention_over_several_rows_of_an_example(masks, batch_first):
    """Two rows per example, with as many positions and elements as there are examples."""
    torch.manual_seed(0)
    model = nn.MultiheadAttention(4, 2, batch_first=batch_first).double()
    x = torch.randn(4, 2, 4, 4, dtype=torch.float64)

    def loss(m, b):
        rows = b[0] if batch_first else b.transpose(1, 2)[0]
        padding = torch.tensor([[False, False, True, True], [False, True, False, True]])
        scores = torch.arange(16.0).view(4, 4).to(b) / 9
        given = {
            "padding": {"key_padding_mask": padding}, "scores": {"attn_mask": scores},
            "both": {"attn_mask": scores, "key_padding_mask": torch.zeros(2, 4).to(b).masked_fill(padding, -9.0)},
            "per head": {"attn_mask": torch.stack([scores, -scores] * 2)},
            "causal": {"attn_mask": torch.ones(4, 4).triu(1).bool(), "is_causal": True},
        }.get(masks, {})  # fmt: skip
        return m(rows, rows, rows, **given)[0].square().sum()[None]

    assert_agrees(model, loss, x, 1e-10)


def test_multi_head_attention_with_three_inputs_uses_parts_of_one_weight():
    torch.manual_seed(0)
    model, x = nn.MultiheadAttention(4, 2, batch_first=True).double(), torch.randn(3, 5, 4, dtype=torch.float64)
    assert_agrees(model, lambda m, x: m(x, x.flip(1), x.tanh())[0].square().sum((1, 2)), x, 1e-10)


def test_a_saturated_softmax_rounds_as_torchs_for_one_example():
    """A kernel that is fused subtracts large numbers that are alike, and finds gradients where there are none."""
    torch.manual_seed(0)
    model, x = nn.Linear(8, 8), 1e3 * torch.randn(20, 5, 8)

    def loss(m, x):
        found = F.scaled_dot_product_attention(m(x), x, x)
        return ((found.square() + 1).sqrt() * torch.linspace(0.5, 1.5, 8)).sum((1, 2))

    expected = oracle.plain_gradients(model, loss, x)
    plain = torch.stack([value.flatten(1).square().sum(1) for value in expected.values()]).sum(0).sqrt()
    assert int((plain == 0).sum()) >= 10, "no softmax is saturated"
    assert float(cover(model, loss, x).norms[plain == 0].max()) <= 1e-3 * float(plain.max())


def test_half_of_the_weights_are_dropped():
    model, x, seen = nn.MultiheadAttention(8, 2, dropout=0.5, batch_first=True), torch.randn(6, 40, 8), Seen()

    def loss(m, x):
        out, weights = m(x, x, x, average_attn_weights=False)
        seen(physical(weights).detach())
        return out.sum((1, 2))

    assert cover(model, loss, x).looped == 0
    assert 0.45 <= float((seen.items[-1] == 0).double().mean()) <= 0.55
