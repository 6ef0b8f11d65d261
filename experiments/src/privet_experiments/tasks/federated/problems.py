"""Small models of many users' data: sentiment of tweets, the next letter of plays, and ratings of films."""

from __future__ import annotations

__all__ = ["PROBLEMS", "UserPart", "UserProblem"]

import csv
import io
import json
import math
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from privet.gradients.core.losses import LossFunction

# Public: all numbers below are chosen without looking at private users.
_WORDS = 1000
_ALPHABET = "\n abcdefghijklmnopqrstuvwxyz'.,;:?!-"
_UNKNOWN, _MISSING, _LETTERS = len(_ALPHABET), -100, len(_ALPHABET) + 1
_PIECE = 64
_FILMS, _OTHERS = 300, 0.15
_MIDDLE = 3.5
_EACH = "user", "userId"

# User → texts with labels, texts, or films with ratings.
_Rows = list[tuple[int, dict[str, str]]]


@dataclass(frozen=True)
class UserPart:
    """Examples of some users: inputs and targets, and the user of each example."""

    examples: TensorDataset
    owners: tuple[int, ...]

    @property
    def users(self) -> int:
        """Number of users."""
        return len(set(self.owners))


@dataclass(frozen=True)
class UserProblem:
    """A learning problem on many users' data.

    Args:
        rows: text of the file → user and fields of every row.
        encode: rows of a part, rows of public users → examples of the part.
        build: → the initial model.
        loss: (model, batch) → (B,) losses.
        measure: logits or predictions, targets → metrics.
        constant: training targets → the best constant prediction, (outputs,).
    """

    rows: Callable[[io.StringIO], _Rows]
    encode: Callable[[_Rows, _Rows], UserPart]
    build: Callable[[], nn.Module]
    loss: LossFunction
    measure: Callable[[Tensor, Tensor], dict[str, float]]
    constant: Callable[[Tensor], Tensor]


class _Lookup(nn.Module):
    """A linear map of one-hot inputs.

    Args:
        last: factor of the last input, which most examples have: it would otherwise learn faster than all others.
    """

    eye: Tensor

    def __init__(self, numbers: int, outputs: int, last: float = 1.0) -> None:
        super().__init__()
        eye = torch.eye(numbers)
        eye[-1] *= last
        self.register_buffer("eye", eye, persistent=False)
        self.linear = nn.Linear(numbers, outputs, bias=False)
        nn.init.zeros_(self.linear.weight)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the outputs, (..., outputs), for numbers (...,)."""
        found: Tensor = self.linear(self.eye[inputs])
        return found


def _build_bag_model() -> nn.Module:
    linear = nn.Linear(_WORDS, 1, bias=False)  # frequent words do what a bias would, which learns much faster than words
    nn.init.zeros_(linear.weight)
    return linear


def _table(text: io.StringIO) -> _Rows:
    return [(int(next(row[name] for name in _EACH if name in row)), row) for row in csv.DictReader(text)]


def _lines(text: io.StringIO) -> _Rows:
    return [(int(row["user"]), row) for row in map(json.loads, text.read().split("\n")[:-1])]


def _encode_tweets(rows: _Rows, public: _Rows) -> UserPart:
    """Return bags of hashed words of length 1, and the labels."""
    bags = torch.zeros(len(rows), _WORDS)
    for place, (_, row) in enumerate(rows):
        for word in set(row["text"].lower().split()):
            bags[place, zlib.crc32(word.encode()) % _WORDS] = 1.0
    labels = torch.tensor([float(row["label"]) for _, row in rows])
    return UserPart(TensorDataset(F.normalize(bags, dim=1), labels), tuple(user for user, _ in rows))


def _encode_speeches(rows: _Rows, public: _Rows) -> UserPart:
    """Return pieces of text as letter ids, and the letter after each."""
    texts: dict[int, list[int]] = {}
    place = {letter: number for number, letter in enumerate(_ALPHABET)}
    for user, row in rows:
        found = (place.get(letter, _UNKNOWN) for letter in row["text"].lower() + "\n")
        texts.setdefault(user, [place["\n"]]).extend(found)
    inputs, targets, owners = [], [], []
    for user, letters in texts.items():
        for start in range(0, len(letters) - 1, _PIECE):
            piece = letters[start : start + _PIECE + 1]
            missing = _PIECE + 1 - len(piece)
            inputs.append(piece[:-1] + [0] * missing)
            targets.append(piece[1:] + [_MISSING] * missing)
            owners.append(user)
    return UserPart(TensorDataset(torch.tensor(inputs), torch.tensor(targets)), tuple(owners))


def _encode_ratings(rows: _Rows, public: _Rows) -> UserPart:
    """Return film ids, by frequency among public users with all rare films as one, and ratings less 3.5."""
    often = Counter(int(row["movieId"]) for _, row in public)
    known = sorted(often, key=lambda film: (-often[film], film))[:_FILMS]
    place = {film: number for number, film in enumerate(known)}
    films = torch.tensor([place.get(int(row["movieId"]), _FILMS) for _, row in rows])
    ratings = torch.tensor([float(row["rating"]) - _MIDDLE for _, row in rows])
    return UserPart(TensorDataset(films, ratings), tuple(user for user, _ in rows))


def _binary_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.binary_cross_entropy_with_logits(model(batch[0])[..., 0], batch[1], reduction="none")


def _letter_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    inputs, after = batch
    known = (after != _MISSING).to(torch.float32)
    right = model(inputs).log_softmax(-1).gather(-1, after.clamp(min=0)[..., None])[..., 0]
    mean: Tensor = -(right * known).sum(-1) / known.sum(-1).clamp(min=1)
    return mean


def _square_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    error: Tensor = model(batch[0])[..., 0] - batch[1]
    return error.square()


def _measure_labels(logits: Tensor, labels: Tensor) -> dict[str, float]:
    return {"accuracy": ((logits[:, 0] > 0) == (labels > 0)).double().mean().item()}


def _measure_letters(logits: Tensor, after: Tensor) -> dict[str, float]:
    known = after != _MISSING
    bits = F.cross_entropy(logits.double().flatten(0, 1), after.flatten(), ignore_index=_MISSING).item() / math.log(2)
    return {"accuracy": (logits.argmax(-1) == after)[known].double().mean().item(), "bits_per_letter": bits}


def _measure_ratings(predicted: Tensor, ratings: Tensor) -> dict[str, float]:
    return {"root_mean_squared_error": (predicted[:, 0] - ratings).square().double().mean().sqrt().item()}


PROBLEMS: Mapping[str, UserProblem] = {
    "sent140": UserProblem(
        _table, _encode_tweets, _build_bag_model, _binary_loss, _measure_labels,
        lambda labels: labels.mean().logit()[None],
    ),
    "shakespeare": UserProblem(
        _lines, _encode_speeches, lambda: _Lookup(_LETTERS, _LETTERS), _letter_loss, _measure_letters,
        lambda after: torch.bincount(after[after != _MISSING], minlength=_LETTERS).double().clamp(min=0.5).log(),
    ),
    "movielens": UserProblem(
        _table, _encode_ratings, lambda: _Lookup(_FILMS + 1, 1, _OTHERS), _square_loss, _measure_ratings,
        lambda ratings: ratings.mean()[None],
    ),
}  # fmt: skip
