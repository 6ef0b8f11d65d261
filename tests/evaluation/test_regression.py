"""Regression errors match scikit-learn for every shape of one number."""

from __future__ import annotations

import json

import pytest
import torch
from sklearn import metrics
from torch import nn
from torch.utils.data import TensorDataset

from privet.errors import InvalidArgumentError
from privet.evaluation import RegressionEvaluation, evaluate_regression


@pytest.mark.parametrize("width", [1, 103])
@pytest.mark.parametrize("column", [False, True])
def test_errors_match_scikit_learn(width, column):
    torch.manual_seed(3)
    inputs, targets = torch.randn(103, 4), torch.randn(103) * 40
    model = nn.Linear(4, 1)
    found = evaluate_regression(model, TensorDataset(inputs, targets[:, None] if column else targets), batch_size=width)
    with torch.no_grad():
        outputs = model(inputs)[:, 0]
    assert found.examples == 103
    assert found.mean_squared_error == pytest.approx(metrics.mean_squared_error(targets, outputs), rel=1e-5)
    assert found.mean_absolute_error == pytest.approx(metrics.mean_absolute_error(targets, outputs), rel=1e-5)


def test_intervals_contain_the_errors_and_results_survive_json():
    torch.manual_seed(4)
    data = TensorDataset(torch.randn(200, 2), torch.randn(200))
    found = evaluate_regression(nn.Linear(2, 1), data, resamples=200)
    for name in ("mean_squared_error", "mean_absolute_error"):
        low, high = found.intervals[name]
        assert 0 <= low < getattr(found, name) < high
    assert RegressionEvaluation.from_dict(json.loads(json.dumps(found.to_dict()))) == found


@pytest.mark.parametrize("outputs", [2, 3])
def test_more_than_one_output_is_refused(outputs):
    with pytest.raises(InvalidArgumentError, match="one number per example"):
        evaluate_regression(nn.Linear(4, outputs), TensorDataset(torch.randn(6, 4), torch.randn(6)))
