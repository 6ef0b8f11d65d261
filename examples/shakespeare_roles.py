"""User-level privacy from end to end: a causal language model of plays, in which no role can be told to have taken part.

Each role is one user: everything that it says is sampled, clipped and hidden as one. The data are speeches, one JSON object a
line with the keys "user" and "text", plain or compressed by xz:

    python examples/shakespeare_roles.py shakespeare_roles.jsonl.xz --epsilon 8
"""

import argparse
import json
import lzma
import math
import random
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

import privet

# Public: the letters that the model knows, and the lengths to which text is cut.
ALPHABET = "\n abcdefghijklmnopqrstuvwxyz'.,;:?!-"
UNKNOWN, START, MISSING = len(ALPHABET), ALPHABET.index("\n"), -100
LETTERS = len(ALPHABET) + 1
LENGTH = 64


def read_speeches(path):
    """Return user → the letters of all speeches, as numbers; each speech ends with a line break."""
    place = {letter: number for number, letter in enumerate(ALPHABET)}
    text = Path(path).read_bytes()
    roles = {}
    for line in (lzma.decompress(text) if str(path).endswith(".xz") else text).decode().splitlines():
        speech = json.loads(line)
        letters = [place.get(letter, UNKNOWN) for letter in speech["text"].lower() + "\n"]
        roles.setdefault(speech["user"], [START]).extend(letters)
    return roles


def cut(roles):
    """Return pieces (N, LENGTH + 1) that overlap by one letter, the last one of a role padded, and the role of each."""
    starts = [(role, start) for role, letters in roles.items() for start in range(0, len(letters) - 1, LENGTH)]
    pieces = [roles[role][start : start + LENGTH + 1] for role, start in starts]
    padded = [piece + [MISSING] * (LENGTH + 1 - len(piece)) for piece in pieces]
    return torch.tensor(padded), [role for role, _ in starts]


class LanguageModel(nn.Module):
    """Predicts each letter from the ones before: a table of pairs, plus a hidden layer over the last few letters."""

    def __init__(self, context=4, width=32):
        super().__init__()
        self.pairs = nn.Linear(LETTERS, LETTERS)
        nn.init.zeros_(self.pairs.weight)
        nn.init.zeros_(self.pairs.bias)
        self.last = nn.Conv1d(LETTERS, width, context)
        self.output = nn.Linear(width, LETTERS, bias=False)

    def forward(self, letters):
        """Return the logits of the next letter after each, (B, L, LETTERS)."""
        known = F.one_hot(letters.clamp(min=0), LETTERS).float()
        before = F.pad(known.transpose(1, 2), (self.last.kernel_size[0] - 1, 0))  # nothing after a letter
        return self.pairs(known) + self.output(self.last(before).tanh().transpose(1, 2))


def loss_fn(model, batch):
    """Return the mean loss per letter of each piece, (B,)."""
    (pieces,) = batch
    after = pieces[:, 1:]
    losses = F.cross_entropy(model(pieces[:, :-1]).transpose(1, 2), after, reduction="none", ignore_index=MISSING)
    return losses.sum(1) / (after != MISSING).sum(1)


@torch.no_grad()
def evaluate(model, pieces):
    """Return the loss per letter in bits and the share of letters that were predicted right."""
    logits, after = model(pieces[:, :-1]), pieces[:, 1:]
    bits = F.cross_entropy(logits.transpose(1, 2), after, ignore_index=MISSING).item() / math.log(2)
    right = (logits.argmax(-1) == after)[after != MISSING].float().mean().item()
    return bits, right


@torch.no_grad()
def write(model, letters=200):
    """Return text that the model makes up."""
    written = [START]
    for _ in range(letters):
        probabilities = model(torch.tensor([written[-8:]]))[0, -1, : len(ALPHABET)].softmax(0)
        written.append(int(torch.multinomial(probabilities, 1)))
    return "".join(ALPHABET[number] for number in written[1:])


def main():
    """Train on most roles, and evaluate on others, which are taken to be public."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("speeches")
    parser.add_argument("--epsilon", type=float, default=8.0, help="inf trains without noise, and without privacy")
    parser.add_argument("--public", type=int, default=49, help="number of roles for evaluation")
    parser.add_argument("--pieces", type=int, default=8, help="most pieces of text that are used of a role")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--bound", type=float, default=0.2)
    parser.add_argument("--learning-rate", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0, help="of the initial weights and of the choice of public roles")
    options = parser.parse_args()

    roles = read_speeches(options.speeches)
    names = random.Random(options.seed).sample(sorted(roles), len(roles))
    public, _ = cut({name: roles[name] for name in names[: options.public]})
    pieces, owners = cut({name: roles[name] for name in names[options.public :]})
    users = privet.units.Users(torch.utils.data.TensorDataset(pieces), ids=owners, cap=options.pieces)

    # All roles take part in every step: with few users, large batches make the most of ε.
    plan = privet.Plan(
        examples=len(users),
        unit="one user",
        sampling=privet.sampling.Poisson(batch_size=len(users)),
        steps=options.steps,
        clipping=privet.clipping.Flat(bound=options.bound),
        delta=1 / (10 * len(users)),
        noise=privet.noise.Gaussian(0.0 if math.isinf(options.epsilon) else None, non_private=math.isinf(options.epsilon)),
    )
    if math.isfinite(options.epsilon):
        plan = plan.calibrate(epsilon=options.epsilon)

    torch.manual_seed(options.seed)
    model = LanguageModel()
    optimizer = torch.optim.SGD(model.parameters(), lr=options.learning_rate, momentum=0.9)
    training = privet.Training(plan, model, privet.units.grouped(loss_fn), optimizer, users, physical_batch_size=64)
    training.run(progress=True)

    bits, right = evaluate(model, public)
    print(training.guarantee())
    print(f"{len(users)} roles, ε = {training.epsilon():.2f}: {bits:.3f} bits per letter, {right:.1%} of letters right")
    print(write(model))


if __name__ == "__main__":
    main()
