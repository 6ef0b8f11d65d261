from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

pytest.importorskip("transformers", reason="not installed: pip install 'privet[real-models]'")
from benchmarks.architectures import ARCHITECTURES, LLAMA
from benchmarks.models_table import ADAPTED, COMPILED, Row, measure, page

PAGE = Path(__file__).parents[2] / "docs" / "results" / "models.md"
pytestmark = pytest.mark.filterwarnings("ignore")


def test_the_page_has_a_row_for_every_architecture_and_most_take_one_pass():
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and "| `" in line]
    for architecture in (*ARCHITECTURES, *ADAPTED):
        assert any(f"| {architecture.name} | `{architecture.model}` |" in row for row in rows), architecture.name
    assert len(ARCHITECTURES) >= 30
    assert PAGE.read_text().startswith(f"# Models\n\n{len(ARCHITECTURES)} architectures of transformers ")
    assert len(rows) == len(ARCHITECTURES) + len(ADAPTED)
    assert sum(" | ghost | " in row for row in rows) > 0.9 * len(rows)
    assert all(f"| {architecture.name} |" in PAGE.read_text() for architecture in COMPILED)


def test_a_step_is_measured():
    row = measure(LLAMA, rounds=1)
    assert (row.method, row.name) == ("ghost", "Llama")
    assert row.plain > 0
    assert row.ratio > 0


def test_a_model_that_is_refused_is_a_row_with_the_reason():
    def normalised(model: nn.Module) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(3), model)

    row = measure(replace(LLAMA, adapt=normalised), rounds=1)
    assert row.method.startswith("refused: module '1' is a BatchNorm1d")
    assert f"| Llama | `LlamaForCausalLM` | {row.parameters:,} | {row.method} | — | — |" in page([row], [row], [row])


def test_a_page_says_what_was_measured():
    made = page([Row("A model", "AModel", 1234, "loop", 0.25, 3.456, 1.0)], [], [Row("Another", "B", 1, "ghost", 0.1, 1.5, 2.25)])
    assert "| A model | `AModel` | 1,234 | loop | 250 ms | 3.46 |" in made
    assert "| Another | 2.25 s | 100 ms | 1.50 |" in made
    assert torch.__version__.partition("+")[0] in made
