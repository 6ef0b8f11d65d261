"""The description of a model in `model.json`: architecture, inputs, outputs and guarantee."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import torch
from torch import nn

from privet import models
from privet._utils.registry import decode, encode
from privet.accounting.events import ADJACENCIES
from privet.accounting.guarantee.statement import Statement, explain_meaning
from privet.accounting.rounding import format_up
from privet.data.preprocessing import Preprocessing, preprocessing_from_dict
from privet.errors import InvalidArgumentError, choice, count
from privet.tables import Classification, Schema
from privet.tables.targets import Target

# Version of the layout of `model.json`. It grows whenever an older Privet would misread a newer file. The first had networks of
# `privet.models` only, and no summary and purpose.
FORMAT = 2

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Architecture:
    """A network of `privet.models` without its weights; `options` are further arguments of it, as plain JSON values."""

    name: str
    input_shape: tuple[int, ...]
    outputs: int
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        choice("name", self.name, models.NAMES, "A network of a newer Privet needs that Privet.")
        object.__setattr__(self, "input_shape", tuple(count("input_shape", side) for side in self.input_shape))
        count("outputs", self.outputs)
        if not all(isinstance(option, str) for option in self.options):
            raise InvalidArgumentError("options", self.options, "names with values")

    def build(self) -> nn.Module:
        """Return the network with initial values; torch's random state stays as it was."""
        with torch.random.fork_rng(devices=[]):
            return models.build(self.name, self.input_shape, self.outputs, **self.options)


@dataclass(frozen=True, kw_only=True)
class GuaranteeSummary:
    """The guarantee of a run in a few values; guarantee.md is the whole statement.

    `examples` are counted in units that are sampled and clipped; `attacks` are limits on membership attacks, in sentences;
    `summary` is the first part of the statement. What an older file lacks is empty.
    """

    epsilon: float
    delta: float
    unit: str
    adjacency: str
    examples: int
    accountant: str
    attacks: str = ""
    assumptions: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()
    summary: str = ""
    purpose: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", float(self.epsilon))
        object.__setattr__(self, "delta", float(self.delta))
        if not self.epsilon >= 0 or not 0 <= self.delta <= 1:
            raise InvalidArgumentError("guarantee", (self.epsilon, self.delta), "ε of at least 0 and δ from 0 to 1")
        choice("adjacency", self.adjacency, ADJACENCIES)
        count("examples", self.examples)
        for name in ("assumptions", "not_covered"):
            object.__setattr__(self, name, tuple(map(str, getattr(self, name))))

    def __str__(self) -> str:
        if math.isinf(self.epsilon):
            return "NO PRIVACY (ε = ∞): the model may reveal any training example."
        return (
            f"({format_up(self.epsilon)}, {self.delta})-differential privacy for {self.unit}, where neighbouring data sets "
            f"differ in {self.unit} that is {ADJACENCIES[self.adjacency]}."
        )

    @classmethod
    def of(cls, guarantee: Statement) -> GuaranteeSummary:
        """Return the summary of a run's statement."""
        unit, private = str(guarantee.unit), math.isfinite(guarantee.epsilon)
        same = ("epsilon", "delta", "adjacency", "examples", "accountant", "not_covered", "summary", "purpose")
        return cls(
            unit=unit, attacks=explain_meaning(guarantee.meaning, unit, guarantee.adjacency) if private else "",
            assumptions=(*guarantee.assumptions, *(f"public: {fact}" for fact in guarantee.public)),
            **{name: getattr(guarantee, name) for name in same},
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ModelDescription:
    """Everything needed to use a model's weights. All of it is public.

    Args:
        architecture: the network, or the name of its class for one that only its owner's code can build.
        target: name of what the model predicts, such as the column of a table.
        task: the classes in the order of the outputs, or the bounds of a number; None if the outputs are not described.
        schema: columns of the table that the model takes; None for arrays.
        preprocessing: function from raw arrays to inputs; None for tables, and for inputs that no raw array gives.
        guarantee: summary of the guarantee.
        data_set: name of the public data set that the model was trained on; None for private data.
        weights: SHA-256 of `model.safetensors`.
        versions: library → version that trained the model.
    """

    architecture: Architecture | str
    target: str
    task: Target | None
    guarantee: GuaranteeSummary
    weights: str
    versions: Mapping[str, str]
    schema: Schema | None = None
    preprocessing: Preprocessing | None = None
    data_set: str | None = None

    def __post_init__(self) -> None:
        network = None if isinstance(self.architecture, str) else self.architecture
        if network is not None and self.task is not None and self.task.outputs != network.outputs:
            raise InvalidArgumentError("outputs", network.outputs, f"{self.task.outputs}, as the task says")
        if self.schema is not None and (self.target, self.task) != (self.schema.target, self.schema.task):
            raise InvalidArgumentError("target", self.target, f"the target of the schema, {self.schema.target!r}, and its task")
        if self.schema is not None and network is not None and network.input_shape != (self.schema.width,):
            raise InvalidArgumentError("input_shape", network.input_shape, f"({self.schema.width},), the width of the schema")
        if not _SHA256.fullmatch(self.weights):
            raise InvalidArgumentError("weights", self.weights, "a SHA-256 in hexadecimal digits")

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The classes in the order of the outputs; None for regression."""
        return self.task.classes if isinstance(self.task, Classification) else None

    def to_json(self) -> str:
        """Return the text of `model.json`."""
        epsilon = self.guarantee.epsilon
        values = {
            "format": FORMAT,
            "architecture": self.architecture if isinstance(self.architecture, str) else asdict(self.architecture),
            "target": self.target,
            "task": encode(self.task),
            "schema": None if self.schema is None else self.schema.to_dict(),
            "preprocessing": None if self.preprocessing is None else self.preprocessing.to_dict(),
            "guarantee": asdict(self.guarantee) | {"epsilon": "inf" if math.isinf(epsilon) else epsilon},
            "data_set": self.data_set,
            "weights": self.weights,
            "versions": dict(self.versions),
        }
        return json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ModelDescription:
        """Return the description that `to_json` wrote, from its parsed JSON."""
        found = dict(values)
        if (version := found.pop("format", None)) not in (1, FORMAT):
            raise InvalidArgumentError("format", version, f"1 or {FORMAT}", "A newer Privet may have written it: upgrade Privet.")
        if found.keys() != (names := {field.name for field in fields(cls)}):
            raise InvalidArgumentError("model.json", sorted(found), f"made of the fields {', '.join(sorted(names))}")
        schema, scaling = found["schema"], found["preprocessing"]
        parts = {
            "architecture": network if isinstance(network := found["architecture"], str) else Architecture(**network),
            "task": None if found["task"] is None else decode("task", found["task"], Target),
            "schema": None if schema is None else Schema.from_dict(schema),
            "preprocessing": None if scaling is None else preprocessing_from_dict(scaling),
            "guarantee": GuaranteeSummary(**found["guarantee"]),
        }
        return cls(**found | parts)
