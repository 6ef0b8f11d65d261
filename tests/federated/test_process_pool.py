import itertools
import os
import signal
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace

import numpy as np
import pytest
import torch
from test_simulation import clients_of, loss_fn, small_model, told_by
from torch.nn.utils import parameters_to_vector

import privet
from privet.clipping import Flat, Layerwise
from privet.errors import InvalidArgumentError
from privet.federated import Federated, LocalSteps, ProcessPool, Simulation
from privet.training.loop import StepError

LOCAL = LocalSteps(learning_rate=0.2, steps=3, batch_size=2)


def kill_the_second_process(model, batch):
    """The loss of a client whose labels are all 2: it takes its process with it, as a lack of memory does."""
    if os.getpid() != PARENT and bool((batch[1] == 2).all()):
        os.kill(os.getpid(), signal.SIGKILL)
    return loss_fn(model, batch)


PARENT = os.getpid()


NINE = clients_of((4,) * 9)


def simulated(clients=NINE, loss=loss_fn):
    model = small_model()
    return model, Simulation(model, loss, clients, LOCAL)


def test_the_sums_are_those_of_one_process():
    model, simulation = simulated()
    masks = {name: torch.rand(parameter.shape) > 0.4 for name, parameter in model.named_parameters()}
    with ProcessPool(simulation, processes=2) as pool:
        assert (pool.clients, pool.privacy_unit, pool.program) == (9, "one user", simulation.program)
        for rule, cohort in itertools.product((Flat(0.3), Layerwise(Flat(0.2))), ([], [7], [8, 0, 3, 5, 1])):
            told, drawn = replace(told_by(model, rule), masks=masks), np.array(cohort, dtype=np.int64)
            found, expected = pool.gather(told, drawn), simulation.gather(told, drawn)
            assert (found.sensitivity, found.noise_scales) == (expected.sensitivity, expected.noise_scales)
            for name, tensor in expected.tensors.items():
                assert torch.allclose(found.tensors[name], tensor, rtol=0, atol=1e-6), name


def federated(population, model):
    plan = privet.Plan(
        examples=population.clients, unit="one user", sampling=privet.sampling.FullBatch(), steps=3, delta=1e-3,
        clipping=Flat(0.3), noise=privet.noise.Gaussian(0.0, non_private=True),
    )  # fmt: skip
    return Federated(plan, model, population, torch.optim.SGD(model.parameters(), lr=1.0))


def test_a_run_takes_the_steps_of_one_process():
    ended = []
    for processes in (None, 3):
        model, simulation = simulated()
        with ProcessPool(simulation, processes or 1) as pool, federated(simulation if processes is None else pool, model) as run:
            run.run()
        ended.append(parameters_to_vector(model.parameters()).detach())
    assert torch.allclose(*ended, rtol=0, atol=1e-5)
    assert not torch.allclose(ended[0], parameters_to_vector(small_model().parameters()).detach(), atol=1e-2)


def test_a_round_whose_process_is_killed_is_spent_and_tells_no_client():
    clients = [*NINE, (torch.zeros(4, 4), torch.full((4,), 2))]
    model, simulation = simulated(clients, kill_the_second_process)
    with ProcessPool(simulation, processes=2) as pool, federated(pool, model) as run:
        before = [parameter.detach().clone() for parameter in model.parameters()]
        with pytest.raises(StepError, match="the round counts as spent"):
            run.run()
        assert run.steps_spent == 1
        assert all(map(torch.equal, before, model.parameters()))
        with pytest.raises(BrokenProcessPool):
            pool.gather(told_by(model, Flat(0.3)), np.arange(2))


def test_what_is_no_simulation_and_no_number_of_processes_is_refused():
    with pytest.raises(InvalidArgumentError, match="simulation"):
        ProcessPool(object(), processes=2)
    with pytest.raises(InvalidArgumentError, match="processes"):
        ProcessPool(simulated()[1], processes=0)
