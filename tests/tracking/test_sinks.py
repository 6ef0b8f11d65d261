import importlib.util
import sys
import types

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import plans
import privet
from privet import tracking
from privet.errors import InvalidArgumentError, PrivetWarning
from privet.tracking.services import SINKS, Sink, make_sink

N, STEPS = 30, 6
SENT = {"epsilon", "learning_rate", "sensitivity", "seconds"}


def training(directory=None, rule=None):
    model = nn.Linear(3, 1)
    chosen = {"clipping": rule or privet.clipping.Flat(0.7), "noise": privet.noise.Gaussian(1.3)}
    plan = plans.plan(examples=N, sampling=privet.sampling.Poisson(10.0), steps=STEPS, delta=1e-3, **chosen)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
    data = TensorDataset(torch.randn(N, 3))
    return privet.Training(plan, model, lambda m, b: m(b[0])[:, 0].square(), optimizer, data, directory)


class Memory(Sink):
    """Keeps what it is sent."""

    def __init__(self, every=None, failing=False):
        super().__init__(every)
        self.sent, self.failing, self.closed = [], failing, False

    def _send(self, step, values):
        if self.failing:
            raise ConnectionError("no route")
        self.sent.append((step, dict(values)))

    def _close(self):
        self.closed = True


def test_every_value_of_a_step_is_a_finite_number():
    sink, running = Memory(), training()
    running.run(callbacks=[sink])
    assert [step for step, _ in sink.sent] == [*range(1, STEPS + 1)]
    assert all(values.keys() == SENT for _, values in sink.sent)
    assert sink.sent[-1][1]["epsilon"] == running.epsilon()


def test_released_statistics_and_numbers_of_ones_own_are_sent():
    sink, running = Memory(), training(rule=privet.clipping.AdaptiveQuantile(privet.clipping.Flat(0.7)))
    for step in running.releases(callbacks=[sink]):
        running.log({"test_accuracy": 0.5, "unknown": None})
        if step.number == 1:
            break
    assert [set(values) for _, values in sink.sent] == [SENT | {"clipping/within bound"}, {"test_accuracy"}]


def test_values_are_sent_now_and_then_and_after_the_last_step():
    sink = Memory(every=4)
    training().run(callbacks=[sink])
    assert [step for step, _ in sink.sent] == [4, 6]
    with pytest.raises(InvalidArgumentError, match="every"):
        Memory(every=0)


def test_a_service_that_fails_warns_once_and_training_continues():
    running = training()
    with pytest.warns(PrivetWarning, match="Memory failed .*no route.*training continues") as caught:
        running.run(callbacks=[Memory(failing=True)])
    assert (running.steps_spent, len(caught)) == (STEPS, 1)


def test_a_sink_is_closed_after_its_block():
    with Memory() as sink:
        training().run(callbacks=[sink])
    assert sink.closed


def test_event_files_of_tensorboard_hold_every_value(tmp_path):
    pytest.importorskip("tensorboard", reason="the extra tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with tracking.TensorBoard(tmp_path / "events", settings={"model": "mlp"}) as sink:
        running = training()
        for _ in running.releases(callbacks=[sink]):
            running.log({"test_accuracy": 0.5})
    events = EventAccumulator(str(tmp_path / "events")).Reload()
    assert set(events.Tags()["scalars"]) == SENT | {"test_accuracy"}
    assert [event.step for event in events.Scalars("epsilon")] == [*range(1, STEPS + 1)]
    assert events.Scalars("epsilon")[-1].value == pytest.approx(running.epsilon())
    assert events.Scalars("learning_rate")[0].value == 0.25
    assert "mlp" in events.Tensors("settings/text_summary")[0].tensor_proto.string_val[0].decode()


def test_mlflow_holds_every_value(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="the extra mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    place = f"sqlite:///{tmp_path}/mlflow.db" if importlib.util.find_spec("sqlalchemy") else str(tmp_path / "mlruns")
    with tracking.MLflow("mine", "first", tracking_uri=place, settings={"model": "mlp"}) as sink:
        running = training()
        running.run(callbacks=[sink])
    client = mlflow.MlflowClient(tracking_uri=place)
    (run,) = client.search_runs([client.get_experiment_by_name("mine").experiment_id])
    assert (run.info.run_name, run.info.status, run.data.params) == ("first", "FINISHED", {"model": "mlp"})
    assert set(run.data.metrics) == SENT
    history = client.get_metric_history(run.info.run_id, "epsilon")
    assert [metric.step for metric in history] == [*range(1, STEPS + 1)]
    assert run.data.metrics["epsilon"] == pytest.approx(running.epsilon())


def test_weights_and_biases_gets_every_value_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="the extra wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with tracking.WandB("mine", "first", mode="offline", dir=str(tmp_path), settings={"model": "mlp"}) as sink:
        running = training()
        running.run(callbacks=[sink])
        # W&B keeps the values of a step open until those of a later one come, or the run is finished.
        summary, config = dict(sink._run.summary), dict(sink._run.config)
    assert summary["epsilon"] == pytest.approx(running.plan.epsilon(steps=STEPS - 1))
    assert summary.keys() >= SENT
    assert config == {"model": "mlp"}
    assert list(tmp_path.rglob("*.wandb"))


class FakeRun:
    """Takes what `wandb.init` and `Run` are documented to take, and nothing else."""

    def __init__(self, *, project, name, config, mode="online"):
        self.opened, self.logged, self.finished = (project, name, config, mode), [], False

    def log(self, data, step):
        assert not self.logged or step >= self.logged[-1][0], "W&B ignores earlier steps"
        self.logged.append((step, data))

    def finish(self):
        self.finished = True


def test_weights_and_biases_is_called_as_documented(monkeypatch):
    opened = []
    fake = types.ModuleType("wandb")
    fake.__spec__ = importlib.util.spec_from_loader("wandb", None)
    fake.init = lambda **options: opened.append(FakeRun(**options)) or opened[-1]
    monkeypatch.setitem(sys.modules, "wandb", fake)
    with tracking.WandB("mine", settings={"steps": 6}, mode="disabled") as sink:
        assert not opened
        training().run(callbacks=[sink])
    (run,) = opened
    assert run.opened == ("mine", None, {"steps": 6}, "disabled")
    assert [step for step, _ in run.logged] == [*range(1, STEPS + 1)]
    assert run.finished


@pytest.fixture
def installed(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("tensorboard", tracking.TensorBoard), ("tensorboard=events", tracking.TensorBoard), ("wandb=project", tracking.WandB),
        ("mlflow=http://localhost:5000", tracking.MLflow),
    ],
)  # fmt: skip
def test_sinks_have_names(text, kind, tmp_path, installed):
    assert type(make_sink(text, tmp_path)) is kind
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_sink_is_refused(tmp_path):
    with pytest.raises(InvalidArgumentError, match=r"--log is 'aim'; it must be one of 'tensorboard', 'wandb', 'mlflow'"):
        make_sink("aim", tmp_path, argument="--log")


@pytest.mark.parametrize("name", SINKS)
def test_a_sink_without_its_library_is_refused_with_the_command_that_installs_it(name, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InvalidArgumentError, match=rf"^sink is '{name}=x'; .*pip install 'privet\[{name}\]'"):
        make_sink(f"{name}=x", tmp_path)


def test_the_events_of_tensorboard_stay_where_they_were_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr("privet.tracking.services._check_installed", lambda *names: None)
    monkeypatch.chdir(tmp_path)
    assert tracking.TensorBoard("events")._directory == tmp_path / "events"
