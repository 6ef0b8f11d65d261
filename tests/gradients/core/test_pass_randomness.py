import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from privet._utils.randomness import preserve_generators
from privet.gradients.core.randomness import Draws, GeneratorWatch, draw_torch_seed, make_seed_source

CPU = torch.device("cpu")


def number(examples, generator):
    return torch.empty(examples, dtype=torch.float64).uniform_(generator=generator)


def counting():
    numbers = iter(range(10**6))
    return lambda: next(numbers)


@settings(max_examples=100)
@given(data=st.data(), examples=st.integers(1, 7))
def test_restarted_passes_repeat_the_numbers_drawn_before(data, examples):
    """A random tree of passes: each example's numbers continue those of all passes that were given up."""

    def go(draws, who, known):
        own = {example: list(known[example]) for example in who}
        calls = data.draw(st.integers(0, 4), label="calls")
        fresh = {example: [] for example in who}
        for _ in range(calls):
            for example, value in zip(who, draws.sample(number, CPU).tolist(), strict=True):
                fresh[example].append(value)
        for example in who:
            shared = min(len(own[example]), calls)
            assert fresh[example][:shared] == own[example][:shared]
            own[example] = fresh[example] if calls > len(own[example]) else own[example]
        everything.extend(value for example in who for value in fresh[example][len(known[example]) :])
        if len(who) > 1 and data.draw(st.booleans(), label="split"):
            first = data.draw(st.sets(st.sampled_from(range(len(who))), min_size=1, max_size=len(who) - 1), label="part")
            for part in (sorted(first), sorted({*range(len(who))} - first)):
                go(draws.restart(torch.tensor(part)), [who[i] for i in part], own)

    everything = []
    go(Draws(examples, counting()), list(range(examples)), {example: [] for example in range(examples)})
    assert len(set(everything)) == len(everything)  # all others are new


def test_draws_since_a_mark_are_repeated():
    draws = Draws(3, counting())
    draws.sample(number, CPU)
    mark = draws.mark()
    first = [draws.sample(number, CPU) for _ in range(2)]
    with draws.replay_from(mark):
        assert torch.equal(draws.sample(number, CPU), first[0])
    after = draws.sample(number, CPU)
    assert not any(torch.equal(after, one) for one in first)
    part = draws.restart(torch.tensor([2]))
    assert [float(part.sample(number, CPU)) for _ in range(4)][1:] == [float(first[0][2]), float(first[1][2]), float(after[2])]


@pytest.mark.parametrize("draw", [lambda: torch.rand(1), random.random, np.random.rand, lambda: random.seed(1), None])
def test_draws_from_global_generators_are_detected(draw):
    with preserve_generators():
        watch = GeneratorWatch()
        if draw is not None:
            draw()
        assert watch.has_advanced() == (draw is not None)


def test_torch_seeds_are_reproducible_and_differ():
    torch.manual_seed(3)
    one = [draw_torch_seed() for _ in range(5)]
    torch.manual_seed(3)
    assert one == [draw_torch_seed() for _ in range(5)]
    assert len(set(one)) == 5


def test_a_seed_source_uses_every_word_once():
    drawn = iter(range(0, 2_000, 2))
    seeds = make_seed_source(lambda size: np.array([next(drawn) for _ in range(size)], dtype=np.uint64))
    assert [seeds() for _ in range(200)] == list(range(200))
    seeds = make_seed_source(lambda size: np.full(size, 2**64 - 1, dtype=np.uint64))
    assert torch.Generator().manual_seed(seeds()).initial_seed() == 2**63 - 1
