"""Federated runs: FedAvg and its relatives on the plan, ledger and statement of a training."""

import os
import signal

import pytest
import torch
from test_simulation import clients_of, loss_fn, small_model
from torch import nn

import privet
from one_layer import stop_after
from privet.clipping import GEP, AdaptiveQuantile, Flat, Layerwise, Projected
from privet.errors import InvalidArgumentError, LedgerError
from privet.federated import Federated, LocalSteps, Simulation
from privet.federated.messages import sum_messages
from privet.federated.rounds import no_contributions
from privet.momentum import InnerOuter
from privet.noise import Gaussian
from privet.sampling import FullBatch, Poisson
from privet.sparsification import Random, Ranked
from privet.training.loop import StepError

CLIENTS = 12
LOCAL = LocalSteps(learning_rate=0.3, steps=3, batch_size=2)
TWELVE = clients_of((4,) * CLIENTS)


def make_plan(**changes):
    settings = {"sampling": Poisson(batch_size=5), "steps": 4, "clipping": Flat(0.2), "noise": Gaussian(multiplier=0.9)}
    return privet.Plan(**({"examples": CLIENTS, "unit": "one user", "delta": 1e-2} | settings | changes))


def of_kind(kind=Simulation):
    return kind(small_model(), loss_fn, TWELVE, LOCAL)


def open_run(plan, optimizer=torch.optim.SGD, directory=None, population=None, **options):
    """Return a new run, or one that is resumed if there is no plan."""
    model = small_model()
    parts = model, population or of_kind(), optimizer(model.parameters(), **({"lr": 1.0} | options))
    return Federated.resume(directory, *parts) if plan is None else Federated(plan, *parts, directory)


def plain_fedavg(rounds, make_optimizer):
    """Federated averaging as in its paper, of all clients, without clipping or noise."""
    model = small_model()
    optimizer = make_optimizer(model.parameters())
    for _ in range(rounds):
        start = [parameter.detach().clone() for parameter in model.parameters()]
        moved = [torch.zeros_like(parameter) for parameter in start]
        for content, target in TWELVE:
            client = small_model()
            client.load_state_dict(model.state_dict())
            local = torch.optim.SGD(client.parameters(), lr=0.3)
            for part in (slice(0, 2), slice(2, 4), slice(0, 2)):
                local.zero_grad()
                nn.functional.cross_entropy(client(content[part]), target[part]).backward()
                local.step()
            for total, first, last in zip(moved, start, client.parameters(), strict=True):
                total += (last.detach() - first) / CLIENTS
        for parameter, change in zip(model.parameters(), moved, strict=True):
            parameter.grad = -change
        optimizer.step()
    return model


SERVERS = {
    "FedAvg": (torch.optim.SGD, {"lr": 1.0}),
    "FedAvgM": (torch.optim.SGD, {"lr": 0.7, "momentum": 0.8}),
    "FedAdam": (torch.optim.Adam, {"lr": 0.05, "eps": 1e-3}),
}


@pytest.mark.parametrize("kind", SERVERS)
def test_without_clipping_and_noise_it_is_plain_federated_averaging(kind):
    optimizer, options = SERVERS[kind]
    plan = make_plan(sampling=FullBatch(), clipping=Flat(1e4), noise=Gaussian(multiplier=0.0, non_private=True))
    with open_run(plan, optimizer, **options) as federated:
        federated.run()
        expected = plain_fedavg(4, lambda parameters: optimizer(parameters, **options))
        for one, other in zip(federated.model.parameters(), expected.parameters(), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_the_released_noise_has_the_deviation_of_the_plan():
    # Clients that do not move: what is released is noise of σ·C/B alone.
    class Silent:
        clients, privacy_unit, program = CLIENTS, "one user", staticmethod(loss_fn)

        def gather(self, told, cohort):
            return sum_messages([], told, cohort)

    plan = make_plan(steps=300, clipping=Flat(0.35), noise=Gaussian(multiplier=1.7, source="fixed"))
    model = nn.Linear(40, 5)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    before = model.weight.detach().clone()
    with Federated(plan, model, Silent(), optimizer) as federated:
        federated.run()
    deviation = (model.weight.detach() - before).std() / 300**0.5
    assert deviation == pytest.approx(1.7 * 0.35 / 5, rel=0.1)


@pytest.mark.parametrize(
    "plan",
    [
        make_plan(),
        make_plan(clipping=AdaptiveQuantile(Layerwise(Flat(0.3)), share=0.1)),
        make_plan(clipping=Layerwise(Flat(0.3), noise="per group"), sparsification=Random(final_rate=0.6)),
        make_plan(sparsification=Ranked(final_rate=0.5)),
        make_plan(sampling=FullBatch(), steps=2),
    ],
    ids=["flat", "adaptive layerwise", "layerwise random masks", "ranked masks", "all clients"],
)
def test_epsilon_is_that_of_the_plan_and_every_round_is_in_the_ledger(plan):
    with open_run(plan) as federated:
        spent = [(step.number, federated.steps_spent, step.epsilon) for step in federated]
        assert [(number, count) for number, count, _ in spent] == [(n, n) for n in range(1, plan.total_steps + 1)]
        assert [epsilon for *_, epsilon in spent] == [plan.epsilon(steps=n) for n in range(1, plan.total_steps + 1)]
        assert federated.epsilon() == plan.epsilon()
        assert federated.guarantee().epsilon == plan.epsilon()
        assert federated.steps_left == 0


def test_what_a_population_does_to_the_parameters_that_it_is_told_reaches_nobody():
    class Writing(Simulation):
        def gather(self, told, cohort):
            for parameter in told.parameters.values():
                parameter.add_(1e3)
            return no_contributions(told)

    plan = make_plan(noise=Gaussian(multiplier=0.0, non_private=True))
    with open_run(plan, population=of_kind(Writing)) as federated:
        federated.run()
        for one, other in zip(federated.model.parameters(), small_model().parameters(), strict=True):
            assert torch.equal(one, other)


def test_masks_travel_as_the_numbers_that_they_are_drawn_from():
    told, shapes = [], {name: tuple(parameter.shape) for name, parameter in small_model().named_parameters()}

    class Recording(Simulation):
        def gather(self, round_, cohort):
            told.append(round_)
            return super().gather(round_, cohort)

    with open_run(make_plan(steps=12, sparsification=Random(final_rate=0.8, seed=4)), population=of_kind(Recording)) as federated:
        federated.run()
    assert [each.number for each in told] == [*range(1, 13)]
    masked = [each for each in told if each.masks is not None]
    assert masked
    for each in masked:
        built = each.selection.masks(shapes)
        assert all(torch.equal(built[name], mask) for name, mask in each.masks.items())


def test_a_population_cannot_loosen_the_sensitivity_nor_show_its_errors():
    def loose(told, cohort):
        return Simulation.gather(population, told, cohort) * 3.0

    def failing(told, cohort):
        raise OSError(f"secret cohort {cohort.tolist()}")

    def telling(told, cohort):
        raise InvalidArgumentError("client", f"secret cohort {cohort.tolist()}", "another")

    for gather, error in ((loose, InvalidArgumentError), (failing, StepError), (telling, StepError)):
        population = of_kind()
        population.gather = gather
        with open_run(make_plan(), population=population) as federated:
            with pytest.raises(error) as found:
                federated.run()
            assert "secret" not in str(found.value).lower()
            assert federated.steps_spent == 1  # the round is spent, although nothing was released


def test_clients_that_train_other_parameters_are_refused_before_a_round():
    other = torch.nn.Sequential(small_model())
    with pytest.raises(InvalidArgumentError, match="clients that train"):
        open_run(make_plan(), population=Simulation(other, loss_fn, TWELVE, LOCAL))


def test_coordinates_outside_a_mask_stay_zero_whatever_the_population_returns():
    class Dense:
        clients, privacy_unit, program = CLIENTS, "one user", staticmethod(loss_fn)

        def gather(self, told, cohort):
            found = no_contributions(told)
            for tensor in found.tensors.values():
                tensor += 1e3
            return found

    before, moved = small_model(), []
    with open_run(make_plan(steps=12, sparsification=Random(final_rate=0.9)), population=Dense()) as federated:
        for _ in federated:
            masks = federated.masks
            for name, parameter in federated.model.named_parameters():
                change = parameter.detach() - dict(before.named_parameters())[name]
                if masks:
                    moved.append(change[~masks[name]].any().item())
            before.load_state_dict(federated.model.state_dict())
    assert moved
    assert not any(moved)


def test_the_statement_says_who_is_trusted():
    with open_run(make_plan()) as federated:
        federated.run()
        statement = federated.guarantee()
        prose = str(statement)
    for text in ("for one user", "server", "transport", "Secure aggregation", "another population", "sampling of clients"):
        assert text in prose
    assert "trainer holds the raw data" not in prose
    assert statement.to_dict()["setting"] == statement.setting
    assert "trainer holds the raw data" in str(make_plan().guarantee())


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"clipping": Projected(Flat(1.0), projections=30)}, "clipping"),
        ({"clipping": GEP(Flat(1.0), Flat(0.5), dimensions=2, anchors=4, public="dead leaves")}, "clipping"),
        ({"momentum": InnerOuter(0.9, 0.1, 2)}, "momentum"),
        ({"examples": 11}, "population"),
        ({"unit": "one example"}, "population"),
    ],
)
def test_plans_that_need_more_than_updates_are_refused(changes, named):
    with pytest.raises(InvalidArgumentError, match=named):
        open_run(make_plan(**changes))


def test_a_run_resumes_where_it_was_left_and_only_with_the_same_local_steps(tmp_path):
    plan = make_plan(steps=6, clipping=AdaptiveQuantile(Flat(0.2)))
    federated = stop_after(open_run(plan, directory=tmp_path / "run"), 2)
    others = Simulation(small_model(), loss_fn, TWELVE, LocalSteps(learning_rate=0.3, steps=4, batch_size=2))
    with pytest.raises(LedgerError, match="other parts"):
        open_run(None, directory=tmp_path / "run", population=others)
    with open_run(None, directory=tmp_path / "run") as again:
        assert again.steps_spent == 2
        for one, other in zip(again.model.parameters(), federated.model.parameters(), strict=True):
            assert torch.equal(one, other)
        assert [step.number for step in again] == [3, 4, 5, 6]
        assert again.epsilon() == plan.epsilon()


def test_a_run_that_is_killed_within_a_round_has_paid_for_it(tmp_path):
    class Killed(Simulation):
        def gather(self, told, cohort):
            if told.number == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().gather(told, cohort)

    child = os.fork()
    if not child:
        open_run(make_plan(steps=6), directory=tmp_path / "run", population=of_kind(Killed)).run()
        os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    with open_run(None, directory=tmp_path / "run") as federated:
        assert federated.steps_spent >= 3
        assert federated.epsilon() >= federated.plan.epsilon(steps=3)
        held = [step.number for step in federated]
        assert held == [*range(7 - len(held), 7)]
        assert len(held) <= 3
        assert federated.epsilon() == federated.plan.epsilon()


def test_federated_runs_are_refused_in_several_processes(monkeypatch):
    """Each of the processes that torchrun started would spend the whole ε."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "test")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InvalidArgumentError, match=r"world is 'one process of 2'.*start the script without torchrun"):
        open_run(make_plan())
