"""Features by name."""

from __future__ import annotations

__all__ = ["AS_THEY_ARE", "EXTRACTORS", "FEATURES", "NORMALISED", "check", "extracted", "of_sequences"]

from dataclasses import replace

from torch.utils.data import TensorDataset

from privet.data import DataSet
from privet_experiments.features import efficientnet, extraction, minilm, oriented_edges, scattering
from privet_experiments.features.extraction import Advance, Extractor
from privet_experiments.features.normalising import Step, normalise, normalise_groups, normalise_locally, take_roots, whiten

AS_THEY_ARE = "as they are"
EXTRACTORS: dict[str, Extractor] = {
    "scattering": scattering.SCATTERING,
    "oriented edges": oriented_edges.EDGES,
    "efficientnet": efficientnet.POOLED,
    "efficientnet before its last block": efficientnet.BEFORE_LAST_BLOCK,
    "minilm": minilm.SENTENCES,
    "minilm before its last layer": minilm.BEFORE_LAST_LAYER,
    "minilm tokens": minilm.TOKENS,
}
# Name → scattering coefficients of the images, or of deskewed ones, and the normalising steps in order.
NORMALISED: dict[str, tuple[Extractor, tuple[Step, ...]]] = {
    "normalised scattering": (scattering.SCATTERING, (take_roots, whiten, normalise_locally)),
    "normalised scattering, upright": (scattering.UPRIGHT, (take_roots, whiten, normalise_locally)),
    "normalised scattering, no roots": (scattering.SCATTERING, (whiten, normalise_locally)),
    "normalised scattering, not whitened": (scattering.SCATTERING, (take_roots, normalise_locally)),
    "normalised scattering, not local": (scattering.SCATTERING, (take_roots, whiten)),
    "scattering in groups of length 10": (scattering.SCATTERING, (normalise_groups,)),
}
FEATURES: tuple[str, ...] = (AS_THEY_ARE, *EXTRACTORS, *NORMALISED)


def extracted(data: DataSet, features: str, advance: Advance = extraction.ignore_progress) -> DataSet:
    """Return the data set with its inputs replaced by features (one of `FEATURES`), from the cache if possible.

    `advance` is called with the number of examples processed since its last call.

    Raises:
        InvalidArgumentError: the extractor does not support the inputs.
        PrivetError: the extractor requires a package that is not installed.
        DataUnavailableError: its weights are not available.
    """
    if features == AS_THEY_ARE:
        return data
    found = extraction.extracted(data, _extractor(features), advance)
    return normalise(found, NORMALISED[features][1]) if features in NORMALISED else found


def check(data: DataSet, features: str) -> None:
    """Check, by computing the features of one example, that they can be computed for this data set; errors as `extracted`."""
    if features != AS_THEY_ARE:
        one = TensorDataset(*(tensor[:1] for tensor in data.train.tensors))
        _extractor(features).prepared(replace(data, train=one, test=None))(one.tensors[0])


def of_sequences(features: str) -> bool:
    """Return whether examples are sorted by length, so that small physical batches contain little padding."""
    return features != AS_THEY_ARE and _extractor(features).lengths is not None


def _extractor(features: str) -> Extractor:
    return NORMALISED[features][0] if features in NORMALISED else EXTRACTORS[features]
