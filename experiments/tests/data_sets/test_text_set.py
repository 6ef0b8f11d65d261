"""Sets of sentences are read from two tab-separated files with columns in any order, verified, and kept as bytes."""

import gzip
import hashlib
from dataclasses import replace

import numpy as np
import pytest
import torch

from privet.data import ChecksumError
from privet_experiments.data_sets.sst2 import SST2
from privet_experiments.data_sets.text_set import decode, encode

SENTENCES = ["a fine film", "très long , and dull", "x"]


def set_of(texts):
    digest = hashlib.sha256(b"".join(array.tobytes() for array in texts)).hexdigest()
    return replace(SST2, examples=(2, 1), length=24, sha256=digest)


def write(folder, head, row, pack=bytes):
    for name, chosen in (("train.tsv", SENTENCES[:2]), ("dev.tsv", SENTENCES[2:])):
        lines = [head, *(row(sentence, number) for number, sentence in enumerate(chosen))]
        content = pack(("\n".join(lines) + "\n").encode())
        (folder / (name if pack is bytes else f"{name}.gz")).write_bytes(content)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_columns_are_found_by_their_names_and_white_space_does_not_count(tmp_path, pack):
    small = replace(SST2, length=24)
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    write(tmp_path / "one", "sentence\tlabel", lambda sentence, label: f"{sentence} \t{label}", pack)
    write(tmp_path / "two", "label\tsentence", lambda sentence, label: f"{label}\t{sentence}", pack)
    one, two = (small.from_folder(tmp_path / name) for name in ("one", "two"))
    assert all(np.array_equal(x, y) for x, y in zip(one, two, strict=True))
    assert decode(torch.from_numpy(one.x_train.copy())) == SENTENCES[:2]
    assert (one.y_train.tolist(), one.y_test.tolist()) == ([0, 1], [0])


def test_only_the_published_texts_pass(tmp_path):
    write(tmp_path, "sentence\tlabel", lambda sentence, label: f"{sentence}\t{label}")
    texts = replace(SST2, length=24).from_folder(tmp_path)
    published = set_of(texts)
    assert published.verify(texts) is texts
    with pytest.raises(ChecksumError, match="the texts of sst2"):
        published.verify(texts._replace(y_train=texts.y_train[::-1]))


def test_a_data_set_holds_bytes_and_whole_labels(tmp_path):
    write(tmp_path, "sentence\tlabel", lambda sentence, label: f"{sentence}\t{label}")
    small = replace(SST2, length=24)
    data = small.dataset(small.from_folder(tmp_path), "")
    inputs, labels = data.train.tensors
    assert (inputs.dtype, labels.dtype, data.input_shape, data.examples) == (torch.uint8, torch.int64, (24,), 3)


def test_a_folder_without_the_files_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"the folder has no train\.tsv"):
        SST2.from_folder(tmp_path)


def test_sentences_survive_their_encoding():
    assert decode(torch.from_numpy(encode([" é ", ""], 5).copy())) == ["é", ""]
