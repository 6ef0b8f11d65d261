"""Gradient embedding perturbation: gradients are split by a public subspace, and each part has its own bound and noise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from privet._utils.registry import register
from privet.clipping.base import NormRule, Rule, round_weights
from privet.clipping.layerwise import SPLITS, split_names
from privet.errors import InvalidArgumentError, between, choice, count

# Start of the names of released embeddings, which no parameter can have.
EMBEDDING = "embedding:"
_SPLITS = {**SPLITS, "model": lambda name: ""}
# A part shorter than this share of its gradient may be mostly rounding; the rounding of a gradient is 10⁴ times smaller.
_RESOLVED = 1e-3


@register
@dataclass(frozen=True)
class GEP(Rule):
    """Split each gradient into its coordinates in a subspace of public gradients and a residual, and clip the two separately.

    At every step, the gradients of public examples (anchors) span a subspace for each group of parameters, with an orthonormal
    basis B. A gradient g has the embedding e = Bᵀg and the residual r = g − Be. Noise on the few coordinates of e costs little,
    so what the private gradients have in common with the public ones is released precisely, and the rest roughly. The optimizer
    receives B·(noised sum of e) + (noised sum of r), divided like any sum. `Training` gets the public data as `public`.

    Args:
        embedding: rule of one norm for the embedding, with bound S₁.
        residual: rule of one norm for the residual, with bound S₂; None releases no residual, which is projected DP-SGD (biased).
        dimensions: K ≥ 1, dimensions of all subspaces together. A group of p parameters gets K·√p/Σ√p of them, rounded, at least
            one and at most p or the number of anchors.
        anchors: number of public examples whose gradients span the subspaces of a step, ≥ 1; drawn anew for every step if there
            are more.
        public: name of the public data, for statements. You guarantee that they are public.
        by: groups of parameters with a subspace each: "module", "parameter" or "model". Smaller groups need less memory and time.
        iterations: power iterations from a random start, ≥ 1; each computes the gradients of all anchors.
        share: fraction in (0, 1) of a step's 1/σ² that pays for the embedding, if there is a residual. The embedding's noise has
            standard deviation σ·S₁/√share, the residual's σ·S₂/√(1 − share); ½, which gives both the multiplier √2·σ, is usual.

    Guarantee:
        Anchors are public, and the parameters at which their gradients are taken were released, so subspaces depend on no
        private value of the step. An example contributes w₁·e, of norm at most S₁, and w₂·r, of norm at most S₂. Divided by the
        noise scales u₁ = S₁/(S·√share) and u₂ = S₂/(S·√(1 − share)), with S = √(S₁² + S₂²), both together have norm at most S:
        (S₁/u₁)² + (S₂/u₂)² = S². So the release is one Gaussian mechanism of sensitivity S with the plan's multiplier. The norms
        are those of the computed e and r, so this also holds if B is not orthonormal. What follows is post-processing.

        A part shorter than a thousandth of the gradient is weighed as if it had that length: it may be mostly rounding error,
        which other examples can change.

    Source:
        Yu, Zhang, Chen, Liu 2021, "Do Not Let Privacy Overbill Utility: Gradient Embedding Perturbation for Private Learning",
        Algorithms 1 and 2, whose noise is that of share ½; "biased GEP" there has no residual.

    >>> from privet.clipping import Flat
    >>> rule = GEP(Flat(3.0), Flat(4.0), dimensions=20, anchors=100, public="dead leaves", share=0.36)
    >>> rule.sensitivity, rule.noise_scales(["embedding:0", "weight"])
    (5.0, {'embedding:0': 1.0, 'weight': 1.0})
    >>> rule.ranks([900, 100, 4])
    (14, 5, 1)
    """

    embedding: NormRule
    residual: NormRule | None
    dimensions: int
    anchors: int
    public: str
    by: str = "module"
    iterations: int = 1
    share: float = 0.5

    def __post_init__(self) -> None:
        for name, rule in (("embedding", self.embedding), ("residual", self.residual)):
            if not isinstance(rule, NormRule) and not (rule is None and name == "residual"):
                raise InvalidArgumentError(f"clipping.{name}", rule, "a rule of one norm, such as privet.clipping.Flat(1.0)")
        count("clipping.dimensions", self.dimensions, fix="It is the dimension of all subspaces together.")
        count("clipping.anchors", self.anchors, fix="It is the number of public examples whose gradients a step uses.")
        count("clipping.iterations", self.iterations, fix="1 is usual.")
        choice("clipping.by", self.by, _SPLITS)
        between("clipping.share", self.share, 0.0, 1.0, "It is the share of a step's budget that pays for the embedding.")
        if not isinstance(self.public, str) or not self.public.strip():
            raise InvalidArgumentError("clipping.public", self.public, "the name of the public data", "Statements name them.")

    @property
    def sensitivity(self) -> float:
        """√(S₁² + S₂²)."""
        return math.hypot(*(rule.sensitivity for rule in self._parts()))

    def _parts(self) -> tuple[NormRule, ...]:
        return (self.embedding,) if self.residual is None else (self.embedding, self.residual)

    @property
    def remarks(self) -> tuple[str, ...]:
        """A remark on what is released."""
        rest = "and nothing else of a gradient" if self.residual is None else "and, with noise of its own, the rest of a gradient"
        return (
            f"A step releases coordinates in subspaces spanned by the gradients of {self.anchors:,} public examples of "
            f"{self.public!r}, {rest}; both together are protected by the noise multiplier",
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        """That the public data are public, and what the rules assume."""
        return (
            f"the data {self.public!r}, from which subspaces of gradients are computed, are public and need no protection",
            *dict.fromkeys(clause for rule in self._parts() for clause in rule.assumptions),
        )

    def subspaces(self, names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        """Partition parameter names into groups that have a subspace each."""
        return split_names(names, _SPLITS[self.by])

    def released(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the names of an embedding for every subspace, and of the residuals, if they are released."""
        embeddings = (f"{EMBEDDING}{number}" for number in range(len(self.subspaces(names))))
        return (*embeddings, *(() if self.residual is None else names))

    def ranks(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Return the dimension of the subspace of every group, given the groups' numbers of parameters."""
        total = sum(map(math.sqrt, sizes))
        return tuple(max(1, min(round(self.dimensions * math.sqrt(size) / total), size, self.anchors)) for size in sizes)

    def groups(self, names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        """Return the embeddings and the residuals among these names, which are clipped separately."""
        found = split_names(names, lambda name: EMBEDDING if name.startswith(EMBEDDING) else "")
        return tuple(sorted(found, key=lambda group: not group[0].startswith(EMBEDDING)))

    def weight(self, norms: Tensor) -> Tensor:
        """Return the factors for (2, B) norms of embeddings and residuals, or (1, B) of embeddings, same shape.

        A part that is much shorter than the gradient consists of rounding, which other examples may change: it is weighed as if
        it were longer.
        """
        precise = norms.double()
        longer = precise.maximum(_RESOLVED * torch.linalg.vector_norm(precise, dim=0))
        factors = torch.stack([rule.factor(row) for rule, row in zip(self._parts(), longer, strict=True)])
        return round_weights(factors, precise, norms.dtype)

    def noise_scales(self, names: Sequence[str]) -> Mapping[str, float]:
        """Return name → u₁ for embeddings and u₂ for residuals; empty without residuals."""
        if self.residual is None:
            return {}
        inner = self.embedding.sensitivity / (self.sensitivity * math.sqrt(self.share))
        outer = self.residual.sensitivity / (self.sensitivity * math.sqrt(1 - self.share))
        return {name: inner if name.startswith(EMBEDDING) else outer for name in names}

    def scale_bound(self, factor: float) -> GEP:
        """Return the rule with both bounds multiplied by a public factor > 0."""
        residual = None if self.residual is None else self.residual.scale_bound(factor)
        return replace(self, embedding=self.embedding.scale_bound(factor), residual=residual)


def refuse_anchors(rule: Rule, where: str) -> None:
    """Refuse `GEP` for `where`, which has no anchor gradients."""
    if isinstance(rule, GEP):
        fix = "privet.Training(..., public=...) has them."
        raise InvalidArgumentError("clipping", "GEP", f"a rule without anchor gradients for {where}", fix)
