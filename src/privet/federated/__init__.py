"""Federated learning: clients train on their own data, and a server releases their clipped updates with noise.

`Federated(plan, model, population, optimizer)` holds the rounds; `Simulation` is a population within this process, and
`ProcessPool` trains its clients in several.
"""

from privet.federated.communication import Communication
from privet.federated.local_training import LocalSteps
from privet.federated.messages import message, sum_messages
from privet.federated.process_pool import ProcessPool
from privet.federated.rounds import Population, Round, contribution
from privet.federated.server import Federated
from privet.federated.simulation import Simulation

__all__ = [
    "Communication", "Federated", "LocalSteps", "Population", "ProcessPool", "Round", "Simulation", "contribution", "message",
    "sum_messages",
]  # fmt: skip
