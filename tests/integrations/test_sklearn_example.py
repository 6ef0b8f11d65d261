"""The example of a private classifier on embeddings of news, with made-up embeddings in place of the encoder's."""

import gzip
import importlib.util
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sklearn", minversion="1.6")

EXAMPLE = Path(__file__).parents[2] / "examples" / "ag_news.py"


@pytest.mark.filterwarnings("ignore::privet.errors.PrivetWarning")
def test_it_classifies_texts_of_a_file(tmp_path, monkeypatch, capsys):
    spec = importlib.util.spec_from_file_location(EXAMPLE.stem, EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    lines = "".join(f"{number % 4}\ttext of topic {number % 4}\n" for number in range(400))
    for name in ("private.tsv.gz", "public.tsv.gz"):
        (tmp_path / name).write_bytes(gzip.compress(f"label\ttext\n{lines}".encode()))
    assert example.read(tmp_path / "public.tsv.gz")[0][:2] == ("text of topic 0", "text of topic 1")
    monkeypatch.setattr(example, "embed", lambda texts: np.eye(4)[[int(text[-1]) for text in texts]] * 0.1)
    monkeypatch.setattr("sys.argv", ["", str(tmp_path / "private.tsv.gz"), str(tmp_path / "public.tsv.gz"), "--epsilon", "50"])
    example.main()
    printed = capsys.readouterr().out
    assert "differential privacy for one example" in printed
    assert "accuracy 100.0% on 400 public texts" in printed
