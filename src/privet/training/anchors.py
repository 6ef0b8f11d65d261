"""The subspaces of each step, from gradients of public examples at the current parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from privet._utils.randomness import preserve_generators
from privet.clipping import GEP, Rule
from privet.errors import InvalidArgumentError, PrivetError
from privet.gradients.core.randomness import make_seed_source
from privet.gradients.engine import Engine
from privet.gradients.masking.masks import prepare_masks
from privet.gradients.methods.tape import Tape
from privet.gradients.projection.subspace import Subspace, find_subspace
from privet.reading.batches import check_map_style
from privet.reading.rows import ExampleReader
from privet.sampling import Words
from privet.training.manifest import Parts


class Anchors:
    """Finds the subspaces of a training from public examples. Nothing is kept from step to step.

    Errors of model and loss propagate, because these examples are public. `words` are for the choice of anchors, the start of
    power iteration and the model's random numbers.
    """

    def __init__(self, rule: GEP, parts: Parts, parameters: Mapping[str, nn.Parameter], size: int, words: Words) -> None:
        if parts.public is parts.dataset:
            fix = "What gradients of private examples span is private, too."
            raise InvalidArgumentError("public", "the training data", "other data", fix)
        self._number, self._words = check_map_style(parts.public), words
        if self._number < rule.anchors:
            allowed = f"at least the {rule.anchors} anchors of the plan"
            fix = "Use more public examples, or lower `anchors` in clipping.GEP."
            raise InvalidArgumentError("public", f"{self._number} examples", allowed, fix)
        self._rows = ExampleReader(parts.public, parts.collate)
        seeds = make_seed_source(words)
        self._engine = Engine(parts.model, parts.loss_fn, parameters, physical_batch_size=size, seeds=seeds)
        self._check_first()

    @classmethod
    def of(cls, rule: Rule, parts: Parts, parameters: Mapping[str, nn.Parameter], size: int, words: Words) -> Anchors | None:
        """Return the anchors that a rule needs, or None; refuse GEP without public data, and public data without GEP."""
        public = parts.public
        if not isinstance(rule, GEP):
            if public is not None:
                raise InvalidArgumentError(
                    "public", type(public).__name__, f"left out with clipping.{type(rule).__name__}", "Only clipping.GEP uses it."
                )
            return None
        if public is None:
            fix = f"The plan names them: {rule.public!r}."
            raise InvalidArgumentError("public", None, "a data set of public examples, for clipping.GEP", fix)
        return cls(rule, parts, parameters, size, words)

    def at(self, rule: Rule, masks: Mapping[str, Tensor] | None, method: str) -> Subspace:
        """Return the subspaces of a step, at the current parameters; gradients of anchors are masked like those of examples."""
        assert isinstance(rule, GEP)
        self._engine.method = method
        generator = torch.Generator().manual_seed(int(self._words(1)[0]) >> 1)
        chosen = torch.randperm(self._number, generator=generator, device="cpu")[: rule.anchors].numpy()
        known = None if masks is None else prepare_masks(masks, self._engine.parameters)

        def anchors() -> Iterator[Tape]:
            for tape in self._tapes(chosen):
                yield tape if known is None else tape.mask(known)

        with preserve_generators():
            return find_subspace(rule, self._engine.parameters, anchors, generator)

    def _tapes(self, chosen: np.ndarray[Any, Any]) -> Iterator[Tape]:
        device = next(iter(self._engine.parameters.values())).device
        size = self._engine.physical_batch_size or len(chosen)
        for start in range(0, len(chosen), size):
            for group in self._rows.read(chosen[start : start + size], strict=True):
                yield from (tape for _, tape in self._engine.tapes(group.examples.to(device)))

    def _check_first(self) -> None:
        try:
            with preserve_generators():
                list(self._tapes(np.zeros(1, dtype=np.int64)))
        except PrivetError:
            raise
        except Exception as error:
            found = f"with a first example for which the loss raises {type(error).__name__}: {error}"
            allowed = "a data set whose items are like those of the training data"
            fix = "Labels may be arbitrary."
            raise InvalidArgumentError("public", found, allowed, fix) from error
