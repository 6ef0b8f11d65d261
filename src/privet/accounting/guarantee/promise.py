"""The promise in words: worst-case data, honest programs. Every statement repeats it."""

from __future__ import annotations

__all__ = ["NOT_COVERED", "PROGRAMS", "SETTING", "Promise", "promise_for"]

from dataclasses import dataclass

from privet.accounting.privacy_unit import Unit, find_unit

SETTING = "central (the trainer holds the raw data; only what is released is private)"
PROGRAMS = (
    "the data may have any values, lengths and labels, also ones made to break the training. The program is honest: model, loss, "
    "data set and hooks are written without intent to leak"
)
# What holds for every data set and every honest program. `{}` stands for what is counted, such as "example".
_BY_CONSTRUCTION = (
    "the gradient of each {0} depends on that {0} alone: reading, model and loss get one {0} at a time",
    "state that a pass changes is restored after it: modules and their buffers, objects that modules and hooks hold (two levels "
    "deep), and names that the loss closes over",
    "each {0} is clipped as a whole; if it raises an error, or its gradient is not finite, it contributes zero",
    "each {0} gets fresh random numbers in reading, model and loss; a seed in the program does not repeat them",
    "sampling, noise and accounting follow the plan; the ledger counts a step before its noise is drawn, so a crash can count "
    "too many steps, never too few",
)
_BY_CHECK = (
    "a loss that is not one number for each {0}, or that mixes {0}s: in-batch losses, mixup in the loss, batch normalisation in "
    "training mode",
    "a program that writes to parameters, keeps tensors of one {0}, or calls backward() itself",
    "a method whose gradients differ from those of plain autograd",
    "a data set that has another size or unit than the plan, or that holds an entry twice",
    "an optimizer, a scheduler or an average that carries state of earlier steps",
)
# Conditions on the program. A reader can check them in his own code.
_REMEMBERS_NOTHING = (
    "model, loss and data set remember nothing of one {0} outside modules, objects that modules hold (two levels deep) and names "
    "that the loss closes over"
)
_READS_ALONE = "reading entry i depends on i and on fresh randomness, and on nothing else"
_RULES_BY_ROW = "batching rules (of torch, of Privet, and your own) compute each {0} from its own row"
_ONE_ENTRY = {
    "one user": "no two entries hold data of the same user: no user has data under two ids",
    "": "no two entries hold the same person's data; a person with several entries is protected less, as a group of that size",
}
NOT_COVERED = (
    "programs that are written to leak what they read",
    "choices made by looking at the private data: hyperparameters, architecture, early stopping, which run to keep "
    "(privet.tuning.search makes such a choice under its own guarantee)",
    "evaluation on private data, and any other number computed from it outside the training steps",
    "side channels of the training machine, such as time and memory use",
    "an adversary who can read the memory, the disk or the console of the training process",
    "rounding errors within sums of floating-point gradients (the released sums themselves lie on a public grid)",
)


@dataclass(frozen=True)
class Promise:
    """What a training promises, as sentences about a privacy unit."""

    by_construction: tuple[str, ...]  # what holds for every data set and every honest program
    by_check: tuple[str, ...]  # what a check on public input refuses before the first step
    assumptions: tuple[str, ...]  # conditions on the program


def promise_for(protected: str | Unit) -> Promise:
    """Return the promise for a privacy unit."""
    counted = find_unit(protected).counted
    one_entry = _ONE_ENTRY.get(str(protected), _ONE_ENTRY[""])
    assumed = (_REMEMBERS_NOTHING, _READS_ALONE, _RULES_BY_ROW, one_entry)
    return Promise(*(tuple(text.format(counted) for text in texts) for texts in (_BY_CONSTRUCTION, _BY_CHECK, assumed)))
