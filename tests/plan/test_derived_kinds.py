from dataclasses import dataclass, fields

import numpy as np
import pytest

from plans import plan
from privet import clipping, momentum, noise, sampling
from privet._utils.registry import PARTS, is_own_kind, kinds_of
from privet.accounting import Event
from privet.errors import InvalidArgumentError
from privet.noise import NoiseMechanism
from privet.plan import ClassCounts, Holdout

SCHEMES = [
    sampling.Poisson(512), sampling.TruncatedPoisson(512, 700), sampling.FixedSize(512), sampling.FullBatch(),
    sampling.Shuffle(512), sampling.BallsInBins(512), sampling.FixedOrder(512), sampling.CyclicPoisson(512, 4),
]  # fmt: skip
NOISES = [kind for kind in kinds_of(NoiseMechanism).values() if is_own_kind(kind)]
ADJACENCY = {"FixedSize": "replace-one", "Shuffle": "replace-one"}


def derived(part, **members):
    """Return the part as one of a class that extends its own."""
    kind = type(part)
    made = dataclass(frozen=True)(type("Own", (kind,), members))
    return made(**{each.name: getattr(part, each.name) for each in fields(part)})


def everyone(self, examples, words):
    """Draw all examples at every step."""
    while True:
        yield np.arange(examples)


def test_every_scheme_is_here():
    assert {type(each) for each in SCHEMES} == {kind for kind in kinds_of(sampling.Scheme).values() if is_own_kind(kind)}


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_a_scheme_that_draws_otherwise_is_not_accounted_for_as_the_one_that_it_extends(scheme):
    adjacency = ADJACENCY.get(type(scheme).__name__, "add-remove")
    with pytest.raises(
        InvalidArgumentError, match=r"^sampling is .*Own\(.*a scheme that declares .* beside the draws of its own"
    ):
        plan(sampling=derived(scheme, draws=everyone), adjacency=adjacency)
    assert plan(sampling=derived(scheme), adjacency=adjacency).events() == plan(sampling=scheme, adjacency=adjacency).events()


@pytest.mark.parametrize(
    ("scheme", "method"),
    [(sampling.Poisson(512), "draw"), (sampling.BallsInBins(512), "partition"), (sampling.Shuffle(512), "partition")],
)
def test_what_draws_is_called_by_another_method_too(scheme, method):
    with pytest.raises(InvalidArgumentError, match="beside the draws of its own"):
        plan(sampling=derived(scheme, **{method: lambda self, examples, words: []}), adjacency="replace-one")


def test_a_scheme_that_declares_its_draws_is_accounted_for_by_what_it_declares():
    own = derived(
        sampling.Poisson(512), draws=everyone, rate=lambda self, examples: 1.0,
        event=lambda self, examples, noise_multiplier, count: Event(1.0, noise_multiplier, count),
    )  # fmt: skip
    assert plan(sampling=own).events() == (Event(1.0, 2.3, 300),)


@pytest.mark.parametrize("kind", NOISES, ids=lambda kind: kind.__name__)
def test_a_noise_of_ones_own_is_refused(kind):
    quiet = type("Quiet", (kind,), {"make_source": lambda self: noise.FixedSource(0)})
    with pytest.raises(InvalidArgumentError, match=r"^noise is 'Quiet'; it must be a kind that Privet defines"):
        plan(sampling=sampling.FixedOrder(512), noise=quiet(multiplier=2.3))


def test_a_kind_that_takes_the_name_of_privets_own_is_refused():
    named = type("Gaussian", (noise.Gaussian,), {})
    assert PARTS["Gaussian"] is noise.Gaussian
    with pytest.raises(InvalidArgumentError, match="a kind that Privet defines"):
        plan(noise=named(2.3))


@pytest.mark.parametrize("field", ["holdout", "class_counts"])
def test_a_query_of_ones_own_is_refused(field):
    query = {"holdout": Holdout(multiplier=30.0, examples=500), "class_counts": ClassCounts(multiplier=30.0)}[field]
    hidden = derived(query, event=property(lambda self: Event(1.0, 1e6)))
    with pytest.raises(InvalidArgumentError, match=rf"^{field} is 'Own'; it must be a kind that Privet defines"):
        plan(**{field: hidden})


def test_a_kind_that_overrides_the_check_of_combinations_does_not_drop_it():
    anything = {"check_combination": lambda self, plan: None}
    with pytest.raises(InvalidArgumentError, match="used with full batches"):
        plan(momentum=derived(momentum.PerExample(0.5), **anything))
    rule = derived(clipping.AdaptiveQuantile(clipping.Flat(0.7)), **anything)
    with pytest.raises(InvalidArgumentError, match="'relative' with Own"):
        plan(clipping=rule, noise=noise.Gaussian(2.3, deviation="fixed"))
