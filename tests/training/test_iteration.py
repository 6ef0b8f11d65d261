"""Loops over one training share its ledger, its stream of draws and its epochs, concurrently or in sequence."""

import gc
import math
import threading
from itertools import islice
from queue import SimpleQueue

import pytest
import torch
from torch import nn

import one_layer
import privet
from privet.errors import LedgerError, UnsupportedModelError
from privet.sampling import BallsInBins, FixedSize, FullBatch, Poisson, Shuffle, TruncatedPoisson
from privet.training.loop import StepError

N, STEPS = 12, 12
BY_EPOCH = [Shuffle(3), BallsInBins(3)]
EVERY = [*BY_EPOCH, Poisson(3.0), TruncatedPoisson(3.0, cap=4), FixedSize(3), FullBatch()]


def setup(scheme, directory=None, *, workers=0, steps=STEPS, size=2, **options):
    adjacency = "replace-one" if isinstance(scheme, Shuffle | FixedSize) else "add-remove"
    plan = one_layer.plan(steps=steps, multiplier=0.0, examples=N, sampling=scheme, adjacency=adjacency)
    x = torch.eye(N)
    listed = [(row,) for row in x] if workers else None  # a list is read one by one, and so by worker processes, too
    reading = privet.Reading(workers=workers)
    return one_layer.setup(plan, x, directory, dataset=listed, physical_batch_size=size, reading=reading, **options)


class Watched(one_layer.Watched):
    def epochs(self, length=4):
        """Return, for every epoch, how often each example took part in it."""
        assert sorted(self.taken) == list(range(1, STEPS + 1))
        rows = [self.taken[number] for number in range(1, STEPS + 1)]
        return [torch.stack(rows[start : start + length]).sum(0) for start in range(0, STEPS, length)]


def side_by_side(training):
    one, other = iter(training), iter(training)
    while True:
        for steps in (one, other, one):
            step = next(steps, None)
            if step is None:
                return
            yield step


def one_inside_the_other(training):
    for step in training:
        yield step
        yield from islice(training, 2)


def broken_off(training):
    while training.steps_left:
        for step in training:
            yield step
            if step.number % 3 == 0:
                break


def forgotten(training):
    """A loop that has started and is neither continued nor closed."""
    left = iter(training)
    yield next(left)
    yield next(left)
    yield from training


def one_at_a_time(training):
    while training.steps_left:
        yield next(iter(training))


LOOPS = [side_by_side, one_inside_the_other, broken_off, forgotten, one_at_a_time]


@pytest.mark.parametrize(
    ("scheme", "loop", "workers"),
    [*((scheme, loop, 0) for scheme in BY_EPOCH for loop in LOOPS), (BY_EPOCH[0], side_by_side, 1), (BY_EPOCH[1], broken_off, 1)],
)
def test_every_epoch_is_one_partition_whatever_the_loops(scheme, loop, workers):
    training = setup(scheme, workers=workers)
    watched = Watched(training)
    for step in loop(training):
        watched.note(step)
    assert all((taken == 1).all() for taken in watched.epochs())
    assert (training.steps_spent, training.steps_left) == (STEPS, 0)


@pytest.mark.parametrize(("scheme", "loop"), [*zip(EVERY, [*LOOPS, LOOPS[0]], strict=True)])
def test_loops_share_the_ledger(scheme, loop, tmp_path):
    training = setup(scheme, tmp_path)
    watched = Watched(training)
    for step in loop(training):
        watched.note(step)
    assert sorted(watched.taken) == list(range(1, STEPS + 1))
    assert training.steps_spent == STEPS
    assert max(float(row.max()) for row in watched.taken.values()) <= 1


@pytest.mark.parametrize(
    ("scheme", "calls", "workers"),
    [*((scheme, calls, 0) for scheme in BY_EPOCH for calls in (0, 1)), (BY_EPOCH[0], 1, 1), (BY_EPOCH[1], 0, 1)],
)
def test_a_step_that_fails_takes_its_whole_draw_with_it(scheme, workers, calls):
    """The failing step has physical batches left, which must join no other step."""
    training = setup(scheme, workers=workers, size=1)
    watched = Watched(training)
    failed, countdown, real = set(), math.inf, training._engine.clip

    def interrupted(*arguments, **options):
        nonlocal countdown
        countdown -= 1
        if countdown < 0:
            raise RuntimeError
        return real(*arguments, **options)

    training._engine.clip = interrupted
    while training.steps_left:
        try:
            for step in training:
                watched.note(step)
                if step.number in (1, 6):
                    countdown = calls
        except StepError:
            countdown = math.inf
            failed.add(training.steps_spent)
    assert failed
    assert sorted({*watched.taken, *failed}) == list(range(1, STEPS + 1))
    for start in range(1, STEPS, 4):
        rows = [watched.taken[number] for number in range(start, start + 4) if number in watched.taken]
        assert torch.stack(rows).sum(0).max() <= 1
        assert len(rows) < 4 or torch.stack(rows).sum(0).min() == 1


def test_a_step_that_is_refused_before_it_is_paid_for_keeps_its_draw():
    training = setup(Shuffle(3))
    watched = Watched(training)
    for number in range(4):
        training.model.later = nn.Parameter(torch.zeros(1))
        with pytest.raises(UnsupportedModelError):
            next(iter(training))
        assert training.steps_spent == number
        del training.model.later
        watched.note(next(iter(training)))
    assert (torch.stack(list(watched.taken.values())).sum(0) == 1).all()


@pytest.mark.parametrize("workers", [0, 2])
def test_what_was_read_ahead_is_used_by_the_next_loop(workers):
    """The draws of a loop that is left are those that it would have taken, also if worker processes had read them."""
    training = setup(Poisson(3.0), workers=workers)
    steps = iter(training)
    next(steps)
    ahead = {number: draw.tolist() for number, (_, draw) in training._draws._kept.items() if number > 1}
    assert ahead or not workers
    steps.close()
    watched = Watched(training)
    for step in training:
        watched.note(step)
    assert {number: watched.taken[number].nonzero()[:, 0].tolist() for number in ahead} == ahead


def test_draws_that_were_used_are_forgotten():
    training = setup(Poisson(3.0), steps=40)
    for _ in training:
        assert len(training._draws._kept) <= 2


def test_workers_end_with_the_last_loop_and_with_the_training():
    import torch.multiprocessing as processes

    others = {child.pid for child in processes.active_children()}  # of tests that failed

    def workers():
        return [child for child in processes.active_children() if child.pid not in others]

    training = setup(Poisson(3.0), workers=1)
    one, other = iter(training), iter(training)
    next(one), next(other)
    assert len(workers()) == 1
    one.close()
    assert len(workers()) == 1
    other.close()
    gc.collect()
    assert workers() == []
    left = iter(training)
    next(left)
    training.close()
    gc.collect()
    assert workers() == []
    with pytest.raises(LedgerError, match="closed"):
        next(left)


def test_a_step_inside_a_step_is_refused():
    """A loss that takes a step would take part of the draw that it is called for."""
    told, training = SimpleQueue(), None  # a queue, as lists are as before after a pass

    def loss(model, batch):
        if training is not None and training.steps_left:
            try:
                next(iter(training))
            except LedgerError as error:
                told.put(str(error))
        return model(batch[0])

    training = setup(Shuffle(3), loss=loss)
    watched = Watched(training)
    for step in training:
        watched.note(step)
    assert not told.empty()
    while not told.empty():
        assert "being taken already" in told.get()
    assert all((taken == 1).all() for taken in watched.epochs())


def test_threads_take_every_step_once():
    training = setup(Shuffle(3))
    taken, refused = [], []

    def work():
        while training.steps_left:
            try:
                taken.extend(step.number for step in training)
            except LedgerError as error:
                refused.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(taken) == list(range(1, STEPS + 1))
    assert all("being taken already" in text for text in refused)
