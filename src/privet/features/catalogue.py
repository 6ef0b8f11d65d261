"""The features by name."""

from __future__ import annotations

from dataclasses import replace

from torch.utils.data import TensorDataset

from privet.data import DataSet
from privet.features import efficientnet, extraction, minilm, scattering
from privet.features.extraction import Advance, Extractor

AS_THEY_ARE = "as they are"
EXTRACTORS: dict[str, Extractor] = {
    "scattering": scattering.SCATTERING,
    "efficientnet": efficientnet.POOLED,
    "efficientnet before its last block": efficientnet.BEFORE_LAST_BLOCK,
    "minilm": minilm.SENTENCES,
    "minilm tokens": minilm.TOKENS,
}
FEATURES: tuple[str, ...] = (AS_THEY_ARE, *EXTRACTORS)


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
    return data if features == AS_THEY_ARE else extraction.extracted(data, EXTRACTORS[features], advance)


def check(data: DataSet, features: str) -> None:
    """Refuse features that cannot be had of these examples, at the price of one example."""
    if features != AS_THEY_ARE:
        one = TensorDataset(*(tensor[:1] for tensor in data.train.tensors))
        EXTRACTORS[features].prepared(replace(data, train=one, test=None))(one.tensors[0])
