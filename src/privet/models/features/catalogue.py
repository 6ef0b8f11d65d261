"""The features by name."""

from __future__ import annotations

from dataclasses import replace

from torch.utils.data import TensorDataset

from privet.data import DataSet
from privet.models.features import efficientnet, extraction, minilm, scattering
from privet.models.features.extraction import Advance, Extractor
from privet.models.features.normalising import Step, grouped, localised, normalised, rooted, whitened

AS_THEY_ARE = "as they are"
EXTRACTORS: dict[str, Extractor] = {
    "scattering": scattering.SCATTERING,
    "efficientnet": efficientnet.POOLED,
    "efficientnet before its last block": efficientnet.BEFORE_LAST_BLOCK,
    "minilm": minilm.SENTENCES,
    "minilm before its last layer": minilm.BEFORE_LAST_LAYER,
    "minilm tokens": minilm.TOKENS,
}
# Name → scattering coefficients of the images or of upright ones, and what is done to them, in this order.
NORMALISED: dict[str, tuple[Extractor, tuple[Step, ...]]] = {
    "normalised scattering": (scattering.SCATTERING, (rooted, whitened, localised)),
    "normalised scattering, upright": (scattering.UPRIGHT, (rooted, whitened, localised)),
    "normalised scattering, no roots": (scattering.SCATTERING, (whitened, localised)),
    "normalised scattering, not whitened": (scattering.SCATTERING, (rooted, localised)),
    "normalised scattering, not local": (scattering.SCATTERING, (rooted, whitened)),
    "scattering in groups of length 10": (scattering.SCATTERING, (grouped,)),
}
FEATURES: tuple[str, ...] = (AS_THEY_ARE, *EXTRACTORS, *NORMALISED)


def extracted(data: DataSet, features: str, advance: Advance = extraction.unheard) -> DataSet:
    """Return the data set with features in the place of its inputs, taken from the disk as far as they are there.

    Args:
        data: any that the extractor takes.
        features: one of `FEATURES`.
        advance: told how many examples have been dealt with since it was called last.

    Raises:
        InvalidArgumentError: the inputs are not what the extractor takes.
        PrivetError: it needs something that is not installed.
        DataUnavailableError: its weights can be had nowhere.
    """
    if features == AS_THEY_ARE:
        return data
    found = extraction.extracted(data, _extractor(features), advance)
    return normalised(found, NORMALISED[features][1]) if features in NORMALISED else found


def check(data: DataSet, features: str) -> None:
    """Refuse features that cannot be had of these examples, at the price of one example."""
    if features != AS_THEY_ARE:
        one = TensorDataset(*(tensor[:1] for tensor in data.train.tensors))
        _extractor(features).prepared(replace(data, train=one, test=None))(one.tensors[0])


def of_sequences(features: str) -> bool:
    """Return whether examples come in order of length, so that small physical batches leave out most of the padding."""
    return features != AS_THEY_ARE and _extractor(features).lengths is not None


def _extractor(features: str) -> Extractor:
    return NORMALISED[features][0] if features in NORMALISED else EXTRACTORS[features]
