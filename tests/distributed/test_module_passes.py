"""Passes by module over sharded models: correct for every family of layers, with FSDP2's collectives, without freed memory."""

import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from distributed.processes import run_ranks
from distributed.sharded_trainings import Layers, Outside, make, shard, square_losses, word_losses
from privet.clipping import Flat
from privet.clipping.clipped_sum import ClippedSum
from privet.distributed import collectives, sharded_sums
from privet.distributed.sharded import ShardedModel
from privet.distributed.sharded_sums import ShardedSums
from privet.distributed.world import ALONE
from privet.errors import PrivetWarning
from privet.gradients import clipped_sum
from privet.gradients.core.examples import split_batch
from privet.gradients.engine import Clipper, Engine
from privet.noise import SecureSource, Token, release
from privet.reading.batches import Group

sys.path.insert(0, str(Path(__file__).parents[1] / "conformance"))
import cases
from oracle import plain_clipped_sum, reference, relative_error

# Reasons for which the whole model is gathered, by a word of the message.
GATHERED = ("differ in a value", "outside its module", "no rule supports")


class Holder(nn.Module):
    """Holds a sharded module: FSDP frees the memory of all modules but the outermost."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner


@pytest.fixture(scope="module")
def _group(tmp_path_factory):
    address = f"file://{tmp_path_factory.mktemp('group') / 'store'}"
    torch.distributed.init_process_group("gloo", init_method=address, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def sum_by_module(model, losses, batch, rule, world=ALONE, own=slice(None)):
    """Return this rank's shards of the sum over a batch, of which it has a part; None where the whole model is gathered."""
    sharded = ShardedModel(model, world)
    with sharded.gathered():
        engine = Engine(model, losses, sharded.whole, "ghost", skip_errors=True)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        sums = ShardedSums.of(sharded, engine, [split_batch(batch)])
    if sums.passes is None:
        reasons = [str(each.message) for each in warned if each.category is PrivetWarning]
        return next((None, reason) for reason in reasons if "gathers the whole model" in reason)
    clipper = Clipper.of(sharded.whole, rule)
    examples = split_batch(batch).select(own)
    groups = [Group(torch.arange(examples.count), examples)] if examples.count else []
    return sums.sum(None, engine, iter([(None, groups)]), clipper).tensors, ""


@pytest.mark.usefixtures("_group")
@pytest.mark.parametrize("case", [
    cases.slow_unless(case in cases.TYPICAL[::5], case) for case in (*cases.CASES, *cases.NETWORKS)
])  # fmt: skip
def test_sums_by_module_are_those_of_plain_autograd_for_every_family(case):
    """A rule that read a parameter after its pass would read freed memory, and end the process."""
    known = reference(case, torch.float64)
    inner = case.model(torch.float64)
    inner.load_state_dict(known.model.state_dict())
    try:
        holder = fully_shard(Holder(fully_shard(inner)))
    except (ValueError, NotImplementedError) as refusal:  # torch shards no scalars, and no parameter in channels-last order
        pytest.skip(str(refusal))
    found, reason = sum_by_module(holder, lambda model, batch: case.loss(model.inner, batch), known.batch, Flat(0.7))
    if found is None:
        assert any(word in reason for word in GATHERED), reason
        return
    sums = {name.removeprefix("inner."): value for name, value in found.items()}
    assert relative_error(sums, plain_clipped_sum(known.expected, "Flat", 0.7)) <= 1e-9


@pytest.mark.usefixtures("_group")
def test_a_pass_that_gathers_out_of_order_fails_before_it_gathers():
    """Ranks that gather different modules would wait for each other, or mix their memory."""
    model = shard(Layers(nn.Linear(17, 5), nn.Linear(5, 2)))
    sharded = ShardedModel(model, ALONE)
    with sharded.gathered():
        engine = Engine(model, square_losses, sharded.whole, "ghost", skip_errors=True)
    examples = split_batch((torch.randn(3, 17),))
    passes = ShardedSums.of(sharded, engine, [examples]).passes
    assert passes.order == [0, 1, 2, 2, 1]
    passes.order, gathered = [0, 2, 1, 2, 1], []
    sharded.gather = lambda *keys: gathered.extend(keys)
    with sharded.without_hooks():
        assert passes.run(lambda: sharded_sums._record(engine, examples)) == (None, True)
    assert gathered == passes.order


def release_shards(world, folder):
    """Release zeros, by shards; save the noise of this rank, and what the release says of itself."""
    torch.manual_seed(0)
    model = shard(Layers(nn.Linear(300, 201, bias=False)))
    sharded = ShardedModel(model, world)
    sums = {**sharded.zero_shards(), "count:": torch.zeros(1, dtype=torch.float64)}
    clipped = ClippedSum(sums, 0.5, torch.zeros(0))
    noised = release(clipped, Token(1, 2.0), SecureSource(), 4.0, owners=sharded)
    torch.save((noised.tensors, noised.sensitivity, noised.standard_deviation), f"{folder}/{world.rank}.pt")


def test_the_noise_of_shards_is_that_of_one_process(tmp_path):
    """Its deviation has the rounding of all coordinates, not of a shard's; shards are independent; statistics have one value."""
    run_ranks(2, release_shards, tmp_path)
    (first, *said), (second, *other) = (torch.load(tmp_path / f"{rank}.pt", weights_only=False) for rank in range(2))
    zeros = {"weight": torch.zeros(201, 300), "count:": torch.zeros(1, dtype=torch.float64)}
    alone = release(ClippedSum(zeros, 0.5, torch.zeros(0)), Token(1, 2.0), SecureSource(), 4.0)
    assert said == other == [alone.sensitivity, alone.standard_deviation]
    assert torch.equal(first["count:"], second["count:"])
    noise = [each["parts.0.weight"].double().flatten() * 4.0 for each in (first, second)]
    assert [len(each) for each in noise] == [101 * 300, 100 * 300]
    for each in noise:
        assert abs(float(each.std()) - 1.0) < 0.03  # 7 standard deviations of the estimate
    assert abs(float((noise[0][: 100 * 300] * noise[1]).mean())) < 7 / (100 * 300) ** 0.5


def count_collectives(world, folder):
    """Count the collectives of a plain pass of FSDP2, of a private pass by module, and of a step with the model gathered."""
    counts = dict.fromkeys(("gather", "reduce"), 0)

    def count(kind, call):
        def counted(*arguments, **named):
            counts[kind] += 1
            return call(*arguments, **named)

        return counted

    names = {"all_gather_single": "gather", "all_gather_into_tensor": "gather", "reduce_scatter_single": "reduce",
             "reduce_scatter_tensor": "reduce"}  # fmt: skip
    for name, kind in names.items():
        if hasattr(torch.distributed, name):
            setattr(torch.distributed, name, count(kind, getattr(torch.distributed, name)))
    collectives._reduce_scatter = count("reduce", collectives._reduce_scatter)

    def of(call):
        counts.update(gather=0, reduce=0)
        call()
        return counts["gather"], counts["reduce"]

    training = make("SGD", world)
    batch = (torch.zeros(2, 6, dtype=torch.int64),)
    plain = of(lambda: word_losses(training.model, batch).sum().backward())
    training.model.zero_grad()
    modules = len(training._shards.modules)
    assert plain == (2 * modules - 1, modules)
    step = of(lambda: next(iter(training)))
    passes = step[1] // modules
    assert step == (passes * plain[0], passes * plain[1])
    assert passes > 1
    world.gathered = True
    steps = iter(make("SGD", world))
    assert of(lambda: next(steps)) == (modules, modules)


def test_a_pass_has_the_collectives_of_fsdp_and_a_gathered_step_one_for_each_module(tmp_path):
    run_ranks(2, count_collectives, tmp_path)


def clip_in_low_precision(world, folder):
    torch.manual_seed(0)
    rows = torch.randn(8, 17) * 5
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, output_dtype=torch.float32)
    model = shard(Layers(nn.Linear(17, 40), nn.LayerNorm(40), nn.GELU(), nn.Linear(40, 3)), mp_policy=policy)
    longest = 0.0
    for row in rows.split(1):
        own = slice(0, 1) if world.first else slice(0, 0)
        found, reason = sum_by_module(model, square_losses, (row,), Flat(0.5), world, own)
        assert found is not None, reason
        assert all(value.dtype == torch.float32 for value in found.values())
        longest = max(longest, sum(sum(value.double().square().sum().item() for value in found.values()) for found in
                                   world.gather(found)) ** 0.5)  # fmt: skip
    assert 0.49 < longest <= 0.5


@pytest.mark.slow
def test_a_policy_of_low_precision_keeps_every_contribution_within_the_bound(tmp_path):
    run_ranks(2, clip_in_low_precision, tmp_path)


def sum_odd_values(world, folder):
    """Values whose squares overflow float32, and others that are not finite, are clipped, or left out, as in one process."""
    torch.manual_seed(0)
    reference = Layers(nn.Linear(17, 5), nn.Linear(5, 2))
    rows = torch.randn(6, 17)
    rows[1], rows[2], rows[3] = rows[1] * 1e15, torch.inf, torch.nan
    expected = clipped_sum(reference, square_losses, (rows,), Flat(0.5)).tensors
    names = dict(reference.named_parameters())
    model = shard(reference)
    own = slice(0, 2) if world.first else slice(2, 6)
    found, _ = sum_by_module(model, square_losses, (rows,), Flat(0.5), world, own)
    for name in names:
        whole = torch.cat([each[name] for each in world.gather(found)])
        torch.testing.assert_close(whole, expected[name], rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_values_beyond_float32_are_clipped_as_in_one_process(tmp_path):
    run_ranks(2, sum_odd_values, tmp_path)


def read_outside(world, folder):
    torch.manual_seed(0)
    model = shard(Outside(nn.Linear(17, 17), nn.Linear(17, 17)))
    found, reason = sum_by_module(model, square_losses, (torch.randn(4, 17),), Flat(0.5), world)
    assert found is None
    assert "a parameter is read outside its module" in reason


def test_a_parameter_is_not_read_where_it_has_no_memory(tmp_path):
    run_ranks(2, read_outside, tmp_path)
