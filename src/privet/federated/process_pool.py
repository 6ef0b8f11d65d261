"""Process pool: the clients of a simulation, trained by several processes at once."""

from __future__ import annotations

import pickle
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import multiprocessing

from privet.clipping.clipped_sum import ClippedSum
from privet.errors import InvalidArgumentError, count
from privet.federated.rounds import Round, no_contributions
from privet.federated.simulation import Simulation
from privet.sampling import Indices

# The simulation of a worker process.
_held: Simulation | None = None


class ProcessPool:
    """A population whose cohorts are divided among processes, each of which runs the same simulation on its part.

    Worth it where a client's training takes longer than sending the parameters, and there is a core for each process. Where
    processes are not forked, model, loss and clients must be picklable, so the loss must be a function of a module.

    Args:
        simulation: the population, on the CPU.
        processes: number of processes, ≥ 1. Each uses one thread.

    Attributes:
        clients, privacy_unit, program: those of the simulation.

    Guarantee:
        That of `Simulation`: the sum of a cohort is that of its parts, each clipped client by client, up to rounding. If a
        process ends early, the round has no sum and counts as spent.

    Raises:
        InvalidArgumentError: an argument is out of range.

    >>> from torch import nn
    >>> from privet.federated import LocalSteps
    >>> def loss_fn(model, batch):
    ...     return (model(batch[0])[:, 0] - batch[1]).square()
    >>> clients = [(torch.randn(5, 2), torch.randn(5)) for _ in range(10)]
    >>> with ProcessPool(Simulation(nn.Linear(2, 1), loss_fn, clients, LocalSteps(0.1, 1)), processes=2) as pool:
    ...     pool.clients
    10
    """

    def __init__(self, simulation: Simulation, processes: int) -> None:
        if not isinstance(simulation, Simulation):
            raise InvalidArgumentError("simulation", type(simulation).__name__, "a privet.federated.Simulation")
        if (device := simulation.device).type != "cpu":
            fix = "A simulation on a GPU takes one process."
            raise InvalidArgumentError("simulation", f"one on {device}", "one whose model is on the CPU", fix)
        self._processes = count("processes", processes, fix="One for each core is a good choice.")
        self.clients, self.privacy_unit, self.program = simulation.clients, simulation.privacy_unit, simulation.program
        self.shapes, self.runs_user_code = simulation.shapes, simulation.runs_user_code
        self._pool = ProcessPoolExecutor(
            self._processes, multiprocessing.get_context(), initializer=_hold, initargs=(simulation,)
        )
        self._pool.submit(int).result()  # starts them all, before a training has threads that a fork would not copy

    def gather(self, told: Round, cohort: Indices) -> ClippedSum:
        """Return the clipped sum of the cohort's updates; BrokenProcessPool if a process ended early."""
        parts = [part for part in np.array_split(np.asarray(cohort, dtype=np.int64), self._processes) if len(part)]
        sent = pickle.dumps(told)  # plain copies: torch would share memory, whose files a killed process leaves behind
        found = no_contributions(told)
        tensors = {name: tensor.clone() for name, tensor in found.tensors.items()}
        for sums in self._pool.map(_gather, [sent] * len(parts), parts):
            for name, tensor in tensors.items():
                tensor += torch.from_numpy(sums[name]).to(tensor)
        return replace(found, tensors=tensors)

    def close(self) -> None:
        """End the processes."""
        self._pool.shutdown(cancel_futures=True)

    def __enter__(self) -> ProcessPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _hold(simulation: Simulation) -> None:
    global _held
    _held = simulation
    torch.set_num_threads(1)  # threads of the parent do not survive a fork


def _gather(told: bytes, part: Indices) -> dict[str, NDArray[Any]]:
    assert _held is not None
    found = _held.gather(pickle.loads(told), part)
    return {name: tensor.detach().cpu().numpy() for name, tensor in found.tensors.items()}
