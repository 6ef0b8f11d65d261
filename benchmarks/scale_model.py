"""A model of step time and memory on many GPUs, for `benchmarks.scale`, whose page says where its constants are from.

The terms of a step are added up, as if nothing overlapped. Nothing here runs on a GPU.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cache

import numpy as np
from scipy.stats import poisson

from privet.ledger.ledger import BLOCK as RESERVED
from privet.noise.sources import BLOCK
from privet.training import Storage

BATCH, LENGTH, WORLDS = 4096, 1024, (8, 64, 256, 1024)
KINDS = ("data parallel", "by module", "gathered")


@dataclass(frozen=True)
class Cluster:
    """NVIDIA H100 SXM in nodes of 8: public constants, and what is assumed of them (page, "Constants")."""

    half: float = 989e12  # dense bfloat16 products, FLOP/s
    single: float = 67e12  # float32 products without TF32, FLOP/s
    memory: float = 3.35e12  # B/s
    near: float = 450e9  # NVLink, one way, B/s
    far: float = 50e9  # network, 400 Gb/s a GPU
    pcie: float = 64e9  # one way, B/s
    node: int = 8
    start: float = 8.4e-6  # of a ring in NCCL's own model, s; then a hop within and between nodes
    near_hop: float = 3.4e-6
    far_hop: float = 9.6e-6
    half_use: float = 0.4  # assumed from here on
    single_use: float = 0.7
    link_use: float = 0.8
    launch: float = 5e-6  # of an operation, s
    disk: float = 2e9  # B/s


@dataclass(frozen=True)
class Measured:
    """What `benchmarks.latencies` found on two cores of an Intel Xeon server, in seconds: medians."""

    noise: float = 2.7e-9  # to draw a number
    hop: float = 1.7e-4  # an all-gather of 2 processes, which is one hop
    vote: float = 1.7e-4  # what a vote adds to it
    record: float = 9.1e-5  # of the ledger
    draw: float = 3.8e-4  # of 4,096 examples among a million


@dataclass(frozen=True)
class Model:
    """A GPT of a public shape, with its head tied to its embedding; `physical` sequences go through it at once (assumed)."""

    name: str
    layers: int
    width: int
    physical: int
    vocabulary: int = 50_257

    @property
    def weights(self) -> list[tuple[int, int]]:
        """Inputs and outputs of every linear layer."""
        h = self.width
        return [(h, 3 * h), (h, h), (h, 4 * h), (4 * h, h)] * self.layers + [(h, self.vocabulary)]

    @property
    def parameters(self) -> int:
        return sum(d * p for d, p in self.weights) + LENGTH * self.width

    @property
    def modules(self) -> int:
        return self.layers + 1

    @property
    def largest_module(self) -> int:
        return self.width * max(12 * self.width, self.vocabulary)

    @property
    def attention(self) -> float:
        """FLOPs of attention for a sequence, forward and backward."""
        return 12.0 * self.layers * self.width * LENGTH**2


MODELS = (Model("124M", 12, 768, 16), Model("1.3B", 24, 2048, 4), Model("6.7B", 32, 4096, 2))
H100, FOUND = Cluster(), Measured()


def stores_gradients(d: int, p: int) -> bool:
    """Return whether a linear layer forms the gradients of examples, as `privet.gradients` does where they are smaller."""
    return d * p <= LENGTH * (d + p)


def plain_seconds(model: Model, cluster: Cluster = H100) -> float:
    """Return the time of a sequence in plain training, by bfloat16 products."""
    flops = 6.0 * LENGTH * sum(d * p for d, p in model.weights) + model.attention
    return flops / (cluster.half * cluster.half_use)


def private_seconds(model: Model, cluster: Cluster = H100) -> float:
    """Return the time of a sequence: activations and their gradients by bfloat16 products, norms and sums by float32 ones."""
    half = 4.0 * LENGTH * sum(d * p for d, p in model.weights) + model.attention
    single = sum(2.0 * LENGTH * (d * p if stores_gradients(d, p) else d * p + LENGTH * (d + p)) for d, p in model.weights)
    return half / (cluster.half * cluster.half_use) + single / (cluster.single * cluster.single_use)


@cache
def imbalance(world: int, batch: int = BATCH) -> float:
    """Return E[largest part] over E[mean part] of a Poisson draw that is divided evenly over the ranks."""
    reach = 12 * math.sqrt(batch) + 50
    sizes = np.arange(max(0, int(batch - reach)), int(batch + reach))
    mean: float = poisson.pmf(sizes, batch) @ np.ceil(sizes / world)
    return mean * world / batch


def passes(model: Model, world: int) -> int:
    """Return how many physical batches a rank has in a step."""
    return math.ceil(BATCH / world / model.physical)


def collectives(kind: str, model: Model, world: int) -> tuple[int, float]:
    """Return how many collectives a step has, and the bytes of their whole tensors (float32)."""
    whole, k = 4.0 * model.parameters, model.modules
    if kind == "by module":
        return passes(model, world) * (3 * k - 1), passes(model, world) * (3 - 1 / k) * whole
    return (2, 2 * whole) if kind == "data parallel" else (2 * k, 2 * whole)


def votes(kind: str, model: Model, world: int) -> int:
    """Return how often ranks vote in a step: with its token and after its sum, before they gather, and before a pass."""
    return 2 + {"data parallel": 0, "gathered": 1, "by module": passes(model, world) + 1}[kind]


def ring_latency(world: int, cluster: Cluster = H100) -> float:
    """Return the latency of a ring in NCCL's tuning model: a hop for every rank, and a longer one for every node."""
    nodes = math.ceil(world / cluster.node)
    return cluster.start + (world - nodes) * cluster.near_hop + (nodes - 1) * cluster.far_hop


@dataclass(frozen=True)
class Step:
    """The terms of a step, in seconds."""

    compute: float
    stragglers: float
    traffic: float
    latency: float
    noise: float
    update: float
    votes: float
    checkpoint: float

    @property
    def total(self) -> float:
        return float(sum(asdict(self).values()))


def device_noise(model: Model, world: int, cluster: Cluster = H100) -> float:
    """Return the time of noise drawn at the speed of a GPU's memory: 8 B written and read, a sum read, a release written."""
    return 24 * model.parameters / world / cluster.memory


def step(
    kind: str, model: Model, world: int, ratio: float | None = None, cluster: Cluster = H100, found: Measured = FOUND
) -> Step:
    """Return the terms of a step; with `ratio`, a private sequence takes that many plain ones, in place of float32 products."""
    size, share = model.parameters, model.parameters / world
    sequence = private_seconds(model, cluster) if ratio is None else ratio * plain_seconds(model, cluster)
    compute = BATCH / world * sequence
    count, whole = collectives(kind, model, world)
    link = cluster.near if world <= cluster.node else min(cluster.near, cluster.node * cluster.far)
    return Step(
        compute=compute,
        stragglers=compute * (imbalance(world) - 1),
        traffic=whole * (world - 1) / world / (link * cluster.link_use),
        latency=count * ring_latency(world, cluster),
        # Without shards, half of it is in stock. It is copied in float64, and `add_noise` is 9 operations for each block.
        noise=share * (found.noise / (2 if kind == "data parallel" else 1) + 8 / cluster.pcie + 9 * cluster.launch / BLOCK),
        update=28 * (size if kind == "data parallel" else share) / cluster.memory,  # Adam reads 4 numbers and writes 3
        votes=votes(kind, model, world) * (found.vote + (world - 1) * found.hop) + found.record / RESERVED + found.draw,
        checkpoint=12 * size / cluster.disk / Storage.checkpoint_every,
    )


def activations(model: Model) -> float:
    """Return the bytes of a sequence: activations of a plain pass, float32 factors or gradients of linear layers, and logits."""
    kept = sum(4.0 * (d * p if stores_gradients(d, p) else LENGTH * (d + p)) for d, p in model.weights)
    return 34.0 * LENGTH * model.width * model.layers + kept + 8.0 * LENGTH * model.vocabulary


def state(kind: str, model: Model, world: int) -> float:
    """Return the bytes of parameters, Adam's state and sums, all in float32, at the peak of a step."""
    size = model.parameters
    sums = 4.0 * size * min(passes(model, world), 2)  # of the step and of this pass
    if kind == "gathered":
        return 12.0 * size / world + 4.0 * size + sums
    if kind == "by module":
        return 16.0 * size / world + 12.0 * model.largest_module  # two modules are gathered, and one has sums
    # A release has the sum, and the flat tensor of a collective: `benchmarks.world_memory`.
    return 12.0 * size + max(sums, 8.0 * size + 12.0 * size / world)


def at_once(model: Model, world: int) -> int:
    """Return how many sequences a pass has."""
    return min(model.physical, math.ceil(BATCH / world))


def memory(kind: str, model: Model, world: int) -> float:
    """Return the bytes of state and a pass."""
    return state(kind, model, world) + at_once(model, world) * activations(model)
