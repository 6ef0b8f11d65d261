"""Models of a table, for classes or a number, and of images."""

from pathlib import Path

import pytest
from model_folders import AMOUNT, CLASSES, make

from privet.data.preprocessing import Pixels
from privet.tables import Classification


@pytest.fixture
def table_model(tmp_path: Path) -> Path:
    return make(tmp_path / "table" / "model", "mlp", (CLASSES.width,), CLASSES.task, CLASSES)


@pytest.fixture
def number_model(tmp_path: Path) -> Path:
    return make(tmp_path / "number" / "model", "regression-mlp", (AMOUNT.width,), AMOUNT.task, AMOUNT)


@pytest.fixture
def image_model(tmp_path: Path) -> Path:
    return make(tmp_path / "images" / "model", "cnn", (1, 16, 16), Classification(tuple("0123456789")), None, Pixels(white=16))
