"""Lightning in two processes trains as in one: parameters, checkpoints, and ε, which rank 0 alone logs."""

import csv
import json
import time
import warnings

import pytest

pytest.importorskip("lightning")

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import privet
from distributed.processes import announce, run_ranks
from privet.distributed.world import ALONE
from privet.errors import InvalidArgumentError
from privet.integrations.lightning import PrivateModule

N, STEPS = 80, 12
ROUNDING = 1e-6  # float32 sums in another order


class Classifier(PrivateModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))

    def losses(self, batch):
        return F.cross_entropy(self.net(batch[0]), batch[1], reduction="none")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


class StopAt(pl.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        if trainer.global_step == 5:
            trainer.save_checkpoint(f"{trainer.default_root_dir}/saved.ckpt")
        trainer.should_stop |= trainer.global_step == 7


def fit(
    world, folder, source, resumes=False, callbacks=(), devices=None, steps=STEPS, module=Classifier, directory="run"
):  # fmt: skip
    """Fit, as one of the processes that torchrun has started; return the module."""
    warnings.simplefilter("ignore")
    announce(world)
    generator = torch.Generator().manual_seed(1)
    data = TensorDataset(torch.randn(N, 6, generator=generator), torch.randint(2, (N,), generator=generator))
    plan = privet.Plan(
        examples=N, sampling=privet.sampling.Poisson(batch_size=20), steps=STEPS, delta=1e-4,
        clipping=privet.clipping.Flat(1.0), noise=privet.noise.Gaussian(2.0, source=source),
    )  # fmt: skip
    module = module().set_privacy(plan, data, folder / directory)
    host = pl.Trainer(
        max_steps=steps, accelerator="cpu", devices=devices or world.size,
        strategy="ddp" if devices is None and world.size > 1 else "auto",
        default_root_dir=folder, logger=CSVLogger(folder), log_every_n_steps=4, callbacks=list(callbacks),
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
    )  # fmt: skip
    host.fit(module, ckpt_path=f"{folder}/saved.ckpt" if resumes else None)
    assert type(host.strategy.model) is Classifier
    own = torch.cat([value.detach().flatten() for value in module.parameters()])
    assert all(torch.equal(own, other) for other in world.gather(own))
    if world.first:
        torch.save(own, f"{folder}/{world.size}.pt")
    return module


def train(world, folder):
    assert fit(world, folder / str(world.size), "fixed").private_training.steps_spent == STEPS


def interrupt(world, folder):
    assert fit(world, folder, "secure", callbacks=[StopAt()]).private_training.steps_spent == 7


def resume(world, folder):
    training = fit(world, folder, "secure", resumes=True).private_training
    assert training.steps_spent == STEPS
    assert training.epsilon() == training.plan.epsilon()


def test_two_processes_of_lightning_train_as_one_and_rank_0_logs(tmp_path):
    for size in (1, 2):
        (tmp_path / str(size)).mkdir()
    run_ranks(2, train, tmp_path)
    train(ALONE, tmp_path)
    several, alone = (torch.load(tmp_path / str(size) / f"{size}.pt") for size in (2, 1))
    assert float((several - alone).abs().max()) <= ROUNDING
    (log,) = (tmp_path / "2").rglob("metrics.csv")
    with log.open() as file:
        assert [row["step"] for row in csv.DictReader(file) if row["epsilon"]] == ["3", "7", "11"]


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2])
def test_a_checkpoint_of_two_processes_of_lightning_is_resumed_by_any_number(tmp_path, size):
    run_ranks(2, interrupt, tmp_path)
    saved = torch.load(tmp_path / "saved.ckpt", weights_only=True)["privet"]
    assert saved["steps"] == 5
    if size == 1:
        resume(ALONE, tmp_path)
    else:
        run_ranks(2, resume, tmp_path)


def fit_on_one_device(world, folder):
    """Fit as a process that Lightning takes for the only one."""
    with pytest.raises(InvalidArgumentError) as refused:
        fit(world, folder / str(world.rank), "secure", devices=1)
    (folder / f"{world.rank}.txt").write_text(str(refused.value))


@pytest.mark.slow
def test_a_trainer_of_one_device_is_refused_in_a_group_on_every_rank(tmp_path):
    run_ranks(2, fit_on_one_device, tmp_path)
    for rank in range(2):
        text = (tmp_path / f"{rank}.txt").read_text()
        assert "world is 'one process of 2'" in text
        assert not (tmp_path / str(rank) / "run" / "ledger").exists()


class TwoOptimizers(Classifier):
    def configure_optimizers(self):
        return [super().configure_optimizers(), super().configure_optimizers()]


# What rank 1 does differently → its error.
REFUSALS = {
    "steps": ({"steps": STEPS - 1}, "Trainer(max_steps) is 11"),
    "optimizers": ({"module": TwoOptimizers}, "configure_optimizers is '2 optimizers'"),
    "a used directory": ({"directory": "used"}, "directory and ckpt_path is"),
}


def refuse(world, folder):
    """Let rank 1 refuse what the others accept."""
    (folder / "used").mkdir(exist_ok=True)
    (folder / "used" / "ledger").write_text("a record\n")
    found, seconds = {}, {}
    for name, (change, _) in REFUSALS.items():
        world.gather(name)  # all begin at once
        begun = time.monotonic()
        try:
            fit(world, folder, "secure", **change if world.rank == 1 else {})
        except Exception as error:
            found[name] = str(error)
        seconds[name] = time.monotonic() - begun
    fit(world, folder, "secure")  # a rank that refused is not lost
    (folder / f"{world.rank}.json").write_text(json.dumps(found))
    print("seconds until all had raised:", seconds)


@pytest.mark.slow
def test_what_one_rank_refuses_ends_the_fits_of_all(tmp_path):
    run_ranks(2, refuse, tmp_path)
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    for name, (_, text) in REFUSALS.items():
        assert text in second[name], name
        assert first[name].startswith(f"rank 1 failed: {text}"), name
