"""The server of federated learning: the plan, ledger, noise and optimizer of a training, with sums that clients contribute to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import AveragedModel

from privet._utils.tensors import total_size
from privet.accounting.guarantee.statement import Guarantee
from privet.clipping import GEP, Projected, Rule
from privet.clipping.clipped_sum import ClippedSum
from privet.errors import USER_ERRORS, InvalidArgumentError
from privet.federated.rounds import Population, Round, no_contributions
from privet.gradients import trainable
from privet.gradients.projection.subspace import Subspace
from privet.plan import Plan
from privet.reading.batches import BatchDataset
from privet.sampling import Indices
from privet.sparsification import Random
from privet.sparsification.drawing import Masks
from privet.training import Reading, Storage
from privet.training.callbacks import TIMES
from privet.training.directory import read_plan
from privet.training.loop import Batches, Loop, raise_hidden
from privet.training.manifest import Parts
from privet.training.record import RunRecorder

# A round takes much longer than a write to the ledger, so each is paid for by itself, and a crash loses one.
_BLOCK = 1
_SETTING = "central (server and transport see single updates of clients without noise; only what is released is private)"
_TRUST = (
    "Federated: a client trains on its own data and sends one clipped update in each round that draws it. The divisor is a "
    "constant and does not depend on who answers",
    "Trusted: the server and the transport, which see updates without noise. The guarantee holds against everyone who sees the "
    "released parameters, clients included. Secure aggregation would hide single updates from the server and leave ε as it is; "
    "Privet does not provide it",
    "The secrecy of which clients a round draws, on which amplification by sampling relies, holds against outsiders and against "
    "other clients, but not against the server, the transport, or anyone who operates a client's device or watches its network",
)
_ASSUMED = ("no user is also a client of another population that trains the model; for such a user, the ε of both add up",)
_SHAPES_WERE_READ = (
    "A simulation reads the structure, types and shapes of the first client's examples before the first round, to make up "
    "clients like it: they, and whether they can be read, are assumed to be public"
)


class Cohorts(BatchDataset):
    """The clients of a population as a data set of their numbers: the server reads nothing else of them."""

    row_wise = True

    def __init__(self, population: Population) -> None:
        self._clients, self.privacy_unit = population.clients, population.privacy_unit

    def __len__(self) -> int:
        return self._clients

    def read(self, indices: Indices) -> Any:
        """Return the numbers of these clients, (B,)."""
        return torch.from_numpy(indices)


def tell(plan: Plan, parameters: Mapping[str, Tensor], number: int, rule: Rule, masks: Masks | None) -> Round:
    """Return what clients are told in a round: copies of the parameters, the rule, and the masks or how to build them."""
    kind, times, selection = plan.sparsification, plan.timetable(), None
    if isinstance(kind, Random) and times is not None:
        selection = kind.selection(times.block(number), times.blocks, total_size(parameters.values()))
    copies = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    return Round(number, copies, rule, masks, selection)


class Federated(Loop):
    """Trains a model on updates of clients, a round for every step of the plan.

    A client's update takes the place of a gradient, so plan, clipping rules, masks, noise, accounting, ledger and checkpoints are
    those of `privet.Training`. The released mean of the pseudo-gradients θ₀ − θ is the gradient of the server's optimizer:
    `SGD(lr=1)` is DP-FedAvg, SGD with momentum FedAvgM, Adam FedAdam; with `LocalSteps.fed_sgd()`, SGD is DP-FedSGD.

    Args:
        plan: plan with known noise and steps; its examples are the clients, and its unit is theirs, such as "one user".
        model: the model of the server.
        population: reaches the clients, such as `Simulation`.
        optimizer: the server's, any first-order `torch.optim.Optimizer` over exactly the model's trainable parameters.
        directory: as for `privet.Training`.
        scheduler: of the server's learning rate, stepped once per round.
        average: average of the server's parameters over the rounds.

    Guarantee:
        That of `Training` with a client as the unit: adding or removing all data of one client changes the sum of a round by at
        most the rule's sensitivity (see `contribution`), the divisor is constant, and a round with an empty cohort is a round
        like any other.

    Raises:
        InvalidArgumentError: an argument is out of range, plan and population disagree, or the plan has a part that needs
            gradients of single examples.
        BudgetExhaustedError, LedgerError: as for `Training`.

    >>> import privet
    >>> from privet.federated import LocalSteps, Simulation
    >>> model = nn.Linear(2, 1)
    >>> def loss_fn(model, batch):
    ...     return (model(batch[0])[:, 0] - batch[1]).square()
    >>> clients = [(torch.randn(5, 2), torch.randn(5)) for _ in range(50)]
    >>> plan = privet.Plan(
    ...     examples=50, unit="one user", sampling=privet.sampling.Poisson(batch_size=10), steps=3, delta=1e-3,
    ...     clipping=privet.clipping.Flat(bound=0.1), noise=privet.noise.Gaussian(multiplier=1.0),
    ... )
    >>> population = Simulation(model, loss_fn, clients, LocalSteps(learning_rate=0.1, steps=2))
    >>> with Federated(plan, model, population, torch.optim.SGD(model.parameters(), lr=1.0)) as federated:
    ...     federated.run()
    >>> federated.epsilon() == plan.epsilon()
    True
    """

    _owns_sums = False  # its population may hold them

    def __init__(
        self,
        plan: Plan,
        model: nn.Module,
        population: Population,
        optimizer: torch.optim.Optimizer,
        directory: str | Path | Storage | None = None,
        *,
        scheduler: LRScheduler | None = None,
        average: AveragedModel | None = None,
    ) -> None:
        storage = Storage.of(directory)
        parts = Parts(model, population.program, optimizer, Cohorts(population), scheduler, average)
        self._prepare_rounds(plan, parts, population, fresh=True)
        self._begin(storage, RunRecorder.begin(plan, storage, self._state, parts, block=_BLOCK), plan.total_steps)

    @classmethod
    def resume(
        cls,
        directory: str | Path | Storage,
        model: nn.Module,
        population: Population,
        optimizer: torch.optim.Optimizer,
        *,
        adopt: bool = False,
        scheduler: LRScheduler | None = None,
        average: AveragedModel | None = None,
    ) -> Federated:
        """Return the interrupted run in a directory, from its last checkpoint and its ledger; as for `Training.resume`.

        Model, optimizer, number of clients and local training must be those of the start. The data of the clients are not
        compared, because the server does not have them.
        """
        storage = Storage.of(directory)
        parts = Parts(model, population.program, optimizer, Cohorts(population), scheduler, average)
        federated, plan = cls.__new__(cls), read_plan(storage.check_resumable())
        federated._prepare_rounds(plan, parts, population, fresh=False)
        record = RunRecorder.resume(plan, storage, federated._state, parts, adopt=adopt, block=_BLOCK)
        federated._begin(storage, record, plan.total_steps)
        return federated

    def _prepare_rounds(self, plan: Plan, parts: Parts, population: Population, *, fresh: bool) -> None:
        """Prepare steps whose draws are cohorts of clients, each read whole, and whose sums the population gathers."""
        _check_population(plan, parts.model, population)
        self._prepare(plan, parts, plan.examples, "loop", Reading(probe=False), fresh=fresh)
        self._population = population

    def _sum(self, batches: Batches, rule: Rule, masks: Masks | None, subspace: Subspace | None) -> ClippedSum:
        """Return the clipped sum of a cohort; a StepError if the population failed as a whole, and the round counts as spent.

        Guarantee:
            What is released is the population's sum under the round's own sensitivity, noise scales and support: the population
            cannot loosen them. Its errors are not shown, because they may depend on who was drawn.
        """
        ((physical, _),) = batches  # a cohort is read whole
        told = tell(self.plan, self._parameters, physical.part.draw, rule, masks)
        try:
            found = self._population.gather(told, physical.indices)
        except USER_ERRORS as error:  # not even its type may be told: it may be a client's
            raise_hidden(error, "the population could not gather a round, and the round counts as spent")
        return _check_sum(found, told)

    def guarantee(self) -> Guarantee:
        """Return the statement for the rounds spent so far: it says who is trusted, and against whom cohorts are secret."""
        found = self._record.state_guarantee()
        found = replace(
            found,
            setting=_SETTING,
            performed=f"{type(self.plan.sampling).__name__} sampling of clients by privet.federated.Federated itself",
            random_source=self._random_source(),
            notes=(*found.notes, *_TRUST),
            assumptions=(*found.assumptions, *_ASSUMED),
            beside=(*found.beside, _SHAPES_WERE_READ, *([] if self.directory is None else [TIMES])),
        )
        return found if getattr(self._population, "runs_user_code", True) else found.without_user_code()


def _check_population(plan: Plan, model: nn.Module, population: Population) -> None:
    """Refuse a plan that does not fit the population, or that needs more of single examples than clients send."""
    if not isinstance(plan, Plan):
        raise InvalidArgumentError("plan", type(plan).__name__, "a privet.Plan")
    if (plan.examples, str(plan.unit)) != (population.clients, str(population.privacy_unit)):
        found = f"of {population.clients} clients of {str(population.privacy_unit)!r}"
        allowed = f"of the plan's size and unit, {plan.examples} of {str(plan.unit)!r}"
        fix = "Create the plan for this population."
        raise InvalidArgumentError("population", found, allowed, fix)
    needs: dict[str, Any] = {name: getattr(plan, name) for name in ("momentum", "embeddings", "holdout", "class_counts")}
    if isinstance(plan.clipping, GEP | Projected):
        needs["clipping"] = plan.clipping
    for name, part in needs.items():
        if part is not None:
            fix = "It needs more of single examples than clients send. For momentum, use the server's optimizer."
            raise InvalidArgumentError(f"plan.{name}", part, "left out of federated learning", fix)
    parameters: dict[str, Tensor] = {**trainable(model)}
    own, shapes = {name: each.shape for name, each in parameters.items()}, getattr(population, "shapes", None)
    if shapes is not None and shapes != own:
        allowed = f"of clients that train the model's parameters, {sorted(own)}"
        fix = "Both need the same names and shapes."
        raise InvalidArgumentError("population", f"of clients that train {sorted(shapes)}", allowed, fix)


def _check_sum(found: ClippedSum, told: Round) -> ClippedSum:
    """Return the tensors that a population gathered as the sum of a round, whose sensitivity and scales it cannot change."""
    expected = no_contributions(told)
    if not isinstance(found, ClippedSum):
        raise InvalidArgumentError("population.gather", type(found).__name__, "a function that returns a ClippedSum")
    shapes, due = ({name: tensor.shape for name, tensor in each.tensors.items()} for each in (found, expected))
    if shapes != due or found.sensitivity > expected.sensitivity or found.noise_scales != expected.noise_scales:
        allowed = "one that returns the sum of this round"
        fix = "Build it from contribution() or sum_messages()."
        raise InvalidArgumentError("population.gather", "a function that returns another sum", allowed, fix)
    return ClippedSum(found.tensors, expected.sensitivity, expected.norms, None, expected.noise_scales, expected.support)
