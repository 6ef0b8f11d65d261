"""Products in every form, and rows that user code moves or mixes: vmap tracks which example they belong to."""

import cases
import pytest
import torch
from recording import assert_agrees, record
from torch import nn
from torch.nn import functional as F

from privet.gradients.layers.linear import LinearGrad

LENGTH, WIDTH = 3, 6


@pytest.mark.parametrize("between", [
    lambda rows: rows, torch.relu, F.gelu, lambda rows: rows * 2 + 1,
    lambda rows: rows.view(-1, 2, 3).transpose(1, 2).reshape(-1, WIDTH),
    lambda rows: rows.view(-1, 1, 2, 3).permute(0, 1, 3, 2).flatten(1),
    lambda rows: rows.softmax(1), lambda rows: rows.softmax(-1), lambda rows: rows @ torch.ones(WIDTH, WIDTH).to(rows),
    lambda rows: rows[torch.arange(len(rows)).flip(0)], lambda rows: rows.t().reshape(-1, WIDTH),
    lambda rows: rows.flip(0), lambda rows: rows.softmax(0), lambda rows: rows.cumsum(0), lambda rows: rows.roll(1, 0),
    lambda rows: rows[rows.sum(1).argsort()], lambda rows: rows - rows.mean(0),
])  # fmt: skip
@pytest.mark.parametrize("examples", [LENGTH, 5, WIDTH])
def test_rows_that_were_moved_or_mixed_are_their_examples(between, examples):
    """On a batch these would combine neighbouring examples; a single example has none."""
    torch.manual_seed(0)
    model, x = nn.Linear(WIDTH, 4, bias=False), torch.randn(examples, LENGTH, WIDTH)

    def loss(m, x):
        return m(between(x.reshape(-1, WIDTH))).reshape(len(x), -1).square().mul(torch.linspace(0.5, 2, 12)).sum(1)

    assert_agrees(model, loss, x)


@pytest.mark.parametrize(("product", "shape"), [
    (lambda x, w: x @ w, (6, 6)), (lambda x, w: w @ x.mT, (6, 6)), (lambda x, w: x.matmul(w.t()), (6, 6)),
    (lambda x, w: torch.matmul(w, x.mT), (6, 6)), (lambda x, w: x @ w, (6,)),
    (lambda x, w: torch.einsum("bti,oi->bto", x, w), (6, 6)),
    (lambda x, w: torch.einsum("ij,bti->btj", w, x), (6, 6)), (lambda x, w: torch.einsum("bti,ijk->btjk", x, w), (6, 2, 3)),
    (lambda x, w: torch.einsum("bti,ti->bt", x, w), (6, 6)), (lambda x, w: torch.einsum("bti,bui,ij->btuj", x, x, w), (6, 6)),
    (lambda x, w: F.bilinear(x, x, w), (4, 6, 6)), (lambda x, w: torch.addmm(w[0], x[0], w)[None], (6, 6)),
    (lambda x, w: torch.addmm(w[0], x[0], w, beta=2.0, alpha=0.5)[None], (6, 6)), (lambda x, w: torch.tensordot(x, w, 1), (6, 6)),
    (lambda x, w: torch.bmm(x, w.expand(len(x), 6, 6)), (6, 6)), (lambda x, w: torch.mv(w, x[0, 0])[None], (6, 6)),
    (lambda x, w: torch.baddbmm(x, x, w.expand(1, 6, 6)), (6, 6)), (lambda x, w: (x[..., None] * w).sum(-2), (6, 6)),
    (lambda x, w: torch.kron(x[0], w)[None], (2, 2)), (lambda x, w: torch.linalg.multi_dot([x[0], w, x[0].mT])[None], (6, 6)),
])  # fmt: skip
def test_every_spelling_of_a_product_is_followed(product, shape):
    """As many examples as positions and elements."""
    torch.manual_seed(0)
    model, x = cases.With(lambda m, x: product(x, m.weight), weight=shape).double(), torch.randn(6, 6, 6, dtype=torch.float64)
    assert_agrees(model, cases.energy, (x,), 1e-10)


def turned(w):
    return torch.view_as_complex(w) * (1 + 2j)


COMPLEX = {
    "linear": lambda x, w: F.linear(torch.fft.fft(x), turned(w)), "matmul": lambda x, w: torch.fft.fft(x) @ turned(w),
    "matmul of a real input": lambda x, w: (x + 0j) @ turned(w), "real weights": lambda x, w: (x + 0j) * (x @ w[..., 0]),
    "vector": lambda x, w: torch.fft.fft(x) @ turned(w)[0], "left": lambda x, w: turned(w) @ torch.fft.fft(x).mT,
    "real weight": lambda x, w: torch.fft.fft(x) @ (w[..., 0] + 0j),
    "einsum": lambda x, w: torch.einsum("bti,io->bto", torch.fft.fft(x), turned(w)),
    "addmm": lambda x, w: torch.addmm(turned(w)[0], torch.fft.fft(x[0]), turned(w))[None],
    "convolution": lambda x, w: F.conv1d(torch.fft.fft(x), turned(w)[:, :, None]),
    "complex and real views": lambda x, w: x @ w[12:, :, 0] + ((x + 0j) @ torch.view_as_complex(w[12:])).real,
}  # fmt: skip


@pytest.mark.parametrize("name", COMPLEX)
def test_products_of_complex_numbers_are_followed(name):
    torch.manual_seed(0)

    def loss(m, x):
        out = torch.view_as_real(COMPLEX[name](x, m.weight) * (1 + 0j))
        return (out.square().sin() * torch.linspace(0.5, 1.5, out[0].numel()).view(out[0].shape)).flatten(1).sum(1)

    shape = (16, 4, 2) if name == "complex and real views" else (4, 4, 2)
    model, x = cases.With(None, weight=shape).double(), torch.randn(4, 4, 4, dtype=torch.float64)
    assert_agrees(model, loss, x, 1e-10)


def test_a_bias_that_torch_refuses_in_a_bilinear_map_is_refused():
    model = cases.With(lambda m, x: F.bilinear(x, x, m.weight, m.bias), weight=(4, 3, 3), bias=(1,))
    with pytest.raises(RuntimeError, match="size"):
        record(model, cases.energy, (torch.randn(5, 3),))


def test_equivalent_products_are_measured_as_linear_maps():
    for product in (lambda x, w: x @ w, lambda x, w: torch.einsum("bti,oi->bto", x, w), lambda x, w: w @ x.mT):
        model = cases.With(lambda m, x, product=product: product(x, m.weight), weight=(30, 30))
        grad = record(model, cases.energy, (torch.randn(3, 2, 30),)).grads["weight"]
        assert isinstance(getattr(grad, "inner", grad), LinearGrad)
