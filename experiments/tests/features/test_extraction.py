"""Features are computed once per part of a data set, and cached by their inputs and extractor."""

from dataclasses import replace

import pytest
import torch
from torch.utils.data import TensorDataset

from privet.data import DataSet
from privet_experiments.features import EXTRACTORS, Extractor, check, extracted, extraction


class Counting:
    """An extractor that sums rows, and counts the examples that it computes."""

    def __init__(self, version="1", factor=1.0, **options):
        self.asked = 0
        self.loaded = 0
        self.factor = factor
        self.extractor = Extractor("sums", version, self._prepared, **options)

    def _prepared(self, data):
        self.loaded += 1

        def compute(inputs):
            self.asked += len(inputs)
            return self.factor * inputs.flatten(1).sum(1, keepdim=True)

        return compute


def data_of(number, **options):
    inputs = torch.arange(2.0 * number).reshape(number, 2)
    labels = torch.arange(number)
    return DataSet("made up", TensorDataset(inputs, labels), TensorDataset(inputs[:2] + 0.5, labels[:2]), 9, "", **options)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(extraction, "_PART", 4)


def test_features_replace_inputs_and_labels_stay():
    data, counting = data_of(10, pixel_range=(0.0, 1.0)), Counting()
    found = extraction.extracted(data, counting.extractor)
    assert torch.equal(found.train.tensors[0], data.train.tensors[0].sum(1, keepdim=True))
    assert torch.equal(found.test.tensors[0], data.test.tensors[0].sum(1, keepdim=True))
    assert torch.equal(found.train.tensors[1], data.train.tensors[1])
    assert (found.input_shape, found.pixel_range) == ((1,), None)
    assert counting.asked == 12


def test_sequences_are_sorted_by_length_with_their_labels():
    counting = Counting(lengths=lambda features: -features[:, 0] // 10)  # longer ones first, some as long as others
    found = extraction.extracted(data_of(10), counting.extractor)
    order = [8, 9, 5, 6, 7, 3, 4, 0, 1, 2]
    assert found.train.tensors[1].tolist() == order
    assert found.train.tensors[0][:, 0].tolist() == [4.0 * number + 1 for number in order]
    assert found.test.tensors[1].tolist() == [0, 1]


def test_the_second_time_uses_the_cache_only():
    first = extraction.extracted(data_of(10), Counting().extractor)
    again = Counting(factor=7.0)  # were it asked, the results would differ
    second = extraction.extracted(data_of(10), again.extractor)
    assert (again.asked, again.loaded) == (0, 0)
    assert torch.equal(first.train.tensors[0], second.train.tensors[0])


def test_a_larger_subset_computes_only_new_parts():
    extraction.extracted(data_of(8), Counting().extractor)
    more = Counting()
    extraction.extracted(data_of(12), more.extractor)
    assert more.asked == 4


def test_an_interrupted_extraction_continues():
    def stop(examples):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        extraction.extracted(data_of(10), Counting().extractor, stop)
    rest = Counting()
    extraction.extracted(data_of(10), rest.extractor)
    assert rest.asked == 12 - 4


@pytest.mark.parametrize(("other", "data"), [
    (Counting("2"), data_of(4)),
    (Counting(), replace(data_of(4), train=TensorDataset(torch.arange(8.0).reshape(4, 2) + 1, torch.arange(4)))),
    (Counting(scaled=True), data_of(4, pixel_range=(-1.0, 1.0))),
], ids=["another version", "other inputs", "another scale"])  # fmt: skip
def test_everything_that_determines_a_feature_determines_its_file(other, data):
    extraction.extracted(replace(data_of(4), test=None), Counting().extractor)
    other.asked = 0
    extraction.extracted(replace(data, test=None), other.extractor)
    assert other.asked == 4


def test_a_damaged_file_is_computed_again(cache_folder):
    whole = extraction.extracted(data_of(4), Counting().extractor)
    for path in (cache_folder / "features" / "sums").iterdir():
        path.write_bytes(path.read_bytes()[:50])
    assert torch.equal(extraction.extracted(data_of(4), Counting().extractor).train.tensors[0], whole.train.tensors[0])


def test_progress_counts_every_example():
    told = []
    extraction.extracted(data_of(10), Counting().extractor, told.append)
    assert sum(told) == 12


def test_a_check_computes_one_example_and_caches_nothing(monkeypatch, cache_folder):
    counting = Counting()
    monkeypatch.setitem(EXTRACTORS, "sums", counting.extractor)
    check(data_of(10), "sums")
    assert counting.asked == 1
    assert not cache_folder.exists()


def test_as_they_are_returns_the_data_set_itself():
    data = data_of(3)
    assert extracted(data, "as they are") is data
