"""Each rank adds noise to its own share of a release: the shares have the right deviation, and are independent."""

import math
import time

import torch

from distributed.processes import run_ranks
from distributed.trainings import make
from privet.clipping.clipped_sum import ClippedSum
from privet.distributed.collectives import join_shares, scatter_sums
from privet.noise import SecureSource, Token, release

SIZE, MULTIPLIER, BOUND, DIVISOR = 200_001, 2.0, 0.5, 4.0
MOST = 6.0  # standard deviations: 2e-9 for a normal number, of which 12 are tested


def release_zero(world, folder):
    clipped = ClippedSum.zero({"weight": torch.zeros(SIZE), "other": torch.zeros(3, dtype=torch.float64)}, BOUND)
    noised = release(clipped, Token(1, MULTIPLIER), SecureSource(), DIVISOR, owners=world)
    torch.save(noised.tensors, f"{folder}/{world.rank}.pt")


def is_normal(noise):
    """Return whether mean, variance and correlation of the two halves are those of independent normal numbers."""
    half = len(noise) // 2
    first, second = noise[:half], noise[half : 2 * half]
    scores = [
        noise.mean() * math.sqrt(len(noise)),
        *((part.square().mean() - 1) * math.sqrt(len(part) / 2) for part in (first, second)),
        (first * second).mean() * math.sqrt(half),
        (first * second.flip(0)).mean() * math.sqrt(half),
    ]
    return all(abs(float(score)) < MOST for score in scores)


def test_shares_of_noise_have_the_deviation_of_the_plan_and_are_independent(tmp_path):
    """A rank whose noise copied another's, or that added more or less, would be seen; ranks hold the same release."""
    for attempt in range(2):  # a second one with fresh noise
        run_ranks(2, release_zero, tmp_path)
        first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
        assert all(torch.equal(first[name], second[name]) for name in first)
        if is_normal(first["weight"].double() * DIVISOR / (MULTIPLIER * BOUND)):
            return
        assert attempt == 0, "the noise is not that of the plan"


def collect(world, folder):
    torch.manual_seed(world.rank)
    sums = [torch.randn(5), torch.randn(1).double(), torch.randn(0), torch.randn(7), torch.randn(2).double()]
    shares = scatter_sums(sums, world.rank, world.size, world._sums)
    joined = join_shares(sums, shares, world.size, world._sums)
    expected = [torch.stack(parts).sum(0) for parts in zip(*world.gather(sums), strict=True)]
    torch.testing.assert_close(joined, expected, rtol=0, atol=1e-5)
    owned = [(which, first + place) for which, first, part in shares for place in range(len(part))]
    every = [one for rank in world.gather(owned) for one in rank]
    assert len(every) == len(set(every)) == 15


def test_every_coordinate_has_one_owner_and_shares_join_to_the_sum(tmp_path):
    run_ranks(3, collect, tmp_path)


def log_order(world, folder):
    """Note when the ledger is durable, and when each rank draws noise; the clock is the machine's."""
    training = make("SGD", world, folder / "run", source="secure")
    durable, drawn = [], []
    ledger, normals = training._record.ledger, training._noise.normals
    note = ledger.reserve

    def reserve():
        token = note()
        durable.append(time.monotonic_ns())
        return token

    def draw(size):
        drawn.append(time.monotonic_ns())
        return normals(size)

    if world.first:
        ledger.reserve = reserve
    training._noise.normals = draw
    training.run()
    times = world.gather(durable)[0]
    assert len(times) == len(drawn) == training.steps_spent
    assert all(paid < noised for paid, noised in zip(times, drawn, strict=True))


def test_no_rank_draws_noise_before_the_step_is_durable(tmp_path):
    run_ranks(2, log_order, tmp_path)


def agree(world, folder):
    found = []
    for _ in range(2):
        world.begin()
        for purpose in ("draws", "reading"):
            own = world.make_words(purpose, SecureSource())(4).tolist()
            assert all(own == other for other in world.gather(own))
            found.append(tuple(own))
    assert len(set(found)) == 4


def test_ranks_draw_alike_and_every_purpose_and_training_has_its_own_stream(tmp_path):
    run_ranks(2, agree, tmp_path)
