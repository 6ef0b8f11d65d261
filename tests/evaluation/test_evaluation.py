import json
import math

import numpy as np
import pytest
import torch
from sklearn import metrics
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from privet.errors import InvalidArgumentError
from privet.evaluation import (
    Evaluation,
    RegressionEvaluation,
    bootstrap_interval,
    evaluate,
    evaluate_regression,
    top_label,
    wilson_interval,
)


class Pairs(Dataset):
    """A map-style data set that is no TensorDataset, with labels as plain integers."""

    def __init__(self, inputs, labels):
        self.pairs = [(row, int(label)) for row, label in zip(inputs, labels, strict=True)]

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, index):
        return self.pairs[index]


@pytest.fixture
def examples():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(103, 5, generator=generator), torch.randint(0, 4, (103,), generator=generator)


@pytest.fixture
def model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 4))


@pytest.mark.parametrize(("kind", "batch_size"), [(TensorDataset, 1), (Pairs, 10), (TensorDataset, 1024)])
def test_metrics_match_scikit_learn(model, examples, kind, batch_size):
    inputs, labels = examples
    with torch.no_grad():
        probabilities = model.eval()(inputs).double().softmax(1).numpy()
    predictions = probabilities.argmax(1)
    result = evaluate(model, kind(inputs, labels), batch_size=batch_size)
    assert result.examples == 103
    assert result.accuracy == metrics.accuracy_score(labels, predictions)
    assert result.negative_log_likelihood == pytest.approx(metrics.log_loss(labels, probabilities), rel=1e-6)
    assert np.array_equal(result.confusion, metrics.confusion_matrix(labels, predictions))
    assert result.brier == pytest.approx(metrics.brier_score_loss(labels, probabilities, scale_by_half=False), rel=1e-6)
    table = top_label(labels, probabilities)
    assert (result.calibration.counts, result.calibration.hits) == (table.counts, table.hits)
    assert result.expected_calibration_error == pytest.approx(table.expected_error, rel=1e-6)
    assert result.maximum_calibration_error == pytest.approx(table.maximum_error, rel=1e-6)
    assert result.root_mean_square_calibration_error == pytest.approx(table.root_mean_square_error, rel=1e-6)
    assert sum(result.true_class.confidence) == pytest.approx(probabilities[range(103), labels].sum(), rel=1e-6)
    assert result.auroc == pytest.approx(metrics.roc_auc_score(labels, probabilities, multi_class="ovr"), rel=1e-6)
    assert result.recalls == pytest.approx(metrics.recall_score(labels, predictions, average=None), rel=1e-12)
    assert result.balanced_accuracy == pytest.approx(metrics.balanced_accuracy_score(labels, predictions), rel=1e-12)


class Scores(nn.Module):
    """Two logits, the second of which is the input."""

    def forward(self, inputs):
        return torch.cat((torch.zeros_like(inputs), inputs), dim=1)


def scored(examples, tied, seed=0):
    """Return scores of two classes, a tenth of the second one, which overlap; if `tied`, whole numbers."""
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.rand(examples, generator=generator) < 0.1).long()
    inputs = 1.2 * labels[:, None] + torch.randn(examples, 1, generator=generator)
    return TensorDataset(inputs.round() if tied else inputs, labels)


@pytest.mark.parametrize("tied", [False, True])
def test_the_auroc_of_two_classes_and_its_interval_are_those_of_ranks_and_of_the_bootstrap(tied):
    data = scored(1500, tied)
    found = evaluate(Scores(), data, resamples=2)
    columns = data.tensors[1].numpy(), data.tensors[0][:, 0].numpy()
    assert found.auroc == pytest.approx(metrics.roc_auc_score(*columns), rel=1e-9)
    low, high = found.intervals["auroc"]
    resampled = bootstrap_interval(metrics.roc_auc_score, *columns, resamples=400)
    assert low < found.auroc < high
    assert high - low == pytest.approx(resampled[1] - resampled[0], rel=0.25)  # 400 resamples: 5 % of a quantile's distance


def test_a_perfect_ranking_has_no_interval_and_one_class_no_auroc():
    labels = torch.tensor([0, 0, 1])
    found = evaluate(Scores(), TensorDataset(labels[:, None].float(), labels), resamples=2)
    assert (found.auroc, "auroc" in found.intervals) == (1.0, False)
    assert evaluate(Scores(), TensorDataset(torch.randn(3, 1), torch.zeros(3).long())).auroc is None


def test_a_rare_class_is_seen_beside_the_majority():
    found = Evaluation(0.97, 0.1, ((97, 0), (3, 0)), 100, class_names=("alive", "dead"))
    assert (found.majority_class, found.majority_share, found.recalls) == ("alive", 0.97, (1.0, 0.0))
    assert Evaluation(0.97, 0.1, ((97, 0), (3, 0)), 100).names == ("0", "1")
    assert Evaluation(1.0, 0.1, ((5, 0), (0, 0)), 5).recalls == (1.0, None)
    with pytest.raises(InvalidArgumentError, match="2 names"):
        Evaluation(0.97, 0.1, ((97, 0), (3, 0)), 100, class_names=("alive",))


def test_classes_without_examples_have_a_row_and_column(model, examples):
    inputs, labels = examples
    result = evaluate(model, TensorDataset(inputs, torch.zeros_like(labels)))
    assert [len(row) for row in result.confusion] == [4, 4, 4, 4]
    assert [sum(row) for row in result.confusion] == [103, 0, 0, 0]


def test_training_flags_weights_and_statistics_are_unchanged(model, examples):
    model.train()
    model[1].training, model[4].training = False, False
    flags = [module.training for module in model.modules()]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    evaluate(model, TensorDataset(*examples))
    assert [module.training for module in model.modules()] == flags
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_training_flags_are_restored_when_the_model_fails(examples):
    class Broken(nn.Linear):
        def forward(self, inputs):
            assert not self.training
            raise RuntimeError("broken")

    model = Broken(5, 4)
    with pytest.raises(RuntimeError, match="broken"):
        evaluate(model, TensorDataset(*examples))
    assert model.training


def test_layers_that_override_train_and_eval_are_not_triggered(examples):
    class Merging(nn.Linear):
        switched = 0

        def train(self, mode=True):
            self.switched += 1
            return super().train(mode)

    model = Merging(5, 4)
    evaluate(model, TensorDataset(*examples))
    assert model.switched == 0


@pytest.mark.parametrize("kind", [TensorDataset, Pairs])
def test_the_global_random_state_is_unchanged(model, examples, kind):
    before = torch.get_rng_state()
    evaluate(model.train(), kind(*examples))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("kind", [TensorDataset, Pairs])
def test_empty_data_set_is_refused(model, kind):
    with pytest.raises(InvalidArgumentError, match="at least 1"):
        evaluate(model, kind(torch.zeros(0, 5), torch.zeros(0, dtype=torch.int64)))


@pytest.mark.parametrize("label", [-1, 4])
def test_labels_that_are_not_classes_are_refused(model, label):
    with pytest.raises(InvalidArgumentError, match="from 0 to 3"):
        evaluate(model, TensorDataset(torch.zeros(2, 5), torch.tensor([0, label])))


def test_outputs_that_are_not_logits_are_refused(examples):
    with pytest.raises(InvalidArgumentError, match=r"\(103, classes\)"):
        evaluate(nn.Flatten(0), TensorDataset(*examples))


@pytest.mark.parametrize("batch_size", [0, -1, 2.0, True])
def test_batch_size_must_be_a_positive_whole_number(model, examples, batch_size):
    with pytest.raises(InvalidArgumentError, match="batch_size"):
        evaluate(model, TensorDataset(*examples), batch_size=batch_size)


def test_groups_partition_the_examples_and_their_accuracy(model, examples):
    groups = ["old" if number % 3 else "young" for number in range(103)]
    result = evaluate(model, TensorDataset(*examples), groups=groups)
    assert [(one.group, one.examples) for one in result.groups] == [("old", 68), ("young", 35)]
    assert sum(one.correct for one in result.groups) / 103 == result.accuracy
    with pytest.raises(InvalidArgumentError, match="103"):
        evaluate(model, TensorDataset(*examples), groups=groups[1:])


def test_bins_have_the_requested_number_and_width(model, examples):
    result = evaluate(model, TensorDataset(*examples), bins=7, binning="mass")
    assert len(result.calibration.counts) == 7
    assert max(result.calibration.counts) - min(result.calibration.counts) <= 1
    with pytest.raises(InvalidArgumentError, match="'width', 'mass'"):
        evaluate(model, TensorDataset(*examples), binning="height")


def test_intervals_contain_the_metrics_and_stay_within_possible_values(model, examples):
    result = evaluate(model, TensorDataset(*examples), resamples=200)
    assert "maximum_calibration_error" not in result.intervals
    for name, (low, high) in result.intervals.items():
        assert 0 <= low < high, name
    assert result.intervals["accuracy"] == wilson_interval(result.accuracy, result.examples)
    assert evaluate(model, TensorDataset(*examples)).intervals == {}


def test_a_diverged_model_can_be_evaluated(examples):
    class Diverged(nn.Module):
        def forward(self, inputs):
            return inputs[:, :4] * math.nan

    result = evaluate(Diverged(), TensorDataset(*examples), resamples=2, binning="mass")
    assert math.isnan(result.expected_calibration_error)
    assert math.isnan(result.auroc)
    again = Evaluation.from_dict(json.loads(json.dumps(result.to_dict(), allow_nan=False)))
    assert again.confusion == result.confusion
    assert math.isnan(again.expected_calibration_error)


def test_whole_evaluation_survives_json_exactly(model, examples):
    result = evaluate(model, TensorDataset(*examples), groups=[0, 1, 2] * 34 + [0], resamples=20, class_names="abcd")
    infinite = Evaluation(accuracy=2 / 3, negative_log_likelihood=math.inf, confusion=((1, 1), (0, 1)), examples=3)
    for found in (result, infinite):
        assert Evaluation.from_dict(json.loads(json.dumps(found.to_dict(), allow_nan=False))) == found


def test_evaluations_written_without_calibration_can_be_read():
    old = {"accuracy": 1.0, "negative_log_likelihood": 0.5, "confusion": [[2]], "examples": 2}
    evaluation = Evaluation.from_dict(old)
    assert evaluation.brier is evaluation.calibration is evaluation.expected_calibration_error is None


@pytest.mark.parametrize(("change", "words"), [
    ({"examples": 4}, "sum of the confusion"),
    ({"confusion": [[1, 1], [1]]}, "square"),
    ({"accuracy": None}, "contains accuracy"),
])  # fmt: skip
def test_contradictory_or_incomplete_evaluation_is_refused(change, words):
    whole = Evaluation(accuracy=2 / 3, negative_log_likelihood=0.5, confusion=((1, 1), (0, 1)), examples=3).to_dict()
    values = {key: value for key, value in (whole | change).items() if value is not None}
    with pytest.raises(InvalidArgumentError, match=words):
        Evaluation.from_dict(values)


@pytest.mark.parametrize(("width", "column"), [(1, False), (103, True)])
def test_regression_errors_match_scikit_learn(width, column):
    torch.manual_seed(3)
    inputs, targets = torch.randn(103, 4), torch.randn(103) * 40
    model = nn.Linear(4, 1)
    found = evaluate_regression(model, TensorDataset(inputs, targets[:, None] if column else targets), batch_size=width)
    with torch.no_grad():
        outputs = model(inputs)[:, 0]
    assert found.examples == 103
    assert found.mean_squared_error == pytest.approx(metrics.mean_squared_error(targets, outputs), rel=1e-5)
    assert found.mean_absolute_error == pytest.approx(metrics.mean_absolute_error(targets, outputs), rel=1e-5)


def test_regression_intervals_contain_the_errors_and_results_survive_json():
    torch.manual_seed(4)
    data = TensorDataset(torch.randn(200, 2), torch.randn(200))
    found = evaluate_regression(nn.Linear(2, 1), data, resamples=200)
    for name in ("mean_squared_error", "mean_absolute_error"):
        low, high = found.intervals[name]
        assert 0 <= low < getattr(found, name) < high
    assert RegressionEvaluation.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_more_than_one_output_of_a_regression_is_refused():
    with pytest.raises(InvalidArgumentError, match="one number per example"):
        evaluate_regression(nn.Linear(4, 2), TensorDataset(torch.randn(6, 4), torch.randn(6)))
