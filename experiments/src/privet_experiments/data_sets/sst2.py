"""SST-2: 68,221 phrases from film reviews, positive or negative.

The test split is GLUE's development set, because the labels of GLUE's test set are not published.

Source: Socher et al. 2013, "Recursive deep models for semantic compositionality over a sentiment treebank"; splits by Wang et al.
2019, "GLUE: a multi-task benchmark and analysis platform for natural language understanding".
"""

from __future__ import annotations

__all__ = ["SST2"]

import io
import zipfile

from privet.data.download.packages import Place, download
from privet_experiments.data_sets.text_set import MOST_BYTES, Texts, TextSet

_ADDRESS = "https://dl.fbaipublicfiles.com/glue/data/SST-2.zip"


def _from_address() -> Texts:
    with zipfile.ZipFile(io.BytesIO(download(_ADDRESS, MOST_BYTES))) as archive:
        return SST2.parse(lambda name: archive.read(f"SST-2/{name}"))


SST2 = TextSet(
    name="sst2",
    description="phrases from film reviews, positive or negative (text, for recipes)",
    licence="none stated by the authors; for research",
    obtained="its download address, else a folder with train.tsv and dev.tsv",
    examples=(67_349, 872),
    classes=2,
    evidence="its texts have the pinned SHA-256",
    places=(Place(_ADDRESS, _from_address),),
    length=267,
    names=("train.tsv", "dev.tsv"),
    sha256="7abc3c44ff41d9d0c11ae92efb99540549fc68cbe1b41c3adc378849d6726d7b",
)
