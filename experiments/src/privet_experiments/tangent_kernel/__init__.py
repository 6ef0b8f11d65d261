"""The tangent kernel: effects of clipping on the convergence of gradient flow. NOT PRIVATE."""

from privet_experiments.tangent_kernel.claims import (
    KINDS,
    OF_THE_PATH,
    PROPERTIES,
    ClippingTable,
    Kind,
    Verdict,
    clipping_table,
    flow_of,
)
from privet_experiments.tangent_kernel.dynamics import DYNAMICS, Dynamics
from privet_experiments.tangent_kernel.flow import Flow, gradient_flow
from privet_experiments.tangent_kernel.kernel import LossSlope, TangentKernel, loss_slope, tangent_kernel
from privet_experiments.tangent_kernel.limit import NoiseLimit, NoiseLimitDisplay, noise_limit
from privet_experiments.tangent_kernel.optimizers import CLIPPINGS, SYSTEMS, optimizer_flow
from privet_experiments.tangent_kernel.problems import Problem, problems

__all__ = [
    "CLIPPINGS",
    "DYNAMICS",
    "KINDS",
    "OF_THE_PATH",
    "PROPERTIES",
    "SYSTEMS",
    "ClippingTable",
    "Dynamics",
    "Flow",
    "Kind",
    "LossSlope",
    "NoiseLimit",
    "NoiseLimitDisplay",
    "Problem",
    "TangentKernel",
    "Verdict",
    "clipping_table",
    "flow_of",
    "gradient_flow",
    "loss_slope",
    "noise_limit",
    "optimizer_flow",
    "problems",
    "tangent_kernel",
]
