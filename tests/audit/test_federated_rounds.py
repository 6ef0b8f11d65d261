from dataclasses import replace

import numpy as np
import pytest

from plans import plan
from privet.audit import federated_rounds, hold_rounds, mechanism
from privet.audit._mechanism import whitebox
from privet.audit.probe import Probe
from privet.clipping import GEP, AdaptiveQuantile, Automatic, Flat, Layerwise
from privet.clipping.clipped_sum import ClippedSum
from privet.errors import InvalidArgumentError
from privet.federated import rounds, server
from privet.federated import simulation as simulations
from privet.momentum import InnerOuter
from privet.noise import Banded, Gaussian
from privet.sampling import CyclicPoisson, FullBatch, Poisson
from privet.sparsification import Random
from privet.training import loop

FEW, COORDINATES, STEPS = 5000, 256, 16
NAMES = ("weight", "bias")
PLAN = plan(examples=200, unit="one user", sampling=Poisson(20), steps=30, delta=1e-4, noise=Gaussian(0.9))
VARIANTS = {
    "flat": {},
    "layerwise, noise per group": {"clipping": Layerwise(Automatic(0.7), by="parameter", noise="per group")},
    "adaptive": {"clipping": AdaptiveQuantile(Flat(0.7), share=0.1, quantile=0.3)},
    "masks": {"sparsification": Random(0.5)},
    "all clients": {"sampling": FullBatch(), "noise": Gaussian(3.0)},
    "correlated noise": {"noise": Banded(bands=3, multiplier=0.9), "sampling": CyclicPoisson(20, cycle=5)},
}


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Let audits be small, as clients cost more than examples and faults here are gross."""
    monkeypatch.setattr(whitebox, "_FEWEST_OBSERVATIONS", FEW)
    monkeypatch.setattr(whitebox, "_COORDINATES", COORDINATES)
    monkeypatch.setattr(whitebox, "_FEWEST_STEPS", STEPS)


# Each is a part of the others, or of the audit of trainings, and takes seconds.
RARELY = ("flat", "masks", "all clients", "correlated noise")


@pytest.mark.parametrize("variant", [pytest.param(name, marks=pytest.mark.slow) if name in RARELY else name for name in VARIANTS])
def test_rounds_that_are_held_as_planned_pass(variant):
    found = mechanism(replace(PLAN, **VARIANTS[variant]), hold_rounds, names=NAMES, observations=FEW)
    assert found.passed, found
    assert "SENS: one user that is NaN" in {check.name for check in found.checks}
    assert 0.3 * found.epsilon_claimed < found.epsilon_lower_bound <= 1.02 * found.epsilon_claimed


def probe_of(steps):
    places = whitebox._layout(PLAN, NAMES, 64)
    return whitebox._probe(PLAN, places, PLAN.examples, steps, PLAN.sampling)


def test_clients_are_summed_by_messages_and_by_simulation(monkeypatch):
    sent, simulated = [], []
    summed, gathered = federated_rounds.sum_messages, simulations.Simulation.gather

    def sum_and_count(answers, told, cohort):
        sent.append(told.number)
        return summed(answers, told, cohort)

    def gather_and_count(self, told, cohort):
        simulated.append(told.number)
        return gathered(self, told, cohort)

    monkeypatch.setattr(federated_rounds, "sum_messages", sum_and_count)
    monkeypatch.setattr(simulations.Simulation, "gather", gather_and_count)
    trace = hold_rounds(probe_of(16))
    assert sent == [1, 2, 9, 10]
    assert simulated == [n for n in range(1, 17) if n not in sent]
    assert len(trace.drawn) == 16


def test_what_is_reported_as_drawn_is_each_round_s_cohort(monkeypatch):
    asked = []
    own = server.Federated._sum

    def keep(self, reading, *given):
        physical, groups = next(reading)
        asked.append(physical.indices)
        return own(self, iter([(physical, groups)]), *given)

    monkeypatch.setattr(server.Federated, "_sum", keep)
    trace = hold_rounds(probe_of(10))
    assert all(np.array_equal(one, other) for one, other in zip(trace.drawn, asked, strict=True))
    assert len({len(each) for each in asked}) > 1


def test_both_ways_give_the_same_sums_without_noise():
    probe = probe_of(10)
    silent = replace(probe.plan, sampling=FullBatch(), noise=Gaussian(0.0, non_private=True))
    found = hold_rounds(Probe(silent, probe.sizes, probe.data, probe.physical_batch_size)).releases
    for released in found.values():
        np.testing.assert_allclose(released, np.broadcast_to(released[:1], released.shape), rtol=1e-5, atol=1e-6)
        assert np.abs(released).max() > 0.4


release, clipped_one, sum_all = loop.release, rounds.clip, federated_rounds.sum_messages
gather = simulations.Simulation.gather


def quieter(clipped, *given, **_):
    return release(ClippedSum(clipped.tensors, clipped.sensitivity / 2, clipped.norms, clipped.part), *given)


def twice(answers, told, cohort):
    answers = list(answers)
    first, second = sum_all(answers, told, cohort), sum_all(answers, told, cohort)
    return replace(first, tensors={name: tensor + second.tensors[name] for name, tensor in first.tensors.items()})


def simulated_twice(self, told, cohort):
    found = gather(self, told, cohort)
    return replace(found, tensors={name: 2 * tensor for name, tensor in found.tensors.items()})


FAULTS = {
    "half of the noise": (loop, "release", quieter),
    "messages count twice": (federated_rounds, "sum_messages", twice),
    "simulated clients count twice": (simulations.Simulation, "gather", simulated_twice),
    "simulated updates are not clipped": (rounds, "clip", lambda tape, rule, groups: clipped_one(tape, Flat(1e9), groups)),
    "the divisor is half of the plan's": (
        loop, "release", lambda clipped, token, source, divisor, *past, **_: release(clipped, token, source, divisor / 2, *past),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "fault", [name if place % 2 else pytest.param(name, marks=pytest.mark.slow) for place, name in enumerate(FAULTS)]
)
def test_a_fault_anywhere_on_the_path_is_noticed(fault, monkeypatch):
    where, name, broken = FAULTS[fault]
    monkeypatch.setattr(where, name, broken)
    found = mechanism(PLAN, hold_rounds, names=NAMES, observations=FEW)
    assert not found.passed


@pytest.mark.parametrize(("change", "named"), [
    ({"momentum": InnerOuter(0.9, 0.1, 2)}, "momentum"),
    ({"clipping": GEP(Flat(1.0), Flat(0.5), dimensions=2, anchors=4, public="dead leaves")}, "clipping"),
])  # fmt: skip
def test_plans_that_no_federated_run_has_are_refused(change, named):
    with pytest.raises(InvalidArgumentError, match=named):
        mechanism(replace(PLAN, **change), hold_rounds, names=NAMES, observations=FEW)
