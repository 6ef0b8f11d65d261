"""SENS: without noise, one example changes a clipped sum by at most its declared sensitivity, with and without masks."""

from itertools import cycle, product

import cases
import oracle
import pytest
import torch
from recording import make_scarce
from torch import nn

from privet.clipping import NORM_RULES, AdaptiveQuantile, Automatic, Flat, Global, Layerwise, Normalize
from privet.gradients import clipped_sum, per_example_norms
from privet.gradients.layers import linear
from privet.gradients.layers.convolution import gradient as convolution

BOUNDS = (1e-3, 0.7, 50.0)
SLACK = 1 + 1e-6
MODELS = cases.by_name(
    "logistic", "mlp", "tanh-cnn", "transformer", "tied head", "shared parameter", "module called on different lengths",
    "linear, few positions", "linear, many positions", "linear, one position", "conv2d few positions, wide", "scale and shift",
    "layer norm over positions", "lstm", "gru, two layers both ways", "lstm, packed", "GRUCell, step by step", "attention",
    "weight norm",
)  # fmt: skip
# One line per rule; three bounds each for the two most used.
RULES = [*dict.fromkeys([
    *(kind(bound=bound) for kind in (Flat, Automatic) for bound in BOUNDS),
    *(kind(bound=bound) for kind, bound in zip(NORM_RULES.values(), cycle((50.0, 1e-3, 0.7)))),
    Global(0.7, cutoff=30.0),
])]  # fmt: skip
# One line per style: a function of a rule and the parameter names.
STYLES = {
    "module": lambda rule, names: Layerwise(rule),
    "parameter": lambda rule, names: Layerwise(rule, by="parameter"),
    "own bounds and noise": lambda rule, names: Layerwise(growing(rule, names), by="parameter", noise="per group"),
    "patterns": lambda rule, names: Layerwise({"|".join(names[::2]): rule, ".*": Flat(0.7)} if len(names) > 1 else {".*": rule}),
    "adaptive": lambda rule, names: AdaptiveQuantile(rule, share=0.3),
    "adaptive by parameter": lambda rule, names: AdaptiveQuantile(Layerwise(rule, by="parameter"), share=0.05),
    "adapted": lambda rule, names: adapted(AdaptiveQuantile(Layerwise(rule, by="parameter", noise="per group")), names),
}


def growing(rule, names):
    """Return one rule per name, with bounds that grow by a quarter from one to the next."""
    return tuple(rule.scale_bound(1.25**k) for k in range(len(names)))


def adapted(rule, names):
    """Return the rule after a step that released different counts for every group."""
    return rule.adapt({"clipping:within bound": torch.linspace(-2.0, 3.0, len(names))}, divisor=7.0)


def heavy_tailed(case, examples, dtype):
    """Return examples whose inputs differ in size by eight orders of magnitude."""
    torch.manual_seed(3)
    sizes = 10 ** (8 * torch.rand(examples) - 4)

    def scaled(leaf):
        return leaf * sizes.to(dtype).view(-1, *[1] * (leaf.dim() - 1)) if leaf.is_floating_point() else leaf

    return tuple(map(scaled, case.batch(examples, dtype)))


def masks_for(model, density, seed=5):
    """Return random masks that keep this part of every trainable parameter; None for None."""
    generator = torch.Generator().manual_seed(seed)
    named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    drawn = {name: torch.rand(parameter.shape, generator=generator) for name, parameter in named.items()}
    return {name: numbers < density for name, numbers in drawn.items()} if density else None


def every(nth, values, number):
    """Return every nth value, from another one for each number, so that models and styles share the values."""
    return list(values)[number % nth :: nth]


def fast_in_turn(*choices):
    """Pairs of models and choices, of which `make test` takes half: four models the even choices, the next four the odd ones.

    So each choice meets all rules, which models take in turns of four.
    """
    numbered = product(enumerate(MODELS), enumerate(choices))
    return [cases.slow_unless((m // 4 + c) % 2 == 0, case, *choice) for (m, case), (c, choice) in numbered]


@pytest.mark.parametrize(("case", "examples", "density"), fast_in_turn((1, None), (7, None), (64, None), (7, 0.3)), ids=str)
def test_removing_any_example_moves_the_sum_by_at_most_the_sensitivity(case, examples, density):
    """A quarter of the rules for each model, and another one with masks; in a large batch, where sums round most, one."""
    model, batch = case.model(torch.float64), heavy_tailed(case, examples, torch.float64)
    masks = masks_for(model, density)
    neighbours = [oracle.without(batch, position) for position in range(0, examples, max(1, examples // 2))]
    number = MODELS.index(case)
    chosen = every(4, RULES, number + (2 if density else 0)) if examples == 7 else every(2, (Automatic(50.0), Flat(1e-3)), number)
    for rule in chosen:
        whole = clipped_sum(model, case.loss, batch, rule, method="ghost", masks=masks)
        assert whole.sensitivity == rule.sensitivity
        for rest in neighbours:
            smaller = clipped_sum(model, case.loss, rest, rule, method="ghost", masks=masks)
            assert oracle.moved(whole, smaller) <= rule.sensitivity * SLACK, rule


# The packed model takes a pass for each length; masks are for a few models.
STYLED = [
    *((case, "ghost", None) for case in MODELS if str(case) != "lstm, packed"),
    *((case, method, density) for case, method, density in zip(
        cases.by_name("mlp", "tanh-cnn", "linear, few positions", "mlp"), cycle(("ghost", "loop")), (0.1, None, 0.6, 0.6))),
]  # fmt: skip


@pytest.mark.product
@pytest.mark.parametrize(("case", "method", "density", "style"), [
    cases.slow_unless((MODELS.index(case) - number) % 3 == 0 or density, case, method, density, style)
    for case, method, density in STYLED for number, style in enumerate(STYLES)
], ids=str)  # fmt: skip
def test_in_every_style_removing_any_example_moves_the_sum_by_at_most_the_sensitivity(case, method, density, style):
    """The sum with its statistics, each part divided by its noise scale; one example of the seven is not finite.

    Models and styles share the rules: each pair of any two occurs.
    """
    model, batch = case.model(torch.float64), heavy_tailed(case, 7, torch.float64)
    batch[0][5] = torch.nan if batch[0].is_floating_point() else batch[0][5]
    masks, names = masks_for(model, density), [name for name, _ in model.named_parameters()]
    (kind,) = every(len(NORM_RULES), NORM_RULES.values(), MODELS.index(case) + list(STYLES).index(style))
    styled = STYLES[style](kind(bound=0.7), names)
    whole = clipped_sum(model, case.loss, batch, styled, method=method, masks=masks)
    assert whole.sensitivity == styled.sensitivity
    rest = (clipped_sum(model, case.loss, oracle.without(batch, i), styled, method=method, masks=masks) for i in (0, 3, 5))
    parts = [oracle.moved(whole, smaller) / styled.sensitivity for smaller in rest]
    assert all(part <= SLACK for part in parts)
    assert max(parts) > 0.4 or kind is Global  # some example comes near the bound, unless all are too long for a global rule


@pytest.mark.product
@pytest.mark.parametrize(("case", "density", "method", "scarce"), fast_in_turn(
    (None, "ghost", False), (0.1, "ghost", False), (0.6, "loop", False), (0.6, "ghost", True),
), ids=str)  # fmt: skip
def test_one_example_contributes_at_most_the_bound_in_float32(case, density, method, scarce, monkeypatch):
    if scarce:
        make_scarce(monkeypatch)
    model, batch = case.model(), heavy_tailed(case, 7, torch.float32)
    masks, number = masks_for(model, density), MODELS.index(case)
    rules = every(4, RULES, number) if density is None else (Flat(BOUNDS[number % 3]), Automatic(50.0))
    for rule, position in product(rules, range(number % 2, 7, 1 if density is None else 2)):
        alone = oracle.select(batch, slice(position, position + 1))
        found = clipped_sum(model, case.loss, alone, rule, method=method, masks=masks).tensors
        assert oracle.size(found) <= rule.sensitivity * (1 + 1e-7), rule


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("case", cases.by_name("mlp", "linear, few positions"), ids=str)
def test_in_every_style_one_example_contributes_at_most_the_sensitivity_in_float32(case, style):
    model, batch = case.model(), heavy_tailed(case, 7, torch.float32)
    names = [name for name, _ in model.named_parameters()]
    rules = [kind(bound=bound) for kind in NORM_RULES.values() for bound in (1e-3, 50.0)]
    for rule in every(6, rules, len(case.name) + list(STYLES).index(style)):
        styled = STYLES[style](rule, names)
        nobody = clipped_sum(model, case.loss, oracle.select(batch, slice(0, 0)), styled, method="ghost")
        for position in range(7):
            alone = clipped_sum(model, case.loss, oracle.select(batch, slice(position, position + 1)), styled, method="ghost")
            assert oracle.moved(alone, nobody) <= styled.sensitivity * (1 + 1e-7)


SMALL = cases.by_name("logistic", "mlp", "tanh-cnn", "linear", "linear, few positions", "layer norm", "scale and shift")
EXTREME = [
    (torch.nan, True), (torch.inf, True), (-torch.inf, False), (3e38, True), (-3e38, False), (1e25, True), (1e19, False),
    (0.0, True),
]  # fmt: skip
FOUR = [Flat(0.7), Automatic(50.0), Normalize(0.7), Global(0.7, cutoff=30.0)]


@pytest.mark.parametrize(("value", "whole"), EXTREME, ids=str)
@pytest.mark.parametrize(("case", "method", "density"), [
    *((case, "ghost", density) for case, density in zip(SMALL, cycle((None, 0.1, None, 0.6)))),
    *((case, "ghost", None) for case in cases.by_name("tanh-cnn", "linear, few positions")),
    *((case, "loop", None) for case in cases.by_name("mlp", "scale and shift")),
], ids=str)  # fmt: skip
def test_whatever_an_example_holds_it_moves_the_sum_by_at_most_the_bound(case, method, density, value, whole, monkeypatch):
    """A gradient that is not finite contributes nothing. Models and values share the rules."""
    if density == 0.6:
        make_scarce(monkeypatch)
    model, batch = case.model(), case.batch(7)
    batch[0][3].view(-1)[slice(None) if whole else 2] = value
    masks = masks_for(model, density)
    rule = FOUR[(EXTREME.index((value, whole)) + SMALL.index(case)) % 4]
    with_it = clipped_sum(model, case.loss, batch, rule, method=method, masks=masks)
    rest = clipped_sum(model, case.loss, oracle.without(batch, 3), rule, method=method, masks=masks)
    finite = bool(torch.isfinite(with_it.norms[3]))  # a saturated tanh still has a gradient
    allowed = rule.sensitivity * SLACK if finite else 1e-6 * (1 + rule.sensitivity)
    assert oracle.distance(with_it.tensors, rest.tensors) <= allowed


def steady(model, batch):
    """Return a loss that is linear in the output, so that the gradient is proportional to the input."""
    out = model(*batch)
    out = out.reshape(len(out), -1)
    return (out * torch.linspace(-1, 1.5, out.shape[1]).to(out)).sum(1)


OVERFLOWING = cases.by_name(
    "logistic", "linear", "linear, few positions", "linear, many positions", "linear, one position", "conv2d plain",
    "conv2d groups", "conv2d few positions, wide", "scale and shift", "scalar times one number",
)  # fmt: skip


@pytest.mark.parametrize(("rule", "keep", "value"), [
    (Flat(1e-3), 0, 1e18), (Flat(0.7), 1 << 23, 1e30), (Automatic(50.0), 0, 1e30), (Automatic(50.0), 1 << 23, 1e18),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("case", OVERFLOWING, ids=str)
def test_where_only_the_squared_norm_overflows_the_example_is_clipped_exactly(case, value, rule, keep, monkeypatch):
    monkeypatch.setattr(linear, "KEEP", keep)
    monkeypatch.setattr(convolution, "KEEP", keep)
    model, batch = case.model(), case.batch(3)[:1]
    batch[0][1] *= value
    alone = oracle.select(batch, slice(1, 2))
    expected = oracle.plain_gradients(model, steady, alone)
    length = oracle.size(expected)
    found = clipped_sum(model, steady, alone, rule, method="ghost")
    direction = {name: tensor[0] * (oracle.SHRINK * rule.bound / length) for name, tensor in expected.items()}
    assert oracle.distance(found.tensors, direction) <= 1e-5 * rule.bound
    assert found.norms.item() == pytest.approx(length, rel=1e-5)
    assert per_example_norms(model, steady, alone, method="ghost").item() == pytest.approx(length, rel=1e-5)
    assert oracle.size(found.tensors) <= rule.bound
    among = clipped_sum(model, steady, batch, rule, method="ghost")
    rest = clipped_sum(model, steady, oracle.without(batch, 1), rule, method="ghost")
    difference = {name: among.tensors[name] - rest.tensors[name] for name in rest.tensors}
    assert oracle.distance(difference, direction) <= 1e-5 * (rule.bound + oracle.size(rest.tensors))


@pytest.mark.parametrize("loss_scale", [1e12, 1e17, 1e19])
@pytest.mark.parametrize("bound", BOUNDS)
def test_weights_too_small_for_float32_do_not_round_up(bound, loss_scale):
    model, batch = nn.Linear(3, 2, bias=False), torch.full((1, 3), 1e18)
    found = clipped_sum(model, lambda m, x: (m(x) * loss_scale).sum(1), batch, Flat(bound), method="ghost")
    assert bound * (1 - 2e-6) <= oracle.size(found.tensors) <= bound


@pytest.mark.parametrize("scale", [1.0, 1e2, 1e3, 1e4, 1e6])
@pytest.mark.parametrize("kind", ["linear", "convolution"])
def test_positions_that_cancel_do_not_hide_a_long_gradient(kind, scale, monkeypatch):
    """Gram matrices square the terms; after cancellation the remainder is lost to rounding unless it is recomputed."""
    monkeypatch.setattr(convolution, "KEEP", 0)
    torch.manual_seed(0)
    long, pattern = scale * torch.randn(5, 1, 40), torch.randn(30)
    x = torch.cat([long, long + torch.randn(5, 1, 40)], 1)
    linear_map = kind == "linear"
    model = nn.Linear(40, 30, bias=False) if linear_map else nn.Conv1d(40, 30, 1, bias=False)

    def difference(m, x):
        out = m(x) if linear_map else m(x.transpose(1, 2)).transpose(1, 2)
        return ((out[:, 0] - out[:, 1]) * pattern).sum(1)

    lengths = pattern.double().norm() * (x[:, 0].double() - x[:, 1].double()).norm(dim=1)
    for position, length in enumerate(lengths):
        found = clipped_sum(model, difference, x[position : position + 1], Flat(0.7), method="ghost")
        assert oracle.size(found.tensors) <= 0.7 * SLACK
        assert length * (1 - 1e-6) <= found.norms.item() <= length * (1 + 1e-2)


@pytest.mark.parametrize("method", ["ghost", "loop"])
def test_opposite_giants_do_not_cancel_before_they_are_clipped(method):
    """Clipping the sum, or the mean, instead of every example lets 1000 and −999 pass as 1."""
    model = nn.Linear(2, 1, bias=False)
    giants = torch.tensor([[1000.0, 0.0], [-999.0, 0.0], [0.0, 0.5]])
    found = clipped_sum(model, lambda m, x: m(x)[:, 0], giants, Flat(0.7), method=method).tensors["weight"]
    assert torch.allclose(found, torch.tensor([[0.0, 0.5]]), atol=1e-6)
    many = clipped_sum(model, lambda m, x: m(x)[:, 0], giants[:1].expand(64, 2), Flat(0.7), method=method).tensors["weight"]
    assert torch.allclose(many, torch.tensor([[64 * 0.7, 0.0]]), rtol=1e-5)  # equal ones count as often as they occur
