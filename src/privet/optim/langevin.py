"""Langevin dynamics with the noise of the Gaussian mechanism: training that samples from a posterior.

    w ← w − η·(ĝ − ∇log p(w)/n) + N(0, D·η·I)

with ĝ the clipped mean gradient, n the number of examples and D the diffusion. The gradient already contains the noise: its
standard deviation on the sum is B·√(D/η), which times η/B is √(D·η). So the optimizer adds none, and the plan accounts for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from privet.errors import InvalidArgumentError, count, positive
from privet.noise import Correlated, Gaussian
from privet.optim.adam import noise_deviations, refuse_partial_noise
from privet.plan import Plan
from privet.schedules import Constant, Factors, Table

# Tolerance for plans that went through JSON, and for rates that went through a square root and back.
_PRECISION = 1e-9


@dataclass(frozen=True)
class GaussianPrior:
    """The prior N(0, std²) for every parameter.

    Args:
        std: standard deviation, > 0.

    >>> GaussianPrior(std=2.0).gradient(torch.tensor([1.0]))
    tensor([-0.2500])
    """

    std: float

    def __post_init__(self) -> None:
        positive("prior.std", self.std)

    def gradient(self, parameter: Tensor) -> Tensor:
        """Return ∇log p at the parameter's value, same shape."""
        return -parameter / self.std**2


def sgld_noise(
    lr: float | Sequence[float], *, batch_size: float, sensitivity: float, diffusion: float = 1.0, source: str = "secure"
) -> Gaussian:
    """Return the noise that Langevin dynamics need: standard deviation B·√(D/η) on the sum, even if a schedule changes the bound.

    Args:
        lr: learning rate η > 0, or one per step.
        batch_size: expected batch size B of the plan, > 0.
        sensitivity: sensitivity of the plan's clipping rule at the first step, > 0.
        diffusion: D > 0; see `SGLD`.
        source: source of the noise, as for `privet.noise.Gaussian`.

    Raises:
        InvalidArgumentError: an argument, or the resulting multiplier, is out of range.

    Source:
        Bu et al. 2023, "On the Convergence and Calibration of Deep Learning with Differential Privacy", App. C, Algorithm 3.

    >>> sgld_noise(0.04, batch_size=64, sensitivity=0.5).multiplier
    640.0
    """
    rates = _parse_rates(lr)
    deviations = _deviations(rates, diffusion)
    multiplier = positive("batch_size", batch_size) * float(deviations[0]) / positive("sensitivity", sensitivity)
    schedule = Constant() if len(rates) == 1 else Table(tuple((deviations / deviations[0]).tolist()))
    return Gaussian(multiplier, source=source, schedule=schedule, deviation="fixed")


def sgld_learning_rates(plan: Plan, diffusion: float = 1.0) -> tuple[float, ...]:
    """Return η = D/s² for every step of a plan, calibrated to an ε for example: its noise is that of Langevin dynamics.

    Args:
        plan: plan with noise and steps; s is the standard deviation of its noise on the divided gradient.
        diffusion: D > 0; see `SGLD`.
    """
    rates = positive("diffusion", diffusion) / _gradient_deviations(plan) ** 2
    return tuple(rates.tolist())


class SGLD(torch.optim.Optimizer):
    """Stochastic gradient Langevin dynamics on private gradients, collecting samples of the parameters.

    For small learning rates, the distribution of the parameters converges to exp(−2U/(D·n)), with U the sum of all clipped losses
    minus the log prior. Diffusion D = 2/n gives the posterior itself; D = 1 is the published algorithm, a posterior at
    temperature n/2. Clipping changes the losses whose gradients exceed the bound.

    Args:
        params: parameters, or groups of them without separate learning rates.
        lr: learning rate η > 0, or one per step (the last one applies to all later steps). A scheduler must not change it.
        examples: n, as in the plan.
        prior: prior of the parameters; None is flat.
        diffusion: D > 0.
        burn_in: number of steps before the first sample.
        thinning: number of steps between samples.
        keep: largest number of samples kept, the latest ones; each takes as much memory as the parameters.

    Guarantee:
        It only sees released gradients, so all samples together are post-processing of the plan's releases. It adds no noise;
        `check` verifies that the plan's noise is what Langevin dynamics need.

    Raises:
        InvalidArgumentError: an argument is out of range.

    Source:
        Welling, Teh 2011; Wang, Fienberg, Smola 2015, "Privacy for Free"; Bu et al. 2023, App. C, Algorithm 3.
        Heavy-ball momentum is stochastic gradient Hamiltonian Monte Carlo (Bu et al. 2023, §4.5): for small η, `torch.optim.SGD`
        with momentum c on a plan with diffusion D behaves like this with learning rate η/(1−c) and diffusion D/(1−c).

    >>> from privet import Plan, clipping, sampling
    >>> weights = [torch.nn.Parameter(torch.zeros(3))]
    >>> plan = Plan(
    ...     examples=1000, sampling=sampling.Poisson(batch_size=100), steps=500, clipping=clipping.Flat(bound=2.0), delta=1e-5,
    ...     noise=sgld_noise(0.5, batch_size=100, sensitivity=2.0, diffusion=2 / 1000),
    ... )
    >>> round(plan.noise_multiplier, 3)
    3.162
    >>> sampler = SGLD(weights, 0.5, examples=1000, prior=GaussianPrior(1.0), diffusion=2 / 1000, burn_in=400, thinning=10)
    >>> sampler.check(plan, {"weight": weights[0]})
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float | Sequence[float],
        examples: int,
        *,
        prior: GaussianPrior | None = None,
        diffusion: float = 1.0,
        burn_in: int = 0,
        thinning: int = 1,
        keep: int = 100,
    ) -> None:
        self.learning_rates = _parse_rates(lr)
        self.examples = count("examples", examples, minimum=2)
        if prior is not None and not isinstance(prior, GaussianPrior):
            raise InvalidArgumentError("prior", prior, "None or a privet.optim.GaussianPrior")
        self.prior, self.diffusion = prior, positive("diffusion", diffusion)
        self.burn_in = count("burn_in", burn_in, minimum=0)
        self.thinning, self.keep = count("thinning", thinning), count("keep", keep)
        super().__init__(params, {"lr": self.learning_rates[0]})
        self._check_rates()

    @property
    def samples(self) -> tuple[tuple[Tensor, ...], ...]:
        """The latest samples, oldest first; each has a copy of every parameter, in the order of the groups."""
        return tuple(zip(*(self.state.get(parameter, {}).get("samples", ()) for parameter in self._parameters()), strict=True))

    def check(self, plan: Plan, parameters: Mapping[str, nn.Parameter] | None = None) -> None:
        """Refuse a plan whose noise does not match these learning rates; `privet.Training` calls this with its parameters.

        Args:
            parameters: name → trainable parameter, for rules with different noise levels; None checks the plan's common noise.

        Raises:
            InvalidArgumentError: the plan has another number of examples, or at some step √(D·η) is not the standard deviation of
                the noise that reaches some parameter.
        """
        if plan.examples != self.examples:
            raise InvalidArgumentError("examples", self.examples, f"the plan's, {plan.examples}")
        common = _gradient_deviations(plan)
        needed = _deviations(Table(self.learning_rates).factors(len(common)).tolist(), self.diffusion)
        for found in [common] if parameters is None else noise_deviations(plan, parameters).values():
            step = int(np.argmax(np.abs(found / needed - 1)))
            if abs(found[step] / needed[step] - 1) <= _PRECISION:
                continue
            raise InvalidArgumentError(
                "noise.multiplier", plan.noise.multiplier,
                f"such that the divided gradient's noise at step {step + 1} has standard deviation {needed[step]:.6g}, "
                f"not {found[step]:.6g}",
                "Use noise=privet.optim.sgld_noise(...) with the same lr and diffusion, or "
                "lr=privet.optim.sgld_learning_rates(plan, diffusion).",
            )  # fmt: skip

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take one step with the released gradients, and a sample if it is due."""
        self._check_rates()
        done = self._steps_taken() + 1
        due = done > self.burn_in and (done - self.burn_in) % self.thinning == 0
        for parameter in self._parameters():
            state = self.state[parameter]
            if parameter.grad is not None:
                drift = parameter.grad if self.prior is None else parameter.grad - self.prior.gradient(parameter) / self.examples
                parameter.sub_(drift, alpha=self._rate(done - 1))
            state["step"] = done
            if due:
                state["samples"] = [*state.get("samples", ()), parameter.detach().clone()][-self.keep :]
        for group in self.param_groups:
            group["lr"] = self._rate(done)

    @torch.no_grad()
    def predictive(self, predict: Callable[[], Tensor]) -> Tensor:
        """Return the average prediction over the samples: the predictive mean under the posterior.

        Args:
            predict: computes a prediction with the model's current parameters, such as `lambda: model(inputs).softmax(-1)`;
                called once per sample with the sample's values, which are restored afterwards.
        """
        if not self.samples:
            raise InvalidArgumentError("burn_in", self.burn_in, "below the number of steps taken", "There is no sample yet.")
        parameters = self._parameters()
        before = [parameter.detach().clone() for parameter in parameters]
        total: Tensor | None = None
        try:
            for sample in self.samples:
                _set_values(parameters, sample)
                predicted = predict()
                total = predicted.clone() if total is None else total.add_(predicted)
        finally:
            _set_values(parameters, before)
        assert total is not None
        return total / len(self.samples)

    def _parameters(self) -> list[nn.Parameter]:
        return [parameter for group in self.param_groups for parameter in group["params"]]

    def _steps_taken(self) -> int:
        return int(self.state.get(self._parameters()[0], {}).get("step", 0))

    def _rate(self, step: int) -> float:
        return self.learning_rates[min(step, len(self.learning_rates) - 1)]

    def _check_rates(self) -> None:
        """Refuse a learning rate that was changed from outside, for which the noise would be wrong."""
        expected = self._rate(self._steps_taken())
        for group in self.param_groups:
            if group["lr"] != expected:
                fix = "Pass one rate per step to SGLD instead of using a scheduler."
                raise InvalidArgumentError("lr", group["lr"], f"{expected:g} at this step", fix)


def _parse_rates(lr: float | Sequence[float]) -> tuple[float, ...]:
    rates = (lr,) if isinstance(lr, int | float) else tuple(lr)
    if not rates:
        raise InvalidArgumentError("lr", lr, "a number, or at least one")
    return tuple(positive("lr", rate) for rate in rates)


def _deviations(rates: Sequence[float], diffusion: float) -> Factors:
    """Return the standard deviations √(D/η) that the noise on the divided gradient must have."""
    return np.asarray(np.sqrt(positive("diffusion", diffusion) / np.asarray(rates)))


def _gradient_deviations(plan: Plan) -> Factors:
    refuse_partial_noise(plan, "Langevin dynamics")
    if isinstance(plan.noise, Correlated):
        raise InvalidArgumentError("noise", plan.noise, "privet.noise.Gaussian(...)", "Langevin dynamics need independent noise.")
    deviations = plan.gradient_deviations()
    if not deviations.all():
        raise InvalidArgumentError("noise.multiplier", plan.noise_multiplier, "greater than 0", "Langevin dynamics need noise.")
    return deviations


def _set_values(parameters: Sequence[Tensor], values: Iterable[Tensor]) -> None:
    for parameter, value in zip(parameters, values, strict=True):
        parameter.copy_(value)
