"""Optimizers as papers on private training state them, where torch's of that name differ."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from privet.errors import InvalidArgumentError, positive, real


def check_betas(betas: tuple[float, float]) -> None:
    """Refuse decay rates out of range."""
    if not all(0 <= real("betas", beta) < 1 for beta in betas):
        raise InvalidArgumentError("betas", betas, "two numbers in [0, 1)", "(0.9, 0.999) is usual.")


class UncorrectedAdam(torch.optim.Optimizer):
    """Adam without bias correction: DP-Adam of the calibration paper.

        m ← β₁·m + (1 − β₁)·g        u ← β₂·u + (1 − β₂)·g²        w ← w − η·m/(√u + ξ)

    Both averages start from zero and are used as they are. While t is small against 1/(1 − β₂), steps are longer than those of
    torch's Adam by up to (1 − β₁)/√(1 − β₂), which is 3.2 for the default decay rates.

    Args:
        params: parameters, or groups of them.
        lr: learning rate η > 0.
        betas: β₁ and β₂, in [0, 1).
        eps: ξ > 0.

    Guarantee:
        The averages are computed from released gradients, so this is post-processing.

    Raises:
        InvalidArgumentError: an argument is out of range.

    Source:
        Bu et al. 2023, "On the Convergence and Calibration of Deep Learning with Differential Privacy", App. C, Algorithm 1.

    >>> weight = torch.nn.Parameter(torch.tensor([0.0], dtype=torch.float64))
    >>> optimizer = UncorrectedAdam([weight], lr=0.1)
    >>> weight.grad = torch.tensor([5.0], dtype=torch.float64)
    >>> optimizer.step()  # 0.1·(0.1·5)/√(0.001·25)
    >>> round(weight.item(), 4)
    -0.3162
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps})
        for group in self.param_groups:
            positive("lr", group["lr"])
            positive("eps", group["eps"])
            check_betas(group["betas"])

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take one step with the released gradients."""
        for group in self.param_groups:
            decay, square_decay = group["betas"]
            for parameter in group["params"]:
                gradient = parameter.grad
                if gradient is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state.update(mean=torch.zeros_like(parameter), square=torch.zeros_like(parameter))
                mean, square = state["mean"], state["square"]
                mean.mul_(decay).add_(gradient, alpha=1 - decay)
                square.mul_(square_decay).addcmul_(gradient, gradient, value=1 - square_decay)
                parameter.addcdiv_(mean, square.sqrt().add_(group["eps"]), value=-group["lr"])


class NAG(torch.optim.Optimizer):
    """Nesterov's accelerated gradient with growing momentum (t − 1)/(t + 2), whose flow has the friction r(t) = 3/t.

        x_t = y_{t−1} − η·g(y_{t−1})        y_t = x_t + (t − 1)/(t + 2)·(x_t − x_{t−1})

    The parameters are y, where the gradient is taken; x_0 = y_0. `torch.optim.SGD(nesterov=True)` has constant momentum, and so
    constant friction. As momentum grows, so does the noise: the move of step t is a weighted sum of about t/4 releases.

    Args:
        params: parameters, or groups of them.
        lr: learning rate η > 0.

    Guarantee:
        The iterates are computed from released gradients, so this is post-processing.

    Raises:
        InvalidArgumentError: the learning rate is out of range.

    Source:
        Nesterov 1983; Su, Boyd, Candès 2016, "A Differential Equation for Modeling Nesterov's Accelerated Gradient Method";
        Bu et al. 2023, "On the Convergence and Calibration of Deep Learning with Differential Privacy", C.5.

    >>> weight = torch.nn.Parameter(torch.tensor([0.0], dtype=torch.float64))
    >>> optimizer = NAG([weight], lr=1.0)
    >>> for _ in range(2):
    ...     weight.grad = torch.ones(1, dtype=torch.float64)
    ...     optimizer.step()
    >>> weight.item()  # −2, and a quarter of the second step
    -2.25
    """

    def __init__(self, params: Iterable[Tensor] | Iterable[dict[str, Any]], lr: float = 1e-3) -> None:
        super().__init__(params, {"lr": lr})
        for group in self.param_groups:
            positive("lr", group["lr"])

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take one step with the released gradients."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state.update(step=0, last=parameter.detach().clone())
                state["step"] += 1
                moved = parameter - group["lr"] * parameter.grad
                parameter.copy_(moved + (state["step"] - 1) / (state["step"] + 2) * (moved - state["last"]))
                state["last"] = moved
