"""Interrupts of a training leave nothing of an example in the model or on the disk, and steps go on after them."""

import signal

import pytest
import torch
from one_layer import Probe, linear_loss
from torch import nn
from torch.utils.data import TensorDataset

import privet
from privet.errors import InvalidArgumentError, LedgerError
from privet.gradients.core.batching import vectorise
from privet.gradients.core.state.snapshot import Snapshot
from privet.gradients.methods.calls import GuardedCalls
from privet.training.clipped_sums import StepError

pytestmark = pytest.mark.filterwarnings("ignore:the model changes its own state")

N = 6


class Means(nn.Module):
    """Keeps a running mean of its input."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 1)
        self.register_buffer("mean", torch.zeros(2))

    def forward(self, x):
        found = self.layer(x - self.mean)
        self.mean.lerp_(x.detach().mean(0), 0.5)
        return found


def setup(directory=None, model=None, loss=lambda model, batch: model(batch[0])[:, 0], **options):
    model = model or Means()
    plan = privet.Plan(
        examples=N, sampling=privet.sampling.FullBatch(), steps=4, clipping=privet.clipping.Flat(1.0), delta=1e-3,
        noise=privet.noise.Gaussian(2.0),
    )  # fmt: skip
    data = TensorDataset(torch.full((N, 2), 100.0))
    return privet.Training(plan, model, loss, torch.optim.SGD(model.parameters(), lr=0.1), data, directory, **options)


def read_mean(directory):
    return torch.load(directory / "checkpoint.pt", weights_only=True)["model"].get("mean", torch.zeros(2)).tolist()


@pytest.mark.parametrize("method", ["loop", "ghost"])
def test_an_interrupt_leaves_no_example_in_the_model_or_the_checkpoint(method, tmp_path):
    training = setup(tmp_path / "run", method=method)
    plain = Snapshot.restore

    def interrupted(self):
        signal.raise_signal(signal.SIGINT)
        plain(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Snapshot, "restore", interrupted)
        with pytest.raises(KeyboardInterrupt):
            training.run()
    assert training.model.mean.tolist() == read_mean(tmp_path / "run") == [0, 0]
    assert training.steps_spent == 1
    training.run()
    assert training.steps_spent == 4


def test_a_step_of_several_physical_batches_is_interrupted_after_one():
    def loss(model, batch):
        if interrupts:
            signal.raise_signal(signal.SIGINT)
        return model(batch[0])[:, 0]

    interrupts = False
    training = setup(loss=loss, physical_batch_size=2, method="loop")
    interrupts, sums, plain = True, [], training._stepper.summer._engine.clipped_sum

    def count(*arguments, **options):
        sums.append(plain(*arguments, **options))
        return sums[-1]

    training._stepper.summer._engine.clipped_sum = count
    with pytest.raises(KeyboardInterrupt):
        training.run()
    assert len(sums) == 1


def fail_once(monkeypatch, restores):
    """Let the restoring of the second pass fail, `restores` times."""
    plain, left, passes = Snapshot.restore, [1] * restores, []

    def restore(self):
        passes.append(self)
        if len(passes) > 1 and left and passes[1] in (self, None):
            left.pop()
            raise ZeroDivisionError
        plain(self)

    monkeypatch.setattr(Snapshot, "restore", restore)
    return left


def test_no_sum_is_released_of_a_model_that_could_not_be_restored(monkeypatch):
    training = setup(method="loop")
    before = training.model.layer.weight.tolist()
    left = fail_once(monkeypatch, 2)
    with pytest.raises(StepError, match="not released"):
        training.run()
    assert not left
    assert training.model.mean.tolist() == [0, 0]
    assert training.model.layer.weight.tolist() == before
    training.run()


def test_a_model_that_could_not_be_restored_is_restored_before_it_is_saved(monkeypatch, tmp_path):
    training = setup(tmp_path / "run")
    guard = training._stepper.summer._engine.program.guard
    with monkeypatch.context() as patch:
        patch.setattr(Snapshot, "restore", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError), guard.isolate():
            training.model(torch.ones(1, 2))
        assert training.model.mean.tolist() != [0, 0]
        for call in (training.save, training.run):
            with pytest.raises((LedgerError, ZeroDivisionError)) as raised:
                call()
            assert "could not be restored" in str(raised.value)
            assert raised.value.__suppress_context__
        assert training.steps_spent == 0
    training.save()
    assert training.model.mean.tolist() == read_mean(tmp_path / "run") == [0, 0]


def test_a_step_ends_what_a_pass_left_on_the_stacks():
    training = setup(method="ghost")
    mode = GuardedCalls(training._stepper.summer._engine.program.guard, None)
    mode.__enter__()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch._C._functorch, "_vmap_decrement_nesting", raise_interrupt)
        with pytest.raises(KeyboardInterrupt):
            vectorise(lambda token: token, torch.zeros(2), (), ())
    assert torch._C._functorch.maybe_current_level()
    training.run()
    assert torch._C._functorch.maybe_current_level() is None
    assert not torch.overrides._get_current_function_mode_stack()


def raise_interrupt():
    raise KeyboardInterrupt


def test_modes_of_the_caller_stay():
    training = setup(method="ghost")
    mode = GuardedCalls(training._stepper.summer._engine.program.guard, None)
    mode.__enter__()
    with torch.device("cpu"):
        own = torch.overrides._get_current_function_mode_stack()[1:]
        training.run()
        assert torch.overrides._get_current_function_mode_stack() == own


def test_a_step_within_a_transformation_spends_nothing():
    training = setup()

    def step(x):
        with pytest.raises(InvalidArgumentError, match=r"torch\.func"):
            next(training.steps())
        return x

    torch.func.vmap(step)(torch.zeros(2))
    assert training.steps_spent == 0


def test_an_interrupt_as_a_step_begins_leaves_the_next_one_possible():
    training = setup(model=Probe(2), loss=linear_loss)

    class Interrupted(dict):
        def setdefault(self, *item):
            found = super().setdefault(*item)
            signal.raise_signal(signal.SIGINT)
            return found

    training._stepper._stepping = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        training.run()
    assert not training._stepper._stepping
    training._stepper._stepping = {}
    training.run()
    assert training.steps_spent == 4
