"""Files that several tests of the command line use."""

import csv

import numpy as np

# Of a table with the columns left, right, who and bigger.
SCHEMA = """
[target]
column = "bigger"
task = "classification"
classes = ["no", "yes"]

[columns]
left = { kind = "number", lower = -3, upper = 3 }
right = { kind = "number", lower = -3, upper = 3 }
who = "user"
"""
MIXTURE = """
delta = 1e-6

[[releases]]
mechanism = "gaussian"
noise_multiplier = 1.1
sampling_rate = 0.01
count = 300

[[releases]]
mechanism = "laplace"
noise_multiplier = 20
"""
SAMPLED = '{"releases": [{"mechanism": "gaussian", "noise_multiplier": 5.0, "sampling_rate": 0.01, "count": 100000}]}'
# A program for privet bench and privet check.
IDS = """
import torch
from torch import nn
from torch.nn import functional as F

model = nn.Sequential(nn.Embedding(50, 4), nn.Flatten(), nn.Linear(12, 3))
dataset = [{"ids": torch.randint(0, 50, (3,)), "label": number % 3} for number in range(40)]


def loss_fn(model, batch):
    return F.cross_entropy(model(batch["ids"]), batch["label"], reduction="none")
"""


def write_people(path, rows, *, users=30, labels=("no", "yes"), seed=5):
    """Write a table whose target says whether the left number is larger, and return its path."""
    generator = np.random.default_rng(seed)
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(["left", "who", "right", "bigger"])
        for number, (left, right) in enumerate(generator.normal(size=(rows, 2))):
            lines.writerow([f"{left:.3f}", f"u{number % users}", f"{right:.3f}", labels[int(left > right)]])
    return path
