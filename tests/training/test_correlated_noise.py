"""Training with correlated noise: the loop of the papers, in one process and over a crash."""

import os
import signal
from itertools import islice

import numpy as np
import pytest
import torch

import one_layer
from one_layer import RATE
from privet import noise
from privet.noise import FixedSource
from privet.sampling import BallsInBins, CyclicPoisson, FixedOrder, FullBatch
from privet.training.directory import OWN_FILES

N, C, STEPS = 24, one_layer.BOUND, 21
UNIT_VECTORS = torch.eye(N)
KINDS = {
    "bands": (noise.Banded(1.3, bands=3, source="fixed"), CyclicPoisson(3.0, cycle=4)),
    "buffers": (noise.BufferedToeplitz(2, multiplier=1.3, source="fixed"), FixedOrder(6)),
    "bands in a fixed order": (noise.Banded(1.3, bands=6, source="fixed"), FixedOrder(6)),
    "tree": (noise.Tree(1.3, source="fixed"), BallsInBins(5)),
    "full batch": (noise.BufferedToeplitz(1, multiplier=1.3, source="fixed"), FullBatch()),
}


def setup(name, directory=None, steps=STEPS):
    kind, sampling = KINDS[name]
    plan = one_layer.plan(steps=steps, examples=N, sampling=sampling, delta=1e-3, noise=kind)
    return one_layer.setup(plan, UNIT_VECTORS, directory)


def released(training, steps=None):
    """Return what each of the next steps released, (T, N), and their numbers."""
    found, numbers, before = [], [], training.model.w.detach().clone()
    for step in islice(training, steps):
        now = training.model.w.detach().clone()
        found.append(((before - now) / RATE * training.plan.divisor).double().numpy())
        numbers.append(step.number)
        before = now
    return np.array(found), numbers


def check_first_steps(found, plan):
    """Compare the releases of first steps with the noise as it is defined, and the draws, of the fixed source."""
    source, steps, column = FixedSource(), len(found), plan.noise.strategy.column(len(found))
    whole = torch.stack([source.normal(N) for _ in range(steps)]).numpy()
    matrix = np.array([[column[i - j] if i >= j else 0.0 for j in range(steps)] for i in range(steps)])
    expected = plan.multipliers()[0] * C * np.linalg.solve(matrix, whole)
    for step, draw in enumerate(islice(plan.sampling.draws(N, FixedSource().words), steps)):
        expected[step, draw] += C
    np.testing.assert_allclose(found, expected, atol=2e-5 * np.abs(expected).max())


@pytest.mark.parametrize("name", [name for name in KINDS if name != "tree"])
def test_training_is_the_papers_loop(name):
    training = setup(name)
    check_first_steps(released(training)[0], training.plan)


def test_loops_share_the_noise_and_the_groups():
    one, other = setup("bands"), setup("bands")
    parts = [released(other, number) for number in (5, 1, 15)]
    np.testing.assert_allclose(np.concatenate([part for part, _ in parts]), released(one)[0], atol=1e-5)


@pytest.mark.parametrize("name", ["bands", "buffers", "tree"])
def test_a_killed_run_goes_on_as_a_new_mechanism_at_the_next_cycle(name, tmp_path):
    run = tmp_path / "run"
    child = os.fork()
    if not child:
        for step in setup(name, run, steps=41):
            if step.number == 7:
                os.kill(os.getpid(), signal.SIGKILL)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL

    # Nothing that is kept could tell the noise of an earlier step: these files are those of any run.
    assert {path.name for path in run.iterdir()} <= {*OWN_FILES}
    state = torch.load(run / "checkpoint.pt", weights_only=True)
    assert not any("noise" in key or "past" in key for key in state)

    again = one_layer.resume(run, UNIT_VECTORS)
    found, numbers = released(again)
    plan = again.plan
    cycle = plan.sampling.pattern(N, 41).separation if name != "tree" else 5
    # A block of 16 steps was reserved, and the cycle that it ends in is lost.
    assert numbers == list(range(plan.sampling.resumes_at(17, N), 42))
    assert (numbers[0] - 1) % cycle == 0
    assert again.steps_spent == 41
    assert again.epsilon() == plan.epsilon()
    # Noise starts afresh: the source of these tests gives the first numbers again, and they are the noise of a first step.
    if name != "tree":
        check_first_steps(found, plan)


def test_new_draws_come_with_new_noise_within_a_process():
    """An interruption while groups are drawn loses them: the noise that relied on them must not go on."""
    training = setup("bands", steps=STEPS)
    released(training, 6)
    training._draws._draws = None  # as an interruption leaves it
    training._draws._kept.clear()
    _, numbers = released(training)
    assert numbers == list(range(9, STEPS + 1))
    assert training._past_noise._setting[0] == 9


def test_the_ledger_records_the_multiplier_of_the_fresh_noise(tmp_path):
    training = setup("buffers", tmp_path / "run")
    training.run()
    plan = training.plan
    assert plan.multipliers()[0] > 2 * plan.noise_multiplier
    assert f"{plan.multipliers()[0]}" in (tmp_path / "run" / "ledger").read_text(encoding="utf-8")
    training.close()
