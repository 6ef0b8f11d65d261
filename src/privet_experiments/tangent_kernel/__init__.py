"""The tangent kernel: effects of clipping on the convergence of gradient flow. NOT PRIVATE."""

from privet_experiments.tangent_kernel.claims import KINDS, PROPERTIES, ClippingTable, Kind, Verdict, clipping_table, flow_of
from privet_experiments.tangent_kernel.flow import Flow, gradient_flow
from privet_experiments.tangent_kernel.kernel import LossSlope, TangentKernel, loss_slope, tangent_kernel
from privet_experiments.tangent_kernel.limit import NoiseLimit, NoiseLimitDisplay, noise_limit
from privet_experiments.tangent_kernel.problems import Problem, problems

__all__ = [
    "KINDS",
    "PROPERTIES",
    "ClippingTable",
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
    "problems",
    "tangent_kernel",
]
