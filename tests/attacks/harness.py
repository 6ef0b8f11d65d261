"""Judgement of programs that try to break the guarantee, or that must be trained correctly.

An attack trains on two neighbouring data sets with full batches, without noise, at a learning rate of 1. It passes if

    ‖difference of the parameters' changes‖ · divisor / sensitivity ≤ 1 + 1e-4

and no state without noise differs, or if Privet refuses it before the first step, with the same message for both data sets.
Runs of several steps have a non-zero learning rate only in their last step, so that its release is compared at equal parameters.
"""

import functools
import random
import re
import signal
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from materials import CLASSES, body_of, classify, model_of, public, without
from snapshots import differences, generators, snapshot
from torch import Tensor, nn
from torch.utils.data import default_collate

import privet
from privet.errors import PrivetError

LIMIT = 1 + 1e-4
SECONDS = 600  # of processor time: only an endless program takes as long, on any machine
_LONGEST = 900  # of wall-clock time, for programs that wait forever
_SHORTEST = 30  # least number of characters of an informative refusal


# ---------------------------------------------------------------- what a program is
@dataclass(frozen=True)
class Verdict:
    """The result of a program: whether it keeps the guarantee and, if it is valid, was trained correctly."""

    passed: bool
    remark: str
    moved: float | None = None  # change of the release over its sensitivity


@dataclass(frozen=True)
class Program:
    """A program of the suite."""

    cause: str
    name: str
    run: Callable[[], Verdict]


PROGRAMS: list[Program] = []
VALID = "valid"


def attack(cause: str, verdict: Callable[[Any], Verdict] = lambda run: run()) -> Callable[[Any], Any]:
    """Register an attack by its cause; its docstring describes the attempt.

    The function is the program, which returns its verdict; or a part of it, such as a loss, of which `verdict` returns it.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS.append(Program(cause, function.__name__, functools.wraps(function)(lambda: verdict(function))))
        return function

    return register


def valid(verdict: Callable[[Any], Verdict] = lambda run: run()) -> Callable[[Any], Any]:
    """Register a program, or a part of one, that must be accepted and trained correctly."""
    return attack(VALID, verdict)


@dataclass(frozen=True)
class Task:
    """A program's model and loss, and how they are trained: only the last step has a learning rate that is not zero."""

    make: Callable[[], nn.Module]  # torch's generator is seeded before
    loss: Callable[[Any, Any], Tensor]  # (model, batch) → (B,)
    bound: float = 1.0  # of flat clipping
    steps: int = 1
    clipping: privet.clipping.Rule | None = None  # another rule than flat clipping, which needs:
    weights: Callable[[dict[str, Tensor]], dict[str, Tensor]] | None = None  # one example's gradients → weighted ones
    collate: Callable[[list[Any]], Any] | None = None
    take: Callable[[privet.Training], None] | None = None  # takes the steps; `training.run()` if None
    before: Callable[[nn.Module], object] | None = None  # called with the new model
    optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer] | None = None  # plain SGD with a rate of 1 if None
    alone: Callable[[Any, int], Tensor] | None = None  # (model, index) → loss of one entry, for the plain loop
    public_change: bool = False  # whether the program changes between steps by itself: stopping there is a refusal
    plan: Mapping[str, Any] = field(default_factory=dict)  # further arguments of `Plan`
    options: Mapping[str, Any] = field(default_factory=dict)  # and of `Training`

    @property
    def rule(self) -> privet.clipping.Rule:
        return self.clipping or privet.clipping.Flat(bound=self.bound)

    def model(self) -> nn.Module:
        """Return the model before the first step."""
        torch.default_generator.manual_seed(0)  # `torch.manual_seed` takes four milliseconds
        model = self.make()
        if self.before is not None:
            self.before(model)
        return model


# ---------------------------------------------------------------- training
@dataclass(frozen=True)
class Outcome:
    """The result of training on one data set: an error before the first step or after it, or what changed."""

    refusal: str | None = None
    stop: str | None = None
    change: Tensor | None = None  # of the parameters, times the divisor
    kept: Mapping[str, Any] = field(default_factory=dict)  # state without noise
    method: str = ""


def training_of(task: Task, data: Any) -> privet.Training:
    """Return a training; exceptions of the constructor propagate."""
    usual = {"sampling": privet.sampling.FullBatch(), "noise": privet.noise.Gaussian(0.0, non_private=True)}
    plan = privet.Plan(examples=len(data), steps=task.steps, clipping=task.rule, delta=1e-6, **{**usual, **task.plan})
    model = task.model()
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = task.optimizer(trainable) if task.optimizer else torch.optim.SGD(trainable, lr=1.0)
    options = dict(task.options) if _checking else {**task.options, "reading": privet.Reading(probe=False)}
    if task.steps > 1 and "scheduler" not in options:
        options["scheduler"] = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: float(step >= task.steps - 1))
    return privet.Training(plan, model, task.loss, optimizer, data, collate=task.collate, **options)


def train(task: Task, data: Any) -> Outcome:
    """Train by the real path, and return the outcome. Other exceptions than `PrivetError` propagate."""
    seed(5)
    try:
        training = training_of(task, data)
    except PrivetError as error:
        return Outcome(refusal=str(error))
    model = training.model
    before = {name: value.detach().clone() for name, value in model.named_parameters() if value.requires_grad}
    try:
        training.run() if task.take is None else task.take(training)
    except PrivetError as error:
        return Outcome(refusal=str(error)) if training.steps_spent == 0 else Outcome(stop=str(error))
    now = dict(model.named_parameters())
    kept = {**snapshot(model), **{f"generator of {name}": state for name, state in generators().items()}}
    if before.keys() - now.keys():
        return Outcome(change=torch.tensor([torch.nan]), kept=kept, method=training.method)
    change = torch.cat(
        [((old.double() - now[name].detach().double()) * training.plan.divisor).flatten() for name, old in before.items()]
    )
    return Outcome(change=change, kept=kept, method=training.method)


def compared(task: Task, one: Outcome, other: Outcome) -> Verdict:
    """Return the verdict on the outcomes of neighbours: equal refusals, or a change of at most the sensitivity."""
    if one.change is None or other.change is None:
        return _refusal(task, one, other)
    change, rest = one.change, other.change
    moved = float((change - rest).norm()) / task.rule.sensitivity if change.shape == rest.shape else float("inf")
    kept = differences(one.kept, other.kept)
    remark = f"moved {moved:.5g} by {one.method}" + (f"; without noise: {', '.join(kept[:4])}" if kept else "")
    return Verdict(moved <= LIMIT and not kept, remark, moved)


def _refusal(task: Task, one: Outcome, other: Outcome) -> Verdict:
    said = one.refusal or one.stop or other.refusal or other.stop or ""
    short = " ".join(said.split())[:160]
    if one.change is not None or other.change is not None:
        return Verdict(False, f"refused for one of two neighbours only: {short}")
    # Refusals may differ in the public number of examples.
    if len({re.sub(r"\d", "", f"{each.refusal}|{each.stop}") for each in (one, other)}) == 2:
        return Verdict(False, f"two neighbours are told different things: {short} | {other.refusal or other.stop}")
    if one.stop is not None and not task.public_change:
        return Verdict(False, f"stopped in the middle: {short}")
    return Verdict(len(said) >= _SHORTEST, f"refused: {short}")


def bounded(task: Task, data: Any, *, remove: Sequence[int] = (0,)) -> Verdict:
    """Return the worst verdict over removals of single examples: refused or bounded."""
    found = []
    whole = train(task, data)
    for index in remove:
        found.append(compared(task, whole, train(task, without(data, index))))
        if found[-1].moved is None:
            break
    return max(found, key=lambda verdict: (not verdict.passed, verdict.moved or 0.0))


# ---------------------------------------------------------------- a plain loop
def plain_gradients(task: Task, data: Any) -> list[dict[str, Tensor]]:
    """Return every example's gradients by plain autograd, with a new model and a batch of one for each."""
    collate, found = task.collate or default_collate, []
    for index in range(len(data)):
        model = task.model()
        (task.alone(model, index) if task.alone else task.loss(model, collate([data[index]])).sum()).backward()
        found.append({
            name: (torch.zeros_like(p) if p.grad is None else p.grad.to_dense()).double()
            for name, p in model.named_parameters() if p.requires_grad
        })  # fmt: skip
    return found


def flat(gradients: Mapping[str, Tensor]) -> Tensor:
    """Return all gradients as one vector."""
    return torch.cat([gradient.flatten() for gradient in gradients.values()])


def trained_right(
    task: Task, data: Any, *, tolerance: float = 1e-3, remove: Sequence[int] = (0,), refusable: bool = False
) -> Verdict:
    """Return the verdict on a program that must be accepted: its sum equals a plain loop's, and one example's effect is bounded.

    The bound is set to the median norm of this data, so that some contributions are clipped and some are not. What is `refusable`
    may also be refused, alike for neighbours.
    """
    gradients = plain_gradients(task, data)
    norms = torch.stack([flat(gradient).norm() for gradient in gradients])
    if task.weights is None:
        task = replace(task, bound=float(norms.median()))
        expected = sum(
            flat(gradient) * min(1.0, task.bound / float(norm)) for gradient, norm in zip(gradients, norms, strict=True)
        )
    else:
        expected = sum(flat(task.weights(gradient)) for gradient in gradients)
    whole = train(task, data)
    if whole.change is None and refusable:
        return bounded(task, data, remove=remove)
    if whole.change is None:
        return Verdict(False, f"wrongly refused: {' '.join((whole.refusal or whole.stop or '').split())[:200]}")
    off = float((whole.change - expected).norm() / expected.norm()) if whole.change.shape == expected.shape else float("inf")
    if not off <= tolerance:
        return Verdict(False, f"off by {off:.2g} of a loop over examples, by {whole.method}")
    found = [Verdict(True, f"off by {off:.2g} of a loop over examples, by {whole.method}", 0.0)]
    found += [compared(task, whole, train(task, without(data, index))) for index in remove]
    return max(found, key=lambda verdict: (not verdict.passed, verdict.moved or 0.0))


# The verdict on an attack whose program computes each example independently.
exact = functools.partial(trained_right, refusable=True)


def forward_pass(
    cause: str, data: Any, judged: Any = exact, remove: Sequence[int] = (0, 5), **parts: Any
) -> Callable[[Any], Any]:
    """Register a forward pass over some data, of a model with these parts.

    Args:
        cause: of the attack, or `VALID`.
        data: what it is trained on.
        judged: gives the verdict: `exact`, `bounded` or `trained_right`.
        remove: the examples that neighbours lack.
        parts: name → maker of a layer or a parameter; `out`, from seven units to the classes, is made unless it is given.
    """
    makers = {"out": lambda: nn.Linear(7, CLASSES), **parts}

    def verdict(forward: Any) -> Verdict:
        make = lambda: model_of(forward, **{name: part() for name, part in makers.items()})
        return judged(Task(make, classify, options=public(data)), data, remove=remove)

    return attack(cause, verdict)


def two_layers(
    cause: str, data: Any, judged: Any = bounded, remove: Sequence[int] = (0,), loss: Any = classify, steps: int = 1,
    public_change: bool = False, **attributes: Any,
) -> Callable[[Any], Any]:  # fmt: skip
    """Register a forward pass of two layers, `inner` and `outer`, with these attributes: see `body_of` and `Task`."""

    def verdict(forward: Any) -> Verdict:
        task = Task(body_of(forward, **attributes), loss, steps=steps, public_change=public_change)
        return judged(task, data, remove=remove)

    return attack(cause, verdict)


# ---------------------------------------------------------------- judging
class _TooLong(BaseException):
    """The program exceeded its time limit."""


_checking = True


@contextmanager
def unchecked() -> Iterator[None]:
    """Train without the check on synthetic examples: programs it refuses must be bounded by the gradient computation itself."""
    global _checking
    _checking = False
    try:
        yield
    finally:
        _checking = True


def judge(program: Program) -> Verdict:
    """Return the verdict on a program; an exception fails it, and its changes to the process are reverted."""
    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
    try:
        with warnings.catch_warnings(), _limited(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")
            seed(77)
            return program.run()
    except _TooLong:
        return Verdict(False, f"longer than {SECONDS} s of processor time")
    except Exception as error:
        return Verdict(False, f"raised {type(error).__name__}: {_said(error)}")
    finally:
        torch.set_default_dtype(dtype)
        torch.set_num_threads(threads)
        torch.set_grad_enabled(True)


def _said(error: Exception) -> str:
    """Return the beginning of an exception's text; one program raises an exception without one."""
    try:
        return " ".join(str(error).split())[:200]
    except Exception:
        return "(its text cannot be had)"


@contextmanager
def _limited() -> Iterator[None]:
    def end(*_: object) -> None:
        raise _TooLong

    handlers = [(number, signal.signal(number, end)) for number in (signal.SIGPROF, signal.SIGALRM)]
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.setitimer(signal.ITIMER_REAL, _LONGEST)
    try:
        yield
    finally:
        for timer in (signal.ITIMER_PROF, signal.ITIMER_REAL):
            signal.setitimer(timer, 0)
        for number, handler in handlers:
            signal.signal(number, handler)


def seed(number: int) -> None:
    """Seed the three global generators."""
    torch.default_generator.manual_seed(number)
    np.random.seed(number)
    random.seed(number)
