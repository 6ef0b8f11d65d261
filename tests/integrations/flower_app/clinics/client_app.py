"""A node: the clients of one clinic."""

import torch

from clinics.task import CLIENTS, simulate
from privet.integrations.flower import client_app

torch.set_num_threads(1)


def load(context):
    numbers = range(int(context.node_config["clinic"]), CLIENTS, 2)
    return numbers, simulate(numbers)


app = client_app(load)
