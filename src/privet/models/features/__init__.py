"""What a network sees of an example: fixed functions of that example alone, so that nothing is released by them.

Pretrained networks and wavelets with nothing to learn. Results are kept on the disk, as they are the same for every run.
"""

from privet.models.features.catalogue import AS_THEY_ARE, EXTRACTORS, FEATURES, check, extracted, of_sequences
from privet.models.features.extraction import Extractor

__all__ = ["AS_THEY_ARE", "EXTRACTORS", "FEATURES", "Extractor", "check", "extracted", "of_sequences"]
