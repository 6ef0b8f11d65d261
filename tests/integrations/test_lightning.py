import copy
import dataclasses
import json
import logging
import os
from queue import SimpleQueue

import pytest

pytest.importorskip("lightning")

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import privet
from privet._utils.registry import decode
from privet.errors import InvalidArgumentError, PrivetWarning, UnsupportedModelError
from privet.integrations.lightning import PrivateModule
from privet.integrations.lightning.module import PublicTrainer
from privet.integrations.lightning.trainer_settings import check_trainer

N, STEPS, PER_EPOCH = 80, 20, 4
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
pytestmark = pytest.mark.filterwarnings("ignore::lightning.pytorch.utilities.warnings.PossibleUserWarning")


@pytest.fixture(autouse=True)
def alone():
    """Leave no process group, and no variables that announce one: other libraries would join it."""
    before = set(os.environ)
    yield
    for name in set(os.environ) - before:
        del os.environ[name]
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def table():
    inputs = torch.randn(N, 6)
    return TensorDataset(inputs, (inputs.sum(1) > 0).long())


DATA, PUBLIC = table(), table()


class Classifier(PrivateModule):
    interval, made = "step", torch.optim.SGD

    def __init__(self, width=8):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(6, width), nn.Tanh(), nn.Linear(width, 2))

    def losses(self, batch):
        return F.cross_entropy(self.net(batch[0]), batch[1], reduction="none")

    def configure_optimizers(self):
        optimizer = self.made(self.parameters(), lr=0.5)
        scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=STEPS)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": self.interval}}

    def validation_step(self, batch, index):
        self.log("accuracy", (self.net(batch[0]).argmax(1) == batch[1]).float().mean())

    def val_dataloader(self):
        return DataLoader(PUBLIC, batch_size=N)


def plan(multiplier=2.0, sampling=None, steps=STEPS):
    return privet.Plan(
        examples=N, sampling=sampling or privet.sampling.Poisson(N / PER_EPOCH), steps=steps, delta=1e-4,
        clipping=privet.clipping.Flat(1.0), noise=privet.noise.Gaussian(multiplier, non_private=multiplier == 0),
    )  # fmt: skip


def trainer(folder, **options):
    options = {"max_steps": STEPS, "logger": CSVLogger(folder), "num_sanity_val_steps": 0, "log_every_n_steps": 5, **options}
    return pl.Trainer(
        accelerator="cpu", default_root_dir=folder, enable_progress_bar=False, enable_model_summary=False, **options
    )  # fmt: skip


class StopAt(pl.Callback):
    """Saves at one step and stops at a later one, as an interrupted program would, or fails."""

    def __init__(self, saves, stops, fails=False):
        self.saves, self.stops, self.fails = saves, stops, fails

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        if trainer.global_step == self.saves:
            trainer.save_checkpoint(f"{trainer.default_root_dir}/saved.ckpt")
        trainer.should_stop |= trainer.global_step == self.stops
        if self.fails and trainer.should_stop:
            raise RuntimeError("power cut")


def rate(host):
    return host.optimizers[0].param_groups[0]["lr"]


def test_the_trainer_counts_validates_and_logs_nothing_but_public_numbers(tmp_path):
    class Sees(pl.Callback):
        batches, outputs = [], []

        def on_train_batch_end(self, trainer, module, outputs, batch, index):
            self.batches.append(batch)
            self.outputs.append(outputs)

    module = Classifier().set_privacy(plan(), DATA, tmp_path / "run")
    before, host = copy.deepcopy(module.state_dict()), trainer(tmp_path, callbacks=[Sees()], profiler="simple")
    host.fit(module)
    assert Sees.batches == [*range(PER_EPOCH)] * (STEPS // PER_EPOCH)  # numbers of steps take their place
    assert not any(Sees.outputs)
    assert (host.global_step, host.current_epoch, module.private_training.steps_spent) == (STEPS, STEPS // PER_EPOCH, STEPS)
    assert rate(host) == pytest.approx(0.0, abs=1e-9)
    assert host.callback_metrics.keys() == {"epsilon", "accuracy"}
    assert host.callback_metrics["epsilon"].item() == pytest.approx(plan().epsilon())
    assert module.private_training.guarantee().epsilon == pytest.approx(plan().epsilon())
    header, *rows = (tmp_path / "lightning_logs" / "version_0" / "metrics.csv").read_text().split()
    assert header == "accuracy,epoch,epsilon,step"
    assert [row.split(",")[3] for row in rows if row.split(",")[2]] == ["4", "9", "14", "19"]
    assert module.state_dict().keys() == before.keys() == {f"net.{i}.{part}" for i in (0, 2) for part in ("weight", "bias")}
    assert not any(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_a_fit_is_the_same_function_of_the_data_as_a_training(tmp_path):
    """Without noise and with everybody in every step; with a rate and a weight that follow the steps."""

    class Anneals(Classifier):
        def losses(self, batch):
            return super().losses(batch) * (1 + self.trainer.global_step) / self.trainer.max_steps

    the_plan = plan(0.0, privet.sampling.FullBatch())
    module, alone = Anneals().set_privacy(the_plan, DATA), Classifier()
    trainer(tmp_path, logger=False, enable_checkpointing=False).fit(module)
    optimizer, weight = torch.optim.SGD(alone.parameters(), lr=0.5), [1.0]
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=STEPS)
    training = privet.Training(
        the_plan, alone, lambda model, batch: model.losses(batch) * weight[0], optimizer, DATA, scheduler=scheduler
    )
    releases = training.releases()
    for place in range(STEPS):
        weight[0] = (1 + place) / STEPS
        assert next(releases) is not None
        optimizer.step()
        scheduler.step()
    for name, value in alone.state_dict().items():
        torch.testing.assert_close(module.state_dict()[name], value, rtol=1e-5, atol=1e-6)


def test_schedules_by_epoch_are_stepped_once_per_epoch(tmp_path):
    class ByEpoch(Classifier):
        interval = "epoch"

    host = trainer(tmp_path, logger=False, enable_checkpointing=False)
    host.fit(ByEpoch().set_privacy(plan(), DATA))
    assert rate(host) == pytest.approx(0.5 * (1 - STEPS / PER_EPOCH / STEPS))


def test_a_fit_resumes_from_an_older_checkpoint_and_what_was_lost_stays_spent(tmp_path):
    place = privet.Storage(tmp_path / "run", anchor=tmp_path / "anchor", files={"notes.txt": "a note"})
    module = Classifier().set_privacy(plan(), DATA, place)
    trainer(tmp_path, callbacks=[StopAt(10, 13)]).fit(module)
    assert module.private_training.steps_spent == 13
    saved = torch.load(tmp_path / "saved.ckpt", weights_only=True)
    assert {name: saved["privet"][name] for name in ("delta", "steps")} == {"delta": 1e-4, "steps": 10}
    assert saved["privet"]["epsilon"] == pytest.approx(plan().epsilon(steps=10))
    again, host = Classifier().set_privacy(plan(), DATA, place), trainer(tmp_path)
    seen = []
    host.callbacks.append(SeesFirst(seen))
    host.fit(again, ckpt_path=tmp_path / "saved.ckpt")
    assert all(torch.equal(value, saved["state_dict"][name]) for name, value in seen[0].items())
    for state in seen[1:4]:  # the lost steps 11 to 13: the schedule moves on, and the parameters do not
        assert all(torch.equal(value, seen[0][name]) for name, value in state.items())
    assert not torch.equal(seen[4]["net.0.weight"], seen[0]["net.0.weight"])
    assert (len(seen), host.global_step, again.private_training.steps_spent) == (10, STEPS, STEPS)
    assert rate(host) == pytest.approx(0.0, abs=1e-9)
    assert host.callback_metrics["epsilon"].item() == pytest.approx(plan().epsilon())


def test_an_adapted_bound_continues_from_the_checkpoint(tmp_path):
    """It is no part of the model, the optimizer or the schedule, so Lightning does not know it."""
    adaptive = privet.clipping.AdaptiveQuantile(privet.clipping.Flat(1.0), learning_rate=0.5)
    the_plan = dataclasses.replace(plan(), clipping=adaptive)
    module = Classifier().set_privacy(the_plan, DATA, tmp_path / "run")
    trainer(tmp_path, callbacks=[StopAt(10, 10)]).fit(module)
    adapted = decode("clipping", module.private_training.state_dict()["state"]["rule"]["rule"], type(adaptive))
    again = Classifier().set_privacy(the_plan, DATA, tmp_path / "run")
    trainer(tmp_path).fit(again, ckpt_path=tmp_path / "saved.ckpt")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    used = {line["step"]: line["sensitivity"] for line in lines}
    assert used[11] == pytest.approx(adapted.sensitivity)
    assert used[11] != pytest.approx(used[1], rel=1e-3)


class SeesFirst(pl.Callback):
    def __init__(self, seen):
        self.seen = seen

    def on_train_batch_start(self, trainer, module, batch, index):
        self.seen.append(copy.deepcopy(module.state_dict()))


def test_the_rest_of_an_epoch_that_was_lost_passes_without_updates(tmp_path):
    """Its partition of the data ended with the process, so its steps are spent without a release."""
    the_plan = plan(sampling=privet.sampling.BallsInBins(N / PER_EPOCH))
    stopped = STEPS - PER_EPOCH + 1
    trainer(tmp_path, callbacks=[StopAt(stopped, stopped)]).fit(Classifier().set_privacy(the_plan, DATA, tmp_path / "run"))
    saved = torch.load(tmp_path / "saved.ckpt", weights_only=True)
    again, host = Classifier().set_privacy(the_plan, DATA, tmp_path / "run"), trainer(tmp_path)
    host.fit(again, ckpt_path=tmp_path / "saved.ckpt")
    assert (host.global_step, again.private_training.steps_spent) == (STEPS, STEPS)
    assert all(torch.equal(value, saved["state_dict"][name]) for name, value in again.state_dict().items())


def test_a_checkpoint_without_its_run_is_refused(tmp_path):
    module = Classifier().set_privacy(plan(), DATA, tmp_path / "run")
    trainer(tmp_path, callbacks=[StopAt(2, 2)]).fit(module)
    for directory in (None, tmp_path / "other"):
        with pytest.raises(InvalidArgumentError, match="a run and its checkpoint"):
            trainer(tmp_path).fit(Classifier().set_privacy(plan(), DATA, directory), ckpt_path=tmp_path / "saved.ckpt")
    with pytest.raises(InvalidArgumentError, match="and None'; it must be a run and its checkpoint"):
        trainer(tmp_path).fit(Classifier().set_privacy(plan(), DATA, tmp_path / "run"))


@pytest.mark.parametrize("another", [False, True])
def test_a_fit_that_was_interrupted_continues_with_the_same_or_another_module(tmp_path, another):
    first = Classifier().set_privacy(plan(), DATA, tmp_path / "run")
    with pytest.raises(RuntimeError, match="power cut"):
        trainer(tmp_path, callbacks=[StopAt(6, 6, fails=True)]).fit(first)
    assert first.private_training.steps_spent == 6
    second = Classifier().set_privacy(plan(), DATA, tmp_path / "run") if another else first
    host = trainer(tmp_path)
    host.fit(second, ckpt_path=tmp_path / "saved.ckpt")
    assert (host.global_step, second.private_training.steps_spent) == (STEPS, STEPS)


def test_a_second_fit_is_a_run_of_its_own(tmp_path):
    """It starts from what the first one released, so the ε of one run would be too small."""
    module = Classifier().set_privacy(plan(), DATA)
    trainer(tmp_path).fit(module)
    with pytest.raises(InvalidArgumentError, match=r"fit is 'the second one.*Call set_privacy again.*privet\.Budget"):
        trainer(tmp_path).fit(module)
    trainer(tmp_path).fit(module.set_privacy(plan(), DATA))
    assert module.private_training.steps_spent == STEPS


class OwnHooks(Classifier):
    """Overrides hooks without `super()`, as Lightning's own are empty."""

    def on_train_start(self):
        pass

    on_train_end = on_train_start

    def on_save_checkpoint(self, checkpoint):
        checkpoint["own"] = 1

    def on_load_checkpoint(self, checkpoint):
        assert checkpoint["own"] == 1


def test_hooks_of_the_users_own_leave_out_no_check_and_no_state(tmp_path):
    trainer(tmp_path, callbacks=[StopAt(4, 6)]).fit(OwnHooks().set_privacy(plan(), DATA, tmp_path / "run"))
    module, host = OwnHooks().set_privacy(plan(), DATA, tmp_path / "run"), trainer(tmp_path)
    host.fit(module, ckpt_path=tmp_path / "saved.ckpt")
    assert (host.global_step, module.private_training.steps_spent) == (STEPS, STEPS)
    with pytest.raises(InvalidArgumentError, match="train_dataloaders"):
        trainer(tmp_path).fit(OwnHooks().set_privacy(plan(), DATA), DataLoader(PUBLIC, batch_size=20))


def test_callbacks_of_the_modules_own_are_added_to_privets(tmp_path):
    stop = pl.callbacks.EarlyStopping("accuracy", patience=0, mode="max", min_delta=1.0)

    class Replaces(Classifier):
        def configure_callbacks(self):
            return [stop]

    class Adds(Classifier):
        def configure_callbacks(self):
            return [*super().configure_callbacks(), stop]

    with pytest.raises(InvalidArgumentError, match=r"configure_callbacks.*adds to super\(\)\.configure_callbacks\(\)"):
        trainer(tmp_path, max_steps=STEPS + 1).fit(Replaces().set_privacy(plan(), DATA))
    module = Adds().set_privacy(plan(), DATA)
    trainer(tmp_path).fit(module)
    assert module.private_training.steps_spent == 2 * PER_EPOCH


class OwnStep(Classifier):
    def training_step(self, batch, index):
        return self.losses(batch).mean()


class TwoOptimizers(Classifier):
    def configure_optimizers(self):
        return [torch.optim.SGD(part.parameters(), lr=0.1) for part in (self.net[0], self.net[2])]


class Following(Classifier):
    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "monitor": "accuracy"}}


REFUSED = {
    "another number of steps": (Classifier, {"max_steps": STEPS + 1}, rf"max_steps\) is 21.*plan\.total_steps \({STEPS}\)"),
    "no number of steps": (Classifier, {"max_steps": -1, "max_epochs": 5}, r"max_steps\) is -1"),
    "too few epochs": (Classifier, {"max_epochs": 4}, r"max_epochs\) is 4.*left out"),
    "clipping": (Classifier, {"gradient_clip_val": 0.5}, r"gradient_clip_val\) is 0\.5.*clipping bounds each example"),
    "accumulation": (Classifier, {"accumulate_grad_batches": 2}, r"accumulate_grad_batches\) is 2.*physical_batch_size"),
    "a module in float64": (Classifier, {"precision": "64-true"}, r"precision\) is '64-true'.*'32-true' or 'bf16-mixed'"),
    "a module in bfloat16": (Classifier, {"precision": "bf16-true"}, r"precision\) is 'bf16-true'"),
    "statistics of all processes": (Classifier, {"strategy": "ddp", "devices": 1, "sync_batchnorm": True}, r"sync_batchnorm"),
    "a finder": (Classifier, {"callbacks": [pl.callbacks.LearningRateFinder()]}, r"LearningRateFinder.*spend the budget"),
    "a training step": (OwnStep, {}, r"training_step.*OwnStep.*losses\(batch\)"),
    "two optimizers": (TwoOptimizers, {}, r"2 optimizers.*privet\.optim\.Combined"),
    "a scheduler that follows a metric": (Following, {}, r"follows a metric"),
}


@pytest.mark.parametrize(("kind", "options", "says"), REFUSED.values(), ids=REFUSED)
def test_what_would_void_the_promise_is_refused_by_name_before_a_step(tmp_path, kind, options, says):
    module = kind()
    with pytest.raises(InvalidArgumentError, match=says):
        trainer(tmp_path, **options).fit(module.set_privacy(plan(), DATA, tmp_path / "run"))
    assert module.private_training is None
    assert not (tmp_path / "run").exists()


def test_strategies_that_divide_the_module_or_lose_the_plan_are_refused(tmp_path):
    host = trainer(tmp_path, strategy="ddp_spawn", devices=2)
    with pytest.raises(InvalidArgumentError, match=r"start_method='spawn'.*left out, or 'ddp'.*have no plan"):
        check_trainer(host, plan())
    host._accelerator_connector.strategy = pl.strategies.FSDPStrategy()
    with pytest.raises(InvalidArgumentError, match=r"strategy\) is 'FSDPStrategy'.*divide the module"):
        check_trainer(host, plan())


def test_scalers_are_refused(tmp_path, monkeypatch):
    host = trainer(tmp_path)
    monkeypatch.setattr(type(host), "precision", "16-mixed")
    with pytest.raises(InvalidArgumentError, match=r"precision\) is '16-mixed'.*bf16-mixed"):
        host.fit(Classifier().set_privacy(plan(), DATA))


def test_a_loader_of_the_user_is_refused_before_it_is_read(tmp_path):
    class Unread(TensorDataset):
        def __getitem__(self, index):
            raise AssertionError("read")

    with pytest.raises(InvalidArgumentError, match=r"train_dataloaders.*set_privacy"):
        trainer(tmp_path).fit(Classifier().set_privacy(plan(), DATA), DataLoader(Unread(*DATA.tensors), batch_size=20))


class Unused(pl.LightningDataModule):
    """Has validation data of its own; its training loader is for programs that are not private."""

    def train_dataloader(self):
        raise AssertionError("asked for a training loader")

    def val_dataloader(self):
        return DataLoader(PUBLIC, batch_size=N // 2)


class WithoutTraining(pl.LightningDataModule):
    val_dataloader = Unused.val_dataloader


@pytest.mark.parametrize("kind", [Unused, WithoutTraining])
def test_a_data_module_serves_validation_and_leaves_training_to_the_plan(tmp_path, kind):
    module, host = Classifier().set_privacy(plan(), DATA), trainer(tmp_path)
    host.fit(module, datamodule=kind())
    assert (host.global_step, module.private_training.steps_spent) == (STEPS, STEPS)
    assert "accuracy" in host.callback_metrics
    assert len(host.val_dataloaders) == 2


class WithoutBatches(Classifier):
    def train_dataloader(self):
        return []


@pytest.mark.parametrize(
    ("kind", "options", "loaders"),
    [(WithoutBatches, {}, ()), (Classifier, {}, ([],)), (Classifier, {"limit_train_batches": 0}, ())],
)
def test_a_fit_without_a_step_does_not_end_silently(tmp_path, kind, options, loaders):
    with pytest.raises(InvalidArgumentError, match=rf"fit is 'without a step of the {STEPS} that are left'.*train_dataloaders"):
        trainer(tmp_path, **options).fit(kind().set_privacy(plan(), DATA), *loaders)


def test_a_run_that_has_ended_may_be_continued_without_a_step(tmp_path):
    host = trainer(tmp_path)
    host.fit(Classifier().set_privacy(plan(), DATA, tmp_path / "run"))
    host.save_checkpoint(tmp_path / "last.ckpt")
    again = trainer(tmp_path)
    again.fit(Classifier().set_privacy(plan(), DATA, tmp_path / "run"), ckpt_path=tmp_path / "last.ckpt")
    assert again.global_step == STEPS


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("by", ["loaders", "a data module"])
def test_the_training_set_is_not_validated_on(tmp_path, several, by):
    loaders = [DataLoader(data, batch_size=20) for data in ((PUBLIC, DATA) if several else (DATA,))]
    loaders = loaders if several else loaders[0]
    own = type("Own", (Unused,), {"val_dataloader": lambda self: loaders})
    given = {"val_dataloaders": loaders} if by == "loaders" else {"datamodule": own()}
    with pytest.raises(InvalidArgumentError, match=r"val_dataloaders is 'of the training set'"):
        trainer(tmp_path).fit(Classifier().set_privacy(plan(), DATA, tmp_path / "run"), **given)
    assert not (tmp_path / "run").exists()


def test_a_compiled_module_is_trained_uncompiled_and_that_is_said(tmp_path):
    module = Classifier().set_privacy(plan(), DATA)
    with pytest.warns(PrivetWarning, match=r"the module is compiled.*Fit the module that you compiled"):
        trainer(tmp_path).fit(torch.compile(module))
    assert module.private_training.steps_spent == STEPS


def test_a_module_without_a_plan_unknown_options_and_automatic_optimization_are_refused(tmp_path):
    with pytest.raises(InvalidArgumentError, match="set_privacy"):
        trainer(tmp_path).fit(Classifier())
    with pytest.raises(InvalidArgumentError, match="scheduler"):
        Classifier().set_privacy(plan(), DATA, scheduler=None)
    with pytest.raises(NotImplementedError, match="losses"):
        PrivateModule().losses(None)
    module = Classifier()
    module.automatic_optimization = False
    with pytest.raises(InvalidArgumentError, match="automatic_optimization"):
        module.automatic_optimization = True


@pytest.mark.parametrize("probe", [False, True])
def test_a_loss_has_public_numbers_of_the_trainer_and_what_it_logs_reaches_nobody(tmp_path, probe):
    told = SimpleQueue()  # a queue, as lists are as before after a pass

    class Talkative(Classifier):
        def losses(self, batch):
            told.put((self.trainer, self.logger, self.loggers, self.global_step, self.current_epoch))
            found = super().losses(batch)
            self.log("secret", 1.0, on_epoch=True, prog_bar=True)
            self.log_dict({"loss": 2.0})
            self.print("secret")
            return found

    host = trainer(tmp_path)
    host.fit(Talkative().set_privacy(plan(), DATA, reading=privet.Reading(probe=probe)))
    steps = set()
    while not told.empty():
        numbers, logger, loggers, step, epoch = told.get()
        assert (type(numbers), logger, loggers) == (PublicTrainer, None, ())
        assert (epoch, numbers.current_epoch, numbers.global_step) == (step // PER_EPOCH, epoch, step)
        assert (numbers.max_steps, numbers.estimated_stepping_batches, numbers.training) == (STEPS, STEPS, True)
        steps.add(step)
    assert steps == {*range(STEPS)}
    assert host.callback_metrics.keys() == {"epsilon", "accuracy"}
    assert "secret" not in (tmp_path / "lightning_logs" / "version_0" / "metrics.csv").read_text()


@pytest.mark.parametrize(
    "use",
    [lambda module: module.trainer.callback_metrics, lambda module: setattr(module.trainer, "seen", 1)],
    ids=["read", "write"],
)
def test_a_loss_that_asks_more_of_the_trainer_is_refused_before_a_step(tmp_path, use):
    class Asks(Classifier):
        def losses(self, batch):
            use(self)
            return super().losses(batch)

    module = Asks().set_privacy(plan(), DATA)
    with pytest.raises(UnsupportedModelError, match=r"the Trainer has no 'callback_metrics'|cannot assign to field 'seen'"):
        trainer(tmp_path).fit(module)
    assert module.private_training is None


def test_autocast_works(tmp_path):
    module, host = Classifier().set_privacy(plan(), DATA), trainer(tmp_path, precision="bf16-mixed")
    host.fit(module)
    assert (host.global_step, module.private_training.steps_spent) == (STEPS, STEPS)


def test_a_copy_and_a_loaded_module_are_models_without_a_training(tmp_path):
    module = Classifier().set_privacy(plan(), DATA)
    host = trainer(tmp_path)
    host.fit(module)
    host.save_checkpoint(tmp_path / "last.ckpt")
    loaded = Classifier.load_from_checkpoint(tmp_path / "last.ckpt", width=8)
    twin = copy.deepcopy(module)
    for model in (loaded, twin):
        assert model.private_training is None
        assert all(torch.equal(value, module.state_dict()[name]) for name, value in model.state_dict().items())
    assert module.private_training.guarantee().epsilon == pytest.approx(plan().epsilon())
