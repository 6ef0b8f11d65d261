"""Subspaces spanned by gradients of public examples, and the split of per-example gradients by them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from privet.clipping import GEP
from privet.gradients.core.norms import full_precision
from privet.gradients.core.per_example import DenseGrad, PerExampleGrad
from privet.gradients.methods.tape import LONG, Tape

# Numbers of per-example gradients that are formed at once: 64 MiB in float32, so that products with a basis are fast.
_AT_ONCE = 1 << 24


@dataclass(frozen=True, eq=False)
class Subspace:
    """An orthonormal basis of a subspace for each group of parameters. It is public."""

    rule: GEP
    parameters: Mapping[str, Tensor]
    bases: Sequence[Tensor]  # of every group, (p, k), with parameters in order and flattened

    @cached_property
    def _groups(self) -> tuple[tuple[str, ...], ...]:
        return self.rule.subspaces(tuple(self.parameters))

    @cached_property
    def released(self) -> dict[str, Tensor]:
        """Name of a released sum → tensor of its shape: embeddings and, if the rule releases them, residuals."""
        names = self.rule.released(tuple(self.parameters))
        embeddings = dict(zip(names, (basis.new_zeros(basis.shape[1]) for basis in self.bases), strict=False))
        return {name: embeddings[name] if name in embeddings else self.parameters[name] for name in names}

    def split(self, tape: Tape) -> Iterator[tuple[slice, Tape]]:
        """Yield positions and tapes of embeddings Bᵀg and residuals g − B(Bᵀg), formed in blocks of examples.

        Residuals are formed before their norm is taken: from ‖g‖² − ‖Bᵀg‖², small ones would be lost to rounding.
        """
        for where, part in _blocks(tape):
            yield where, self._split_at_once(part)

    def _split_at_once(self, tape: Tape) -> Tape:
        found: dict[str, Tensor] = {}
        embeddings = [name for name in self.released if name not in self.parameters]
        with full_precision(tape.device):
            for embedding, names, basis in zip(embeddings, self._groups, self.bases, strict=True):
                own = _flat(tape, names)
                # Without a residual, nothing tells how much of an embedding is rounding: so it is computed precisely.
                precision = torch.float64 if self.rule.residual is None else torch.promote_types(own.dtype, basis.dtype)
                gradients = own.to(precision)
                basis = basis.to(gradients)
                found[embedding] = (gradients @ basis).to(torch.promote_types(own.dtype, basis.dtype))
                if self.rule.residual is not None:
                    gradients.addmm_(found[embedding], basis.t(), alpha=-1)
                    found |= _shaped(gradients, names, self.parameters)
        grads: dict[str, PerExampleGrad] = {name: DenseGrad(found[name]) for name in self.released}
        return Tape(tape.examples, self.released, grads)

    def join(self, released: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return name of a parameter → B·(released embedding) + (released residual): post-processing of a release."""
        embeddings = [name for name in self.released if name not in self.parameters]
        found: dict[str, Tensor] = {}
        with full_precision(next(iter(self.parameters.values())).device):
            for embedding, names, basis in zip(embeddings, self._groups, self.bases, strict=True):
                inside = basis @ released[embedding].to(basis)
                for name, value in _shaped(inside[None], names, self.parameters).items():
                    found[name] = (value[0] + released[name] if name in released else value[0]).to(self.parameters[name])
        others = {name: tensor for name, tensor in released.items() if name not in self.released}
        return {**{name: found[name] for name in self.parameters}, **others}


def find_subspace(
    rule: GEP, parameters: Mapping[str, Tensor], anchors: Callable[[], Iterable[Tape]], generator: torch.Generator
) -> Subspace:
    """Return the subspaces that power iteration finds in the gradients of public examples.

    Every iteration maps an orthonormal L to the orthonormalised Gᵀ(G L), where the rows of G are the gradients of the anchors,
    starting from random L. Gradients are formed in blocks and not kept.
    Args:
        anchors: yields the tapes of the anchors; called for each iteration. Anchors whose gradient is not finite are left out.
        generator: of the random start, on the CPU.
    Source:
        Yu et al. 2021, "Do Not Let Privacy Overbill Utility: Gradient Embedding Perturbation for Private Learning",
        Algorithm 2.
    """
    groups = rule.subspaces(tuple(parameters))
    sizes = [sum(parameters[name].numel() for name in names) for names in groups]
    first = next(iter(parameters.values()))
    precision = torch.promote_types(first.dtype, torch.float32)
    bases = [
        torch.randn(size, rank, generator=generator, device="cpu").to(first.device, precision)
        for size, rank in zip(sizes, rule.ranks(sizes), strict=True)
    ]
    with full_precision(first.device):
        for _ in range(rule.iterations):
            images = [torch.zeros_like(basis) for basis in bases]
            for _, part in (block for tape in anchors() for block in _blocks(tape)):
                for names, basis, image in zip(groups, bases, images, strict=True):
                    gradients = _flat(part, names)
                    gradients = gradients.where((gradients.norm(dim=1) < LONG)[:, None], 0.0).to(basis)
                    image += gradients.t() @ (gradients @ basis)
            bases = [_orthonormal(image) for image in images]
    return Subspace(rule, parameters, bases)


def _orthonormal(image: Tensor) -> Tensor:
    """Return an orthonormal basis of the columns, computed in float64; rows that are zero, as under a mask, stay zero."""
    finite = torch.nan_to_num(image.double(), 0.0, 0.0, 0.0)
    basis = torch.linalg.qr(finite / finite.abs().max().clamp(min=torch.finfo(torch.float64).tiny))[0]
    kept: Tensor = basis.masked_fill((finite == 0).all(1, keepdim=True), 0.0).to(image)
    return kept


def _blocks(tape: Tape) -> Iterator[tuple[slice, Tape]]:
    size = sum(parameter.numel() for parameter in tape.parameters.values())
    step = max(1, _AT_ONCE // max(1, size))
    for start in range(0, tape.examples, step):
        stop = min(start + step, tape.examples)
        whole = stop - start == tape.examples
        yield slice(start, stop), tape if whole else tape.index_select(torch.arange(start, stop, device=tape.device))


def _flat(tape: Tape, names: Sequence[str]) -> Tensor:
    rows = [
        tape.grads[name].materialize().reshape(tape.examples, -1)
        if name in tape.grads
        else tape.parameters[name].detach().new_zeros(tape.examples, tape.parameters[name].numel())
        for name in names
    ]
    return torch.cat([row.detach() for row in rows], dim=1)


def _shaped(rows: Tensor, names: Sequence[str], parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    parts = rows.split([parameters[name].numel() for name in names], dim=1)
    return {name: part.view(len(part), *parameters[name].shape) for name, part in zip(names, parts, strict=True)}
