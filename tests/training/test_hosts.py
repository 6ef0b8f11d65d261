"""A host owns the loop, the updates and the checkpoints; draws, noise and ledger are those of any training."""

import io
import json
import threading

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import privet
from one_layer import BOUND, RATE, D, N, Probe, linear_loss, plan, setup
from privet.errors import InvalidArgumentError, LedgerError
from privet.ledger import read_history
from privet.training import checkpoint, holds_run
from rounding import assert_equal_up_to_rounding

STEPS = 20
ADAPTIVE = privet.clipping.AdaptiveQuantile(privet.clipping.Flat(BOUND), learning_rate=0.5)
PLANS = {
    "plain": plan(steps=STEPS),
    "adaptive bound": plan(steps=STEPS, clipping=ADAPTIVE),
    "momentum": plan(steps=STEPS, momentum=privet.momentum.InnerOuter(0.8, 0.3, 2)),
    "ranked masks": plan(steps=STEPS, sparsification=privet.sparsification.Ranked(0.5, refresh=1)),
    "scheduled bound": plan(steps=STEPS, bound_schedule=privet.schedules.Geometric()),
}


class Host:
    """A loop of somebody else: it updates, counts, and saves everything that it knows, and what Privet hands it."""

    def __init__(self, the_plan, x, directory=None, saved=None):
        self.model = Probe(x.shape[1])
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.LinearLR(self.optimizer, 1.0, 0.0, total_iters=the_plan.total_steps)
        self.updates = 0
        given = (self.model, linear_loss, self.optimizer, TensorDataset(x))
        if directory is not None and holds_run(directory):
            self.training = privet.Training.resume(privet.Storage(directory, restore=False), *given)
        else:
            self.training = privet.Training(the_plan, *given, directory)
        if saved is not None:
            self.load(saved)

    def run(self, until=None):
        """Take steps, and return them."""
        steps = []
        for step in self.training.releases():
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.scheduler.step()
            self.updates += 1
            steps.append(step)
            if self.updates == until:
                break
        return steps

    def save(self):
        file = io.BytesIO()
        parts = {name: getattr(self, name).state_dict() for name in ("model", "optimizer", "scheduler", "training")}
        torch.save({"updates": self.updates, **parts}, file)
        return file

    def load(self, file):
        file.seek(0)
        state = torch.load(file, weights_only=True)
        self.updates = state.pop("updates")
        for name, part in state.items():
            getattr(self, name).load_state_dict(part)


def test_a_release_is_the_gradient_that_a_step_would_have_used():
    """Without noise and with everybody in it, both kinds of loop are the same function of the data."""
    x = torch.randn(N, D) * 3
    ends = []
    for host in (False, True):
        training = setup(plan(N, multiplier=0.0), x)
        optimizer, seen = training.optimizer, []
        for step in training.releases() if host else training:
            if host:
                seen.append(training.model.w.grad.clone())
                optimizer.step()
            assert (training.model.w.grad is None) == (not host)
            assert step.learning_rate == RATE
        ends.append(training.model.w.detach().clone())
        assert training.steps_spent == 3
    assert torch.equal(*ends)
    expected = (x * (BOUND / x.norm(dim=1, keepdim=True)).clamp(max=1)).sum(0) / training.plan.divisor
    assert_equal_up_to_rounding(seen[-1], expected)


def test_a_release_has_the_noise_of_the_plan():
    training = setup(plan(1.0, steps=1, multiplier=3.0), torch.zeros(N, 20_000))
    next(training.releases())
    deviation = training.model.w.grad.std().item() * training.plan.divisor
    assert deviation == pytest.approx(3.0 * BOUND, rel=0.04)  # 8 standard errors


def test_gradients_are_replaced_and_never_added_up():
    """Also those that are no release: of a frozen parameter that the optimizer holds, and of a backward pass in between."""
    model = Probe()
    model.frozen = nn.Parameter(torch.zeros(2), requires_grad=False)
    training = setup(plan(N, multiplier=0.0), torch.ones(N, D), model=model)
    found = []
    for _ in training.releases():  # the host forgets both step() and zero_grad()
        found.append(model.w.grad.clone())
        assert model.frozen.grad is None
        model.w.grad.add_(1e6)
        model.frozen.grad = torch.ones(2)
    assert len(found) == 3
    assert torch.equal(found[0], found[2])
    assert not model.w.any()


def test_both_kinds_of_loop_share_one_ledger_and_one_stream_of_draws():
    training = setup(plan(steps=6), torch.randn(N, D))
    own, host = iter(training), training.releases()
    assert [next(each).number for each in (own, host, own, own, host, host)] == [1, 2, 3, 4, 5, 6]
    assert next(own, None) is next(host, None) is None


def test_callbacks_metrics_and_checkpoints_follow_releases(tmp_path):
    class Seen(privet.Callback):
        numbers, written, ended = [], [], 0

        def on_step(self, step):
            self.numbers.append(step.number)

        def on_checkpoint(self, step, path):
            self.written.append(checkpoint.read(path)["step"])

        def on_end(self, step):
            type(self).ended += 1

    training = setup(plan(steps=5, multiplier=0.0, batch_size=N), torch.ones(N, D), privet.Storage(tmp_path, checkpoint_every=2))
    for step in training.releases(callbacks=[Seen()]):
        training.optimizer.step()
        last = training.model.w.detach().clone()
        if step.number == 3:  # what was due after step 2 holds the host's second update, and not the third
            after_two = checkpoint.read(tmp_path / checkpoint.NAME)["model"]["w"]
            assert_equal_up_to_rounding(after_two, last * 2 / 3)
    assert (Seen.numbers, Seen.written, Seen.ended) == ([1, 2, 3, 4, 5], [2, 4, 5], 1)
    assert torch.equal(checkpoint.read(tmp_path / checkpoint.NAME)["model"]["w"], last)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("the_plan", PLANS.values(), ids=PLANS)
def test_a_host_resumes_from_its_own_older_checkpoint(tmp_path, the_plan):
    """The checkpoint is of step 10, the ledger counts 13 of 20: seven releases follow, with the plan's steps 14 to 20."""
    x = torch.randn(N, D)
    first = Host(the_plan, x, tmp_path)
    first.run(until=10)
    saved, state, weights = first.save(), first.training.state_dict(), first.model.w.detach().clone()
    first.run(until=13)
    first.training.close()
    again = Host(the_plan, x, tmp_path, saved)
    assert torch.equal(again.model.w.detach(), weights)
    assert str(again.training.state_dict()["state"]) == str(state["state"])
    assert (again.training.steps_spent, again.training.steps_left) == (13, 7)
    steps = again.run()
    assert [step.number for step in steps] == list(range(14, 21))
    if the_plan.clipping is not ADAPTIVE:
        assert [step.sensitivity for step in steps] == pytest.approx((BOUND * the_plan.bound_factors()[13:]).tolist())
    assert again.updates == 17
    assert again.optimizer.param_groups[0]["lr"] == pytest.approx(0.1 * 3 / 20)
    assert again.training.steps_spent == STEPS
    assert again.training.epsilon() == pytest.approx(the_plan.epsilon())
    again.training.close()
    assert read_history(tmp_path / "ledger")[0].spent == STEPS


def test_going_back_within_a_process_returns_nothing():
    host = Host(PLANS["momentum"], torch.randn(N, D))
    host.run(until=4)
    saved = host.save()
    host.run(until=9)
    for spent in (9, 12):  # the same state twice: steps have not changed it
        host.load(saved)
        assert (host.updates, host.training.steps_spent) == (4, spent)
        host.run(until=7)
    assert host.training.steps_left == STEPS - 15


def test_a_state_of_another_run_or_of_a_ledger_that_was_rolled_back_is_refused(tmp_path):
    x = torch.randn(N, D)
    one, other = Host(plan(steps=STEPS), x, tmp_path / "one"), Host(plan(steps=STEPS), x)
    before = (tmp_path / "one" / "ledger").read_bytes()
    other.run(until=2)
    with pytest.raises(LedgerError, match="is of run"):
        one.training.load_state_dict(other.training.state_dict())
    one.run(until=2)
    state = one.training.state_dict()
    one.training.close()
    with pytest.raises(LedgerError, match="was closed"):
        one.training.load_state_dict(state)
    (tmp_path / "one" / "ledger").write_bytes(before)
    with pytest.raises(LedgerError, match="newer than"):
        Host(plan(steps=STEPS), x, tmp_path / "one")
    for path in (tmp_path / "one").glob("*.pt"):
        path.unlink()
    with pytest.raises(LedgerError, match="newer than the ledger"):
        Host(plan(steps=STEPS), x, tmp_path / "one").training.load_state_dict(state)


@pytest.mark.parametrize("state", [None, {}, {"format": 2}, {"format": 1, "run": "", "ledger": "", "step": -1, "state": {}}])
def test_what_is_no_state_is_refused(state):
    training = setup(plan(), torch.randn(N, D))
    with pytest.raises(InvalidArgumentError, match="state_dict"):
        training.load_state_dict(state)


def test_a_state_that_does_not_fit_changes_nothing():
    training = setup(PLANS["ranked masks"], torch.randn(N, D))
    next(iter(training))
    state = training.state_dict()
    next(iter(training))
    before = str(training.state_dict()["state"])
    with pytest.raises(LedgerError, match="does not fit"):
        training.load_state_dict({**state, "state": {"rule": state["state"]["rule"], "masks": {}}})
    assert str(training.state_dict()["state"]) == before


def test_a_host_may_restore_a_rate_that_its_scheduler_changed_before_it_opens_the_run(tmp_path):
    """Also of an optimizer without state, of which nothing else tells that it has taken steps."""
    x = torch.randn(N, D)
    training = setup(plan(), x, tmp_path)
    next(iter(training))
    state = training.state_dict()
    training.close()
    model = Probe()
    given = (model, linear_loss, torch.optim.SGD(model.parameters(), lr=RATE / 2), TensorDataset(x))
    with pytest.raises(LedgerError, match=r"options\.lr"):
        privet.Training.resume(tmp_path, *given)
    again = privet.Training.resume(privet.Storage(tmp_path, restore=False), *given)
    again.load_state_dict(state)
    assert [step.learning_rate for step in again.releases()] == [RATE / 2] * 2


def test_a_host_that_forgets_to_restore_the_state_is_refused_before_a_step_is_spent(tmp_path):
    x = torch.randn(N, D)
    first = Host(plan(steps=STEPS), x, tmp_path)
    first.run(until=3)
    kept = first.optimizer.state_dict()
    first.training.close()
    again = Host(plan(steps=STEPS), x, tmp_path)
    again.optimizer.load_state_dict(kept)
    with pytest.raises(InvalidArgumentError, match=r"call Training\.load_state_dict"):
        again.run()
    assert again.training.steps_spent == 3


def test_a_host_without_a_checkpoint_begins_again_with_the_steps_that_are_left(tmp_path):
    assert not holds_run(tmp_path)
    assert not holds_run(tmp_path / "none")
    x = torch.randn(N, D)
    first = Host(plan(steps=STEPS), x, tmp_path)
    first.run(until=3)
    first.training.close()
    assert holds_run(str(tmp_path))
    again = Host(plan(steps=STEPS), x, tmp_path)
    assert not again.model.w.any()
    assert [step.number for step in again.run()] == list(range(4, STEPS + 1))


def test_no_state_is_saved_or_restored_while_a_step_is_taken():
    training, told = None, []
    started, finish = threading.Event(), threading.Event()

    class Slow(Probe):
        def forward(self, x):
            if threading.current_thread() is not threading.main_thread():
                started.set()
                finish.wait(60)
            return super().forward(x)

    training = setup(plan(N), torch.randn(N, D), model=Slow())
    state = training.state_dict()
    thread = threading.Thread(target=lambda: told.append(next(training.releases()).number))
    thread.start()
    started.wait(60)
    for call in (training.state_dict, lambda: training.load_state_dict(state)):
        with pytest.raises(LedgerError, match="being taken already"):
            call()
    finish.set()
    thread.join(60)
    assert told == [1]
