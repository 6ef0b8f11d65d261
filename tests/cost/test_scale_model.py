"""The model of many GPUs, the simulation of balance, and that the page has the tables of the program."""

from dataclasses import asdict
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest
from benchmarks import scale
from benchmarks import scale_model as model
from benchmarks.latencies import measure

from privet.distributed import World
from privet.sampling import Poisson

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"
EVERY = [(kind, each, world) for kind in model.KINDS for each in model.MODELS for world in model.WORLDS]


def draws(batch, examples, number, seed=0):
    generator = np.random.default_rng(seed)
    words = lambda size: generator.integers(0, 2**64, size=size, dtype=np.uint64)  # noqa: E731
    return list(islice(Poisson(batch).draws(examples, words), number))


@pytest.mark.parametrize("make", scale.MODELLED)
def test_the_page_has_the_tables_of_the_program(make):
    assert make().markdown() in PAGE.read_text(encoding="utf-8")


def test_the_page_has_the_simulation_of_the_program():
    simulated = {tuple(row.strip("| ").split(" | ")[:2]): row for row in PAGE.read_text(encoding="utf-8").splitlines()}
    for batch, world in ((256, 64), (4096, 8)):
        values = asdict(scale.simulate(batch, world)).values()
        assert simulated[f"{batch:,}", f"{world:,}"].strip("| ").split(" | ")[2:] == [f"{value:.2f}" for value in values]


@pytest.mark.parametrize(("kind", "each", "world"), EVERY)
def test_every_term_takes_time_and_every_part_takes_memory(kind, each, world):
    assert min(asdict(model.step(kind, each, world)).values()) > 0
    assert model.memory(kind, each, world) > model.state(kind, each, world) > 0


@pytest.mark.parametrize("kind", model.KINDS)
@pytest.mark.parametrize("each", model.MODELS)
def test_a_step_is_shorter_on_more_gpus_until_what_they_tell_each_other_takes_longer_than_compute(kind, each):
    steps = [model.step(kind, each, world) for world in model.WORLDS]
    for fewer, more in pairwise(steps):
        assert more.compute < fewer.compute
        assert more.total < fewer.total or more.votes + more.latency > more.compute


def test_a_small_model_on_many_gpus_waits_for_votes():
    small = model.step("data parallel", model.MODELS[0], 1024)
    assert small.votes == max(asdict(small).values())


def test_shards_take_memory_that_falls_with_the_number_of_ranks():
    for each in model.MODELS:
        shards = [model.state("by module", each, world) - 12 * each.largest_module for world in model.WORLDS]
        products = [world * shard for world, shard in zip(model.WORLDS, shards, strict=True)]
        assert products == pytest.approx([16 * each.parameters] * len(products), rel=1e-9)
        assert all(model.state("data parallel", each, world) >= 20 * each.parameters for world in model.WORLDS)


def test_models_have_the_number_of_parameters_in_their_names():
    assert [round(each.parameters / 1e8) for each in model.MODELS] == [1, 13, 67]


def test_a_pass_by_module_has_three_collectives_for_every_module_but_the_last():
    each = model.MODELS[2]
    assert model.collectives("by module", each, 1024)[0] == 2 * (3 * 33 - 1)  # in two passes
    assert model.collectives("gathered", each, 1024) == (66, 8 * each.parameters)
    assert model.collectives("data parallel", each, 1024) == (2, 8 * each.parameters)


def test_the_norm_of_a_layer_takes_the_cheaper_way_of_the_engine():
    from torch import empty

    from privet.gradients.layers.linear import LinearGrad, is_smaller

    for d, p in {shape for each in model.MODELS for shape in each.weights}:
        grad = LinearGrad(empty(0, 1, d), empty(0, 1, p))
        assert model.stores_gradients(d, p) == is_smaller(model.LENGTH, grad)


@pytest.mark.parametrize(("batch", "world"), [(64, 3), (256, 8), (256, 1024)])
def test_counts_are_those_that_ranks_take(batch, world):
    examples = 10_000
    for draw in draws(batch, examples, 3):
        whole, shards = [], []
        ends = examples * np.arange(world + 1) // world
        for rank in range(world):
            one = World()
            one.rank, one.size = rank, world
            whole.append(len(one.take(draw)[1]))
            one.sharded, one._first_example, one._examples = True, ends[rank], ends[rank + 1] - ends[rank]
            shards.append(len(one.take(draw)[1]))
        assert scale.whole_counts(draw, world).tolist() == whole
        assert scale.shard_counts(draw, world, examples).tolist() == shards
        assert sum(whole) == sum(shards) == len(draw)
        assert max(whole) - min(whole) <= 1


@pytest.mark.parametrize(("batch", "world"), [(256, 8), (256, 1024), (1024, 64)])
def test_whole_data_are_balanced_but_for_one_example_and_shards_are_not(batch, world):
    found = scale.simulate(batch, world, steps=50)
    smallest = batch - 6 * batch**0.5
    assert 1 <= found.whole <= 1 + world / smallest
    assert found.sharded > found.whole
    assert found.whole == pytest.approx(model.imbalance(world, batch), rel=0.1)


def test_latencies_are_measured(tmp_path):
    found = list(measure([], tmp_path, 20))
    assert all(0 < each.low <= each.median for each in found)
    assert not list(tmp_path.iterdir())
