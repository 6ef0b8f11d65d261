import itertools

import cases
import numpy as np
import pytest
import torch
from recording import Seen, cover, physical
from scipy import stats
from torch import nn
from torch.nn import functional as F

from rounding import assert_equal_up_to_rounding

HALF = torch.full((50,), 0.5)
# Name → (function of an example's tensor (1, 50), its distribution: continuous, or probabilities of values)
LAWS = {
    "rand": (lambda x: torch.rand(1, 50), stats.uniform()),
    "rand of a size": (lambda x: torch.rand((1, 50), dtype=torch.float64), stats.uniform()),
    "rand_like": (torch.rand_like, stats.uniform()),
    "randn": (lambda x: torch.randn(1, 50), stats.norm()),
    "randn_like": (lambda x: torch.randn_like(x, dtype=torch.float64), stats.norm()),
    "normal": (lambda x: torch.normal(2.0, 3.0, (1, 50)), stats.norm(2, 3)),
    "normal of tensors": (lambda x: torch.normal(0 * x + 1, 0 * x + 2), stats.norm(1, 2)),
    "normal_": (lambda x: torch.ones(1, 50).normal_(1, 2), stats.norm(1, 2)),
    "uniform_": (lambda x: x.clone().uniform_(3, 5), stats.uniform(3, 2)),
    "exponential_": (lambda x: torch.empty(1, 50).exponential_(2.0), stats.expon(scale=0.5)),
    "cauchy_": (lambda x: torch.empty(1, 50).cauchy_(), stats.cauchy()),
    "log_normal_": (lambda x: torch.empty(1, 50).log_normal_(0.0, 0.5), stats.lognorm(0.5)),
    "randint": (lambda x: torch.randint(3, (1, 50)), {0: 1 / 3, 1: 1 / 3, 2: 1 / 3}),
    "randint from": (lambda x: torch.randint(-1, 1, (1, 50)), {-1: 0.5, 0: 0.5}),
    "randint below a NumPy integer": (lambda x: torch.randint(np.int64(2), (1, 50)), {0: 0.5, 1: 0.5}),
    "randint below a tensor": (lambda x: torch.randint(1, torch.tensor(3), (1, 50)), {1: 0.5, 2: 0.5}),
    "randint by name": (lambda x: torch.randint(low=4, high=6, size=(1, 50)), {4: 0.5, 5: 0.5}),
    "randint_like below a NumPy integer": (lambda x: torch.randint_like(x, np.int64(2)), {0.0: 0.5, 1.0: 0.5}),
    "randint_like": (lambda x: torch.randint_like(x, 2), {0.0: 0.5, 1.0: 0.5}),
    "bernoulli": (lambda x: torch.bernoulli(HALF / 5)[None], {0.0: 0.9, 1.0: 0.1}),
    "bernoulli of an example": (lambda x: (x * 0 + 0.3).bernoulli(), {0.0: 0.7, 1.0: 0.3}),
    "bernoulli_": (lambda x: torch.empty(1, 50).bernoulli_(0.2), {0.0: 0.8, 1.0: 0.2}),
    "geometric_": (lambda x: torch.empty(1, 50).geometric_(0.5).clamp(max=3), {1.0: 0.5, 2.0: 0.25, 3.0: 0.25}),
    "multinomial": (lambda x: torch.multinomial(torch.tensor([1.0, 3.0]), 50, True)[None], {0: 0.25, 1: 0.75}),
    "multinomial, the first": (
        lambda x: torch.multinomial(torch.tensor([[1.0, 3.0, 4.0]]), 2), {(0, 1): 1 / 8 * 3 / 7, (0, 2): 1 / 8 * 4 / 7,
        (1, 0): 3 / 8 * 1 / 5, (1, 2): 3 / 8 * 4 / 5, (2, 0): 1 / 2 * 1 / 4, (2, 1): 1 / 2 * 3 / 4}),
    "randperm": (lambda x: torch.randperm(3)[None], dict.fromkeys(itertools.permutations(range(3)), 1 / 6)),
    "dropout": (lambda x: F.dropout(x * 0 + 1, 0.25), {0.0: 0.25, round(4 / 3, 5): 0.75}),
    "dropout in place": (lambda x: F.dropout(x * 0 + 1, 0.25, inplace=True), {0.0: 0.25, round(4 / 3, 5): 0.75}),
    "dropout of channels": (lambda x: F.dropout2d((x * 0 + 1).view(1, 25, 2, 1), 0.5).sum((2, 3)), {0.0: 0.5, 4.0: 0.5}),
    "alpha dropout": (lambda x: (F.alpha_dropout(x * 0 + 1, 0.5, training=True) > 0).float(), {0.0: 0.5, 1.0: 0.5}),
    "rrelu": (lambda x: F.rrelu(x * 0 - 1, 0.25, 0.5, training=True), stats.uniform(-0.5, 0.25)),
    "rrelu in place": (lambda x: F.rrelu(x * 0 - 1, 0.25, 0.5, training=True, inplace=True), stats.uniform(-0.5, 0.25)),
    "gumbel_softmax": (lambda x: F.gumbel_softmax(torch.tensor([[0.0, 0]]) + x[:, :2] * 0, 1.0)[:, :1], stats.uniform()),
    "gumbel_softmax, hard": (
        lambda x: F.gumbel_softmax(x.view(1, 25, 2) + torch.tensor([1.0, 3]).log(), 0.3, hard=True)[..., 0].round(),
        {0.0: 0.75, 1.0: 0.25}),
    "gumbel_softmax of many": (  # the law of two is the same if the noise has the other sign
        lambda x: F.gumbel_softmax(x.view(1, 5, 10) + torch.tensor([9.0] + [1.0] * 9).log(), 1.0, hard=True)[..., 0].round(),
        {0.0: 0.5, 1.0: 0.5}),
    "attention": (
        lambda x: F.scaled_dot_product_attention(*((x * 0 + 1).view(1, 50, 1)[:, :n] for n in (50, 1, 1)), dropout_p=0.5)[..., 0],
        {0.0: 0.5, 2.0: 0.5}),
}  # fmt: skip


def drawn(function, examples, method="auto", dtype=torch.float32):
    """Return the draws of several equal examples, (B, …)."""
    seen, model, x = Seen(), nn.Linear(50, 1).to(dtype), torch.zeros(examples, 50, dtype=dtype)

    def loss(m, x):
        found = function(x)
        seen(physical(found).detach())
        return m(x)[:, 0] + 0 * found.sum()

    looped = cover(model, loss, x, method).looped
    return torch.cat(seen.items[-looped:] if looped else seen.items[-1:]), looped


def p_value(values, law):
    if not isinstance(law, dict):
        return stats.kstest(values.flatten().double().numpy(), law.cdf).pvalue
    wide = isinstance(next(iter(law)), tuple)
    rows = [tuple(row) for row in values.tolist()] if wide else [round(v, 5) for v in values.flatten().tolist()]
    assert set(rows) <= set(law)
    return stats.chisquare([rows.count(key) for key in law], [chance * len(rows) for chance in law.values()]).pvalue


@pytest.mark.parametrize("name", LAWS)
def test_laws_are_torchs_and_every_examples_own(name, holds_twice):
    function, law = LAWS[name]

    def experiment():
        values, looped = drawn(function, 400)
        assert looped == 0
        first, second = values[:200].double(), values[200:].double()
        pearson = stats.spearmanr(first.flatten().numpy(), second.flatten().numpy()).pvalue
        return {"law": p_value(values, law), "examples": pearson}

    holds_twice(experiment)


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shapes_and_types_are_torchs(name, dtype):
    function, _ = LAWS[name]
    plain = function(torch.zeros(1, 50, dtype=dtype))
    for method in ("auto", "loop"):
        found, _ = drawn(function, 3, method, dtype)
        assert found.dtype == plain.dtype
        assert found.shape == (3 * len(plain), *plain.shape[1:])


def test_without_chance_nothing_is_drawn_or_everything_is_dropped():
    assert (drawn(lambda x: F.dropout(x + 1, 0.0), 3)[0] == 1).all()
    assert (drawn(lambda x: F.dropout(x + 1, 0.5, training=False), 3)[0] == 1).all()
    assert not drawn(lambda x: F.dropout(x + 1, 1.0), 3)[0].any()


def test_values_beside_chances_are_torchs_and_bounds_are_each_examples_own():
    own = drawn(lambda x: F.alpha_dropout(x + 2, 0.3, training=True), 5)[0]
    plain = F.alpha_dropout(torch.full((5, 50), 2.0), 0.3, training=True)
    assert torch.allclose(own.unique(), plain.unique(), rtol=1e-5)
    assert (drawn(lambda x: F.rrelu(x + 2, training=True), 3)[0] == 2).all()
    assert (drawn(lambda x: F.rrelu(x - 2), 3)[0] == F.rrelu(torch.tensor(-2.0))).all()
    bounds, model = torch.tensor([[2.0], [1000.0]]), nn.Linear(1, 1)
    covered = cover(model, lambda m, x: m(x)[:, 0] * torch.randint(x[0, 0].long(), (50,)).max(), bounds)
    assert covered.gradients["bias"][0] == 1
    assert 100 < covered.gradients["bias"][1] < 1000


OPTIONS = {
    "plain": {}, "scale": {"scale": 0.3}, "causal": {"is_causal": True}, "keys of groups": {"enable_gqa": True},
    "bool": {"attn_mask": torch.tensor([[True, False, True], [True, True, True], [False, True, True]])},
    "float": {"attn_mask": torch.tensor([[0.0, -1, 2], [1, 0, 0], [0.5, 0, -2]])},
    "a blind row": {"attn_mask": torch.tensor([[False, False, False], [False, True, True], [False, True, False]])},
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIONS)
def test_attention_that_drops_nothing_is_torchs(name):
    x, options = torch.randn(1, 4, 3, 5), OPTIONS[name]
    keys = x[:, :2] if "enable_gqa" in options else x.flip(2)
    found, looped = drawn(lambda _: F.scaled_dot_product_attention(x, keys, keys.tanh(), dropout_p=1e-30, **options), 2)
    assert looped == 0
    expected = F.scaled_dot_product_attention(x, keys, keys.tanh(), **options)
    torch.testing.assert_close(found, expected.expand_as(found), rtol=1e-5, atol=1e-6)


def test_a_position_that_sees_nothing_leaves_the_gradients_of_others_finite():
    """Padding on the left hides all keys from the padding itself."""
    model, x = nn.Linear(5, 5), torch.randn(3, 4, 5)
    mask = torch.full((4, 4), -torch.inf).triu(1)
    mask[:, 0] = -torch.inf

    def loss(m, x):
        return F.scaled_dot_product_attention(m(x), x, x, attn_mask=mask, dropout_p=0.1)[:, 1:].sum((1, 2))

    assert cover(model, loss, x, "auto").norms.isfinite().all()


@pytest.mark.parametrize("hard", [False, True])
def test_choices_have_the_gradient_of_relaxed_ones(hard):
    """At a high temperature, where the Jacobian is that of softmax at equal logits."""
    model, x = nn.Linear(3, 2, bias=False), torch.randn(4, 3)
    covered = cover(model, lambda m, x: F.gumbel_softmax(1e4 * m(x), tau=1e6, hard=hard)[:, 0], x)
    expected = torch.einsum("o,bi->boi", torch.tensor([0.25, -0.25]) / 100, x)
    assert covered.looped == 0
    assert torch.allclose(covered.gradients["weight"], expected, rtol=0.1, atol=1e-5)


INTO = {
    "rand": (lambda out: torch.rand(1, 50, out=out), torch.float64), "randn": (lambda out: torch.randn(1, 50, out=out), None),
    "randint": (lambda out: torch.randint(1, 9, (1, 50), out=out), None),
    "randperm": (lambda out: torch.randperm(50, out=out), torch.int64),
    "bernoulli": (lambda out: torch.bernoulli(torch.ones(1, 50), out=out), None),
    "normal": (lambda out: torch.normal(torch.ones(1, 50), 1.0, out=out), None),
    "multinomial": (lambda out: torch.multinomial(torch.ones(1, 50), 50, out=out), torch.int64),
}  # fmt: skip


@pytest.mark.parametrize("method", ["auto", "loop"])
@pytest.mark.parametrize("size", [50, 0])
@pytest.mark.parametrize("kind", INTO)
def test_random_numbers_are_written_where_a_model_asks_for_them(kind, size, method):
    function, dtype = INTO[kind]

    def draw(x):
        out = torch.zeros((size,) if kind == "randperm" else (1, size), dtype=dtype)
        assert function(out) is out
        assert out.dtype == (dtype or torch.float32)
        return out.view(1, 50)

    found, looped = drawn(draw, 4, method)
    assert looped == (0 if size and method == "auto" else 4)
    assert found.any(1).all()
    assert kind == "bernoulli" or len(found.unique(dim=0)) == 4


@pytest.mark.parametrize("method", ["auto", "loop"])
@pytest.mark.parametrize("make", [
    lambda x: torch.randn(x.shape, requires_grad=True), lambda x: torch.rand_like(x, requires_grad=True),
    lambda x: torch.normal(0.0, 1.0, x.shape, requires_grad=True),
], ids=["randn", "rand_like", "normal"])  # fmt: skip
def test_random_numbers_may_require_a_gradient(make, method):
    """Such as the direction of a penalty on the gradient of the input."""
    model, x = nn.Linear(3, 1, bias=False), torch.randn(4, 3)

    def penalty(m, x):
        d = make(x)
        assert d.requires_grad
        (g,) = torch.autograd.grad(m(x + d).sum(), d, create_graph=True)
        return g.square().sum(1)

    found = cover(model, penalty, x, method).gradients["weight"]
    assert_equal_up_to_rounding(found, 2 * model.weight.detach().expand(4, 1, 3))


UNRULED = {
    "poisson": lambda g: torch.poisson(torch.ones(1, 50), generator=g), "binomial": lambda g: torch.binomial(
        torch.full((1, 50), 9.0), torch.full((1, 50), 0.5), generator=g),
    "initialiser": lambda g: nn.init.normal_(torch.empty(1, 50), generator=g),
}  # fmt: skip


@pytest.mark.parametrize("kind", UNRULED)
def test_generators_of_users_are_not_drawn_from(kind):
    """Not even by functions that have no rule: examples would share one stream."""
    own = torch.Generator().manual_seed(1)
    before = own.get_state()
    found, looped = drawn(lambda x: UNRULED[kind](own), 6)
    assert looped == 6
    assert torch.equal(own.get_state(), before)
    assert len(found.unique(dim=0)) == 6


SEEDED = {
    "gamma": lambda x: torch._standard_gamma(torch.ones(1, 50)),
    "dirichlet": lambda x: torch._sample_dirichlet(torch.ones(1, 50)),
    "without a batching rule": lambda x: torch.rrelu(0 * x - 1, training=True),
}  # fmt: skip


@pytest.mark.parametrize("kind", SEEDED)
@pytest.mark.parametrize("forked", [False, True])
def test_numbers_under_a_seed_of_the_users_are_each_examples_own(kind, forked):
    """Each example draws what it would draw alone, although the generator is as before afterwards."""

    def draw(x):
        with torch.random.fork_rng(devices=[], enabled=forked):
            torch.manual_seed(3)
            return SEEDED[kind](x)

    found, _ = drawn(draw, 4)
    assert len(found.unique(dim=0)) == 1


@pytest.mark.parametrize("method", ["auto", "loop"])
def test_normal_numbers_are_constants_as_in_torch(method):
    """A policy's gradient would vanish if it reached the mean through the sample, too."""

    def policy(m, x):
        mean = x @ m.weight
        drawn = torch.normal(mean, m.log_scale.exp())
        return (drawn + torch.normal(mean, 1.0)).sum(1) + 2 * mean[:, 0]

    x = torch.randn(4, 3)
    covered = cover(cases.With(policy, weight=(3, 1), log_scale=()), lambda m, x: m(x), x, method)
    assert torch.equal(covered.gradients["weight"], 2 * x[..., None])
    assert not covered.gradients["log_scale"].any()
    assert covered.looped == (4 if method == "loop" else 0)
