"""Topics of news at ε = 4: a public sentence encoder, and a private classifier with `fit` and `predict` on its embeddings.

MiniLM was pretrained on public sentences and is not trained; it encodes each text alone. Only the classifier is trained on the
private texts. The files have a header and a line "label<tab>text" for each text, plain or gzipped:

    python examples/ag_news.py train.tsv.gz test.tsv.gz --epsilon 4
"""

import argparse
import gzip
from pathlib import Path

import numpy as np
import torch

from privet.integrations.sklearn import PrivateClassifier
from privet.models.pretrained.minilm import pretrained, tokenizer

CLASSES = ["0", "1", "2", "3"]  # world, sports, business, science and technology: public
# Public, from other texts: components of embeddings of norm 1 rarely leave this range, and are clipped to it.
BOUND = 0.15


def read(path):
    """Return the texts and their labels."""
    content = Path(path).read_bytes()
    lines = (gzip.decompress(content) if str(path).endswith(".gz") else content).decode().split("\n")[1:]
    labels, texts = zip(*(line.split("\t", 1) for line in lines if line), strict=True)
    return texts, labels


@torch.no_grad()
def embed(texts, at_once=64):
    """Return an embedding of norm 1 for each text, (N, 384)."""
    encode, network = tokenizer(), pretrained()
    parts = []
    for start in range(0, len(texts), at_once):
        tokens = torch.tensor([one.ids for one in encode.encode_batch(list(texts[start : start + at_once]))])
        parts.append(torch.nn.functional.normalize(network(tokens)))
    return torch.cat(parts).numpy()


def main():
    """Train on private texts, and evaluate on public ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("private")
    parser.add_argument("public")
    parser.add_argument("--epsilon", type=float, default=4.0)
    parser.add_argument("--delta", type=float, default=1e-5)
    options = parser.parse_args()

    texts, labels = read(options.private)
    classifier = PrivateClassifier(options.epsilon, options.delta, feature_bounds=(-BOUND, BOUND), classes=CLASSES)
    classifier.fit(embed(texts), np.array(labels))
    public, truth = read(options.public)
    accuracy = classifier.score(embed(public), np.array(truth))
    print(classifier.guarantee_)
    print(f"ε = {classifier.epsilon_:.2f}: accuracy {accuracy:.1%} on {len(truth)} public texts")


if __name__ == "__main__":
    main()
