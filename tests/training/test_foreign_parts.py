from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

from one_layer import plan, setup
from privet import clipping, sampling
from privet.accounting import Event
from privet.errors import InvalidArgumentError
from rounding import assert_equal_up_to_rounding

N, C = 12, 0.4


@dataclass(frozen=True)
class ByLongest(clipping.NormRule):
    def factor(self, norms):
        return self.bound / norms.max() * torch.ones_like(norms)


@dataclass(frozen=True)
class Repeating(sampling.FullBatch):
    """Draws every example, some of them several times, and some that are not there."""

    event, pattern = sampling.FullBatch.event, sampling.FullBatch.pattern

    def draws(self, examples, words):
        for draw in super().draws(examples, words):
            yield np.concatenate([draw, draw[:3], [0, -1, examples, 10**9]])


@dataclass(frozen=True)
class Declared(sampling.Poisson):
    def event(self, examples, noise_multiplier, count):
        return Event(self.rate(examples), noise_multiplier, count)


def loss(model, batch):
    return model(batch[0]).square().sum(1)


def training_of(directory=None, **parts):
    torch.manual_seed(0)
    made = plan(steps=1, multiplier=0.0, examples=N, **{"sampling": sampling.FullBatch(), **parts})
    return setup(made, 5 * torch.randn(N, 3), directory, nn.Linear(3, 2), loss)


def test_a_rule_that_looks_at_the_batch_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(InvalidArgumentError, match=r"clipping is ByLongest.*depends on that example's norms only"):
        training_of(tmp_path / "run", clipping=ByLongest(C))
    assert not (tmp_path / "run").exists()


def test_an_example_that_a_sampler_draws_twice_counts_once():
    expected, found = training_of(), training_of(sampling=Repeating())
    expected.run()
    found.run()
    for one, other in zip(expected.model.parameters(), found.model.parameters(), strict=True):
        assert_equal_up_to_rounding(one, other)


def test_the_statement_names_what_privet_does_not_define():
    made = plan(examples=N, sampling=Declared(4), clipping=clipping.Layerwise(ByLongest(C)))
    words = "ByLongest, Declared, which Privet does not define, keep no state"
    assert sum(words in assumption for assumption in made.guarantee().assumptions) == 1
    assert not any("does not define" in assumption for assumption in plan(4, examples=N).guarantee().assumptions)
