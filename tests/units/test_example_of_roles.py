"""The example of user-level privacy: roles of a play are users, of a causal model, trained from speeches in a file."""

import importlib.util
import json
import lzma
from pathlib import Path

import pytest
import torch

EXAMPLE = Path(__file__).parents[2] / "examples" / "shakespeare_roles.py"
SPEECHES = [
    {"user": number % 12, "role": "Somebody", "text": "Speak, speak! " * (1 + number % 5) + f"Ünd {number}."}
    for number in range(60)
]


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location(EXAMPLE.stem, EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def speeches(tmp_path):
    path = tmp_path / "speeches.jsonl.xz"
    path.write_bytes(lzma.compress("\n".join(map(json.dumps, SPEECHES)).encode()))
    return path


def test_it_trains_from_a_file_and_says_what_it_promises(example, speeches, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["", str(speeches), "--public", "2", "--steps", "3", "--pieces", "2"])
    example.main()
    printed = capsys.readouterr().out
    assert "differential privacy for one user" in printed
    assert "10 roles, ε = 8.00" in printed
    assert "bits per letter" in printed


def test_without_noise_it_says_that_nothing_is_private(example, speeches, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["", str(speeches), "--public", "2", "--steps", "2", "--pieces", "1", "--epsilon", "inf"])
    example.main()
    assert "NO PRIVACY" in capsys.readouterr().out


def test_pieces_hold_every_letter_of_a_role_once_as_the_next_letter(example, speeches):
    roles = example.read_speeches(speeches)
    assert {*roles} == {*range(12)}
    pieces, owners = example.cut(roles)
    for role, letters in roles.items():
        own = pieces[[number for number, owner in enumerate(owners) if owner == role], 1:]
        assert own[own != example.MISSING].tolist() == letters[1:]


def test_the_model_does_not_look_ahead(example):
    model = example.LanguageModel()
    torch.nn.init.normal_(model.pairs.weight)
    letters = torch.randint(example.LETTERS, (3, 20))
    changed = letters.clone()
    changed[:, 12] = (letters[:, 12] + 1) % example.LETTERS
    before, after = model(letters), model(changed)
    assert torch.equal(before[:, :12], after[:, :12])
    assert not torch.equal(before[:, 12:16], after[:, 12:16])
