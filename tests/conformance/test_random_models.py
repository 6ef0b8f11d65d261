"""Random trees of modules: independent of shapes, ties, reuse, precision, physical batch sizes and gradient scales."""

import oracle
import pytest
import torch
from cases import With
from hypothesis import given, settings
from hypothesis import strategies as st
from recording import cover, make_scarce
from torch import nn

from privet.clipping import Flat
from privet.gradients import clipped_sum

WIDTH = 6


class Residual(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return x + self.inner(x)


def _function(function, **children):
    return lambda: With(function, **{name: make() for name, make in children.items()})


# Every layer maps (B, T, WIDTH) to the same shape.
LAYERS = {
    "linear": lambda: nn.Linear(WIDTH, WIDTH),
    "wide": lambda: nn.Sequential(nn.Linear(WIDTH, 23), nn.GELU(), nn.Linear(23, WIDTH, bias=False)),
    "norm": lambda: nn.LayerNorm(WIDTH),
    "rms": lambda: nn.RMSNorm(WIDTH, eps=1e-6),
    "time-major": _function(lambda m, x: m.a(x.transpose(0, 1)).transpose(0, 1), a=lambda: nn.Linear(WIDTH, WIDTH)),
    "flattened": _function(lambda m, x: m.a(x.reshape(-1, WIDTH)).view(x.shape), a=lambda: nn.Linear(WIDTH, WIDTH)),
    "transposed": _function(lambda m, x: x @ m.a.weight.t(), a=lambda: nn.Linear(WIDTH, WIDTH, bias=False)),
    "convolution": _function(lambda m, x: m.a(x.mT).mT, a=lambda: nn.Conv1d(WIDTH, WIDTH, 3, padding=1)),
    "depthwise": _function(lambda m, x: m.a(x.mT).mT, a=lambda: nn.Conv1d(WIDTH, WIDTH, 3, padding=1, groups=WIDTH)),
    "group norm": _function(lambda m, x: m.a(x.mT).mT, a=lambda: nn.GroupNorm(2, WIDTH)),
    "attention": _function(lambda m, x: m.a(x, x, x)[0], a=lambda: nn.MultiheadAttention(WIDTH, 2, batch_first=True)),
    "gru": _function(lambda m, x: m.a(x)[0], a=lambda: nn.GRU(WIDTH, WIDTH, batch_first=True)),
    "weight norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH)),
    "slopes": nn.PReLU,
    "tanh": nn.Tanh,
}


@st.composite
def trees(draw):
    """Return a list of layers, each new or an earlier one (a tie), plain or with a residual connection."""
    torch.manual_seed(draw(st.integers(0, 1000)))
    layers = []
    for _ in range(draw(st.integers(1, 5))):
        if layers and draw(st.booleans()) and draw(st.booleans()):
            layers.append(draw(st.sampled_from(layers)))
            continue
        layer = LAYERS[draw(st.sampled_from(sorted(LAYERS)))]()
        layers.append(Residual(layer) if draw(st.booleans()) else layer)
    model = nn.Sequential(*layers)
    if not list(model.parameters()):
        model.append(nn.Linear(WIDTH, WIDTH))
    frozen = draw(st.sets(st.sampled_from([name for name, _ in model.named_parameters()])))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in frozen or len(frozen) == len(list(model.parameters())))
    return model


@settings(max_examples=40, deadline=None)
@given(
    model=trees(), examples=st.integers(1, 6), length=st.integers(1, 6), scale=st.sampled_from([1e-8, 1.0, 1e8]),
    part=st.integers(1, 7), double=st.booleans(), scarce=st.booleans(),
)  # fmt: skip
def test_the_tape_is_right(model, examples, length, scale, part, double, scarce):
    dtype = torch.float64 if double else torch.float32
    model, x = model.to(dtype), torch.randn(examples, length, WIDTH, dtype=dtype)

    def loss(m, x):
        out = m(x).flatten(1)
        return scale * ((out - 1).square() * torch.linspace(0.5, 1.5, out.shape[1]).to(out)).mean(1)

    expected = oracle.plain_gradients(model, loss, x)
    tolerance = 1e-10 if double else 2e-5
    with pytest.MonkeyPatch.context() as patch:
        if scarce:
            make_scarce(patch)
        covered = cover(model, loss, x)
        summed = clipped_sum(model, loss, x, Flat(0.3 * scale), method="ghost", physical_batch_size=part)
    assert (covered.looped, covered.groups) == (0, 1)
    assert oracle.relative_error(covered.gradients, expected) <= tolerance
    assert oracle.relative_error(summed.tensors, oracle.plain_clipped_sum(expected, "Flat", 0.3 * scale)) <= tolerance
