"""A run in several processes, one of which stops or kills itself at a phase of a step; used by `test_crashes_of_ranks`.

Each rank notes durably, in a file of its own, every step for which it is about to draw noise.
"""

import json
import os
import signal
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import privet
from privet.distributed import World
from privet.distributed.sharded import ShardedModel
from privet.distributed.sharded_state import ShardedState
from privet.distributed.world import LEAVE, STEP, SUM
from privet.training.record import RunRecorder
from privet.training.state import TrainingState

N, STEPS = 60, 40
# Phases of a step at which a rank is killed, in their order; those of `ALONE_FIRST` are those of rank 0 only.
PHASES = (
    "before the reservation", "before the vote on a step", "after the vote on a step", "before the sum", "after the sum",
    "after the vote on a sum", "before the reduction", "before the noise", "after the noise", "after the gathering",
    "before the update", "after the update", "before the end", "after the vote on the end",
)  # fmt: skip
# Of a model with shards, besides: its passes gather and reduce, and all ranks collect what rank 0 saves.
OF_SHARDS = ("in a pass", "before the reduction of a module", "after the reduction of a module", "in a collection")
ALONE_FIRST = ("in a checkpoint", "before the return of steps", "after the return of steps")


class Victim:
    """Sends this process a signal at one phase of one step."""

    def __init__(self, world, folder, phase, when, number):
        self.phase, self.when, self.number, self.step = phase, when, number, 0
        self.killed, self.notes = (
            folder / "killed",
            os.open(folder / f"noise-{world.rank}", os.O_CREAT | os.O_WRONLY | os.O_APPEND),
        )

    def reach(self, phase):
        if phase is not None and phase == self.phase and self.step >= self.when:
            self.phase = None
            self.killed.write_text(f"{os.getpid()} {time.monotonic()}")
            os.kill(os.getpid(), self.number)

    def note(self):
        os.write(self.notes, b"%d\n" % self.step)
        os.fsync(self.notes)

    def wrap(self, owner, name, before=None, after=None):
        plain = getattr(owner, name)

        def call(*arguments, **options):
            self.reach(before)
            found = plain(*arguments, **options)
            self.reach(after)
            return found

        setattr(owner, name, call)

    def noting(self, scatter):
        def scatter_then_note(*arguments):
            self.reach("before the reduction")
            found = scatter(*arguments)
            self.note()
            self.reach("before the noise")
            return found

        return scatter_then_note

    def install(self):
        reserve, vote = World.reserve, World.vote
        voted = {STEP: "a step", SUM: "a sum", LEAVE: "the end"}

        def reserve_next(world, ledger):
            self.step = ledger.next_step
            self.reach("before the reservation")
            return reserve(world, ledger)

        def vote_in(world, phase, *arguments, **options):
            if phase in (STEP, LEAVE):
                self.reach("before the vote on a step" if phase == STEP else "before the end")
            found = vote(world, phase, *arguments, **options)
            self.reach(f"after the vote on {voted.get(phase)}")
            return found

        World.reserve, World.vote = reserve_next, vote_in
        for owners in (World, ShardedModel):
            owners.scatter = self.noting(owners.scatter)
            self.wrap(owners, "join", "after the noise", "after the gathering")
        self.wrap(privet.Training, "_sum", "before the sum", "after the sum")
        self.wrap(ShardedModel, "gather", "in a pass")
        self.wrap(ShardedModel, "reduce", "before the reduction of a module", "after the reduction of a module")
        self.wrap(ShardedState, "collect", "in a collection")
        self.wrap(TrainingState, "update", "before the update", "after the update")
        self.wrap(os, "replace", "in a checkpoint")
        self.wrap(RunRecorder, "pause", "before the return of steps", "after the return of steps")


def make(world, folder, sharded=False):
    """Return the next session of the run, or its first."""
    torch.manual_seed(world.rank)  # rank 0's parameters are everybody's
    model = nn.Sequential(nn.Linear(5, 3), nn.Linear(3, 1)) if sharded else nn.Linear(5, 1)
    if sharded and world.size > 1:
        from torch.distributed.fsdp import fully_shard

        for module in (*model, model):
            fully_shard(module)
    optimizer, data = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.5), TensorDataset(torch.ones(N, 5), torch.zeros(N))
    arguments = model, lambda net, batch: F.mse_loss(net(batch[0])[:, 0], batch[1], reduction="none"), optimizer, data
    options = {"reading": privet.Reading(probe=sharded), "method": "ghost", "world": world}
    storage = privet.Storage(folder / "run", checkpoint_every=2)
    if world.share((folder / "run" / "ledger").exists()):
        return privet.Training.resume(storage, *arguments, **options)
    plan = privet.Plan(
        examples=N, sampling=privet.sampling.Poisson(12), steps=STEPS, delta=1e-4, noise=privet.noise.Gaussian(2.0),
        clipping=privet.clipping.AdaptiveQuantile(privet.clipping.Flat(0.7)),
    )  # fmt: skip
    return privet.Training(plan, *arguments, storage, **options)


def train(world, folder, rank=-1, phase=None, when=0, number=signal.SIGKILL, sharded=False):
    """Take all steps; write down how this rank ended, and how many seconds after the signal."""
    victim = Victim(world, folder, phase if rank == world.rank else None, when, number)
    training, text, taken = make(world, folder, sharded), "", 0
    victim.install()
    try:
        with training:
            for _ in training:
                taken += 1
    except privet.errors.PrivetError as error:
        text = f"{type(error).__name__}: {error}"
    seconds = -1.0
    if victim.killed.exists():
        victim_id, moment = victim.killed.read_text().split()
        seconds = time.monotonic() - float(moment)
        if number != signal.SIGKILL:
            os.kill(int(victim_id), signal.SIGKILL)
    (folder / f"end-{world.rank}").write_text(json.dumps({"error": text, "seconds": seconds, "taken": taken}))
    os._exit(0)  # a group that has lost a rank cannot be left in order
