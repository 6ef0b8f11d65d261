"""Features of examples: fixed functions of a single example, which release nothing.

They come from pretrained networks and fixed wavelets. Results are cached on disk, as they are the same in every run.
"""

from privet_experiments.features.catalogue import AS_THEY_ARE, EXTRACTORS, FEATURES, check, extracted, of_sequences
from privet_experiments.features.extraction import Extractor

__all__ = ["AS_THEY_ARE", "EXTRACTORS", "FEATURES", "Extractor", "check", "extracted", "of_sequences"]
