"""Private supervised fine-tuning in the loop of TRL's `SFTTrainer` (extra `trl`)."""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, ClassVar

from torch.utils.data import Dataset

from privet.collate import Collate, Padded
from privet.errors import InvalidArgumentError, count
from privet.gradients.core.losses import LossFunction
from privet.integrations.transformers import PrivateTrainerMixin
from privet.integrations.transformers.arguments import REFUSED, Refused
from privet.integrations.transformers.label_loss import IGNORED
from privet.noise import SecureSource
from privet.units import Users, grouped

try:
    import datasets
    from trl import SFTTrainer  # type: ignore[attr-defined]
except ImportError:
    raise ImportError("privet.integrations.trl needs trl, which is not installed; run: pip install 'privet[trl]'") from None

_UNIT_IS_LOST = (
    "It joins texts of several people in one sequence, which is clipped as one, and cuts texts into several sequences, each of "
    "which gets the whole bound: no person is protected any more."
)
_REFUSED = {
    "packing": Refused(_UNIT_IS_LOST),
    "padding_free": Refused("It joins a batch in one sequence, and each example has to be computed by itself."),
    "activation_offloading": Refused("The host's hooks see no pass of the private steps. Lower per_device_train_batch_size."),
    "loss_type": Refused("Pass loss_fn for another loss.", ("nll",)),
}
_LOGGER = logging.getLogger("trl.trainer.sft_trainer")
_LOST = "privet_lost"
_LOGGERS = ("transformers.tokenization", "trl.")
_TURNS = {"prompt": (0,), "completion": (1,)}
_SPEAKERS = {"role": ("user", "assistant"), "from": ("human", "gpt")}
_TEXT = {"tools": "[]", "type": "text"}


class PrivateSFTTrainer(PrivateTrainerMixin, SFTTrainer):
    """`trl.SFTTrainer` with private training steps; see `PrivateTrainerMixin` for the arguments that it adds, and these.

    Chat templates, `completion_only_loss`, `assistant_only_loss` and `peft_config` work as in TRL: the loss of an example is the
    mean cross entropy over its own tokens that TRL does not mask. An example that cannot be prepared, because the chat template
    lacks a role or text is missing, keeps its place without labels, as do those whose tokens are all masked: `plan.examples` is
    the number of rows.

    Args:
        user_column: column with the id of the person who wrote an example, integers or strings: persons are then sampled and
            clipped as one, and the plan has `unit="one user"` and the number of persons as `examples`. None protects examples.
        user_cap: the most examples of a person that are used, ≥ 1, chosen once at random; see `privet.units.Users`.

    Guarantee:
        As for `PrivateTrainerMixin`, for examples or persons. TRL prepares an example by itself, so none depends on others, and
        nothing is raised, logged or dropped because of one: whether preparation fails is tried on a made-up row.
    """

    refused: ClassVar[Mapping[str, Refused]] = {**REFUSED, **_REFUSED}

    def __init__(self, *args: Any, user_column: str | None = None, user_cap: int | None = None, **kwargs: Any) -> None:
        self._user_column, self._user_cap = user_column, user_cap
        _LOGGER.addFilter(_without_text)
        try:
            super().__init__(*args, **kwargs)
        finally:
            _LOGGER.removeFilter(_without_text)

    def _prepare_dataset(
        self, dataset: Any, processing_class: Any, args: Any, packing: Any, formatting_func: Any, dataset_name: str
    ) -> Any:
        private = isinstance(dataset, Rows)
        if private and formatting_func is not None:
            formatting_func = partial(_format, formatting_func, dataset.made_up)
        return finish(super()._prepare_dataset(dataset, processing_class, args, packing, formatting_func, dataset_name))

    def _check_given(self, given: dict[str, Any]) -> None:
        super()._check_given(given)
        if isinstance(given.get("train_dataset"), datasets.Dataset) and given["train_dataset"].format["type"] != "custom":
            given["train_dataset"] = Rows.of(given["train_dataset"])
        if self._user_column is None:
            return
        count("user_cap", self._user_cap, fix="It is the most examples of a user that are used; each costs time at every step.")
        columns = getattr(given.get("train_dataset"), "column_names", [])
        if self._user_column not in columns:
            raise InvalidArgumentError("user_column", self._user_column, f"a column of the training set: {', '.join(columns)}")
        if getattr(given.get("args"), "max_length", 1) is None:
            fix = "The examples of a user are padded to this public length, so that they can be computed together."
            raise InvalidArgumentError("SFTConfig.max_length", None, "a number with user_column", fix)

    def _private_parts(self) -> tuple[Dataset[Any], Collate | None, LossFunction]:
        self.train_dataset = unwrap(self.train_dataset)  # if TRL has not prepared it
        dataset, collate, loss_fn = super()._private_parts()
        if self._user_column is None:
            return dataset, collate, loss_fn
        assert self._user_cap is not None
        # The prepared data set has the user's column still, in the order of its rows.
        ids = list(self.train_dataset[self._user_column])
        padding = {"input_ids": getattr(self.data_collator, "pad_token_id", 0), "labels": IGNORED}
        whole = Padded(lengths=(self.args.max_length,), value=padding, inner=collate)
        words = self._world.make_words("examples of users", SecureSource())  # in several processes, all choose the same
        return Users(dataset, ids, self._user_cap, collate=whole, words=words), None, grouped(loss_fn)


def _format(formatting_func: Any, made_up: Mapping[str, Any], row: Mapping[str, Any]) -> Any:
    """Return the text of a row; that of the made-up one is made up too, as a function of the user's may need real content."""
    return "a" if row == made_up else formatting_func(row)


def _without_text(record: logging.LogRecord) -> bool:
    """Leave the text of a private example out of a warning of TRL's, which quotes it."""
    if "left out of the training sequence" in str(record.msg):
        record.msg = (
            "The tokenized prompt of an example is not a prefix of its tokenized prompt and completion, so the end of the prompt "
            "is left out. Use a chat template that renders the prompt the same way in both, or end prompts on a token boundary."
        )
    return True


class Rows(datasets.Dataset):  # type: ignore[misc]
    """A data set whose iterator has one made-up row, and whose functions are run on each row by itself."""

    made_up: dict[str, Any]

    @classmethod
    def of(cls, dataset: datasets.Dataset, made_up: Mapping[str, Any] | None = None) -> Rows:
        """Return a data set as such rows, with a public made-up row of these columns; by default made from their types."""
        rows: Rows = copy.copy(dataset)
        rows.__class__ = cls
        found = {name: _make_up(name, feature) for name, feature in dataset.features.items()} if made_up is None else made_up
        rows.made_up = {name: value for name, value in found.items() if name != _LOST}
        return rows

    def __iter__(self) -> Iterator[Any]:
        # TRL looks at the first row only, to tell chats from text.
        yield copy.deepcopy(self.made_up)

    def map(self, function: Any = None, **options: Any) -> Rows:
        """Apply a function of one row. It raises if the function fails for the made-up row."""
        arguments = options.pop("fn_kwargs", None) or {}
        found = dict(function(copy.deepcopy(self.made_up), **arguments))
        # What the function leaves alone, such as the column of users, stays that of the row.
        instead = {name: value for name, value in found.items() if name not in self.made_up or self.made_up[name] != value}
        with _silenced():
            prepared = unwrap(self).map(partial(_prepare, function, arguments, instead), **options)
        removed = options.get("remove_columns") or ()
        removed = (removed,) if isinstance(removed, str) else removed
        kept = {name: value for name, value in self.made_up.items() if name not in removed}
        return Rows.of(prepared, {**kept, **found})

    def filter(self, *args: Any, **options: Any) -> Rows:
        """Return all rows: how many there are is public, and a row without labels contributes nothing."""
        return self


def unwrap(dataset: Any) -> Any:
    """Return rows as the plain data set that they are, and any other data set as it is."""
    if not isinstance(dataset, Rows):
        return dataset
    plain = copy.copy(dataset)
    plain.__class__ = datasets.Dataset
    return plain


def finish(rows: Any) -> Any:
    """Return prepared rows as a plain data set; those that could not be prepared have no labels."""
    plain = unwrap(rows)
    return plain.map(_without_labels, remove_columns=[_LOST]) if _LOST in (plain.column_names or ()) else plain


def _prepare(function: Any, arguments: Mapping[str, Any], instead: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    given = dict(row)
    lost = given.pop(_LOST, False)
    if not lost:
        try:
            found = dict(function(given, **arguments))
        except Exception:  # of this row alone: a role that the template lacks, no text, …
            lost = True
        else:
            # A sequence of no tokens has no type.
            lost = "input_ids" in found and not len(found["input_ids"])
    return {**(instead if lost else found), _LOST: lost}


def _without_labels(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"labels": [IGNORED] * len(row["labels"]) if row[_LOST] else row["labels"]}


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    """Drop what tokenizers and TRL log: it tells the length, or the text, of one row."""
    loggers = [logging.getLogger(name) for name in list(logging.root.manager.loggerDict) if name.startswith(_LOGGERS)]
    for each in loggers:
        each.addFilter(_never)
    try:
        yield
    finally:
        for each in loggers:
            each.removeFilter(_never)


def _never(record: logging.LogRecord) -> bool:
    return False


def _make_up(name: str, feature: Any) -> Any:
    if isinstance(feature, datasets.Value):
        if "string" in feature.dtype:
            return _TEXT.get(name, "a")
        kinds = {"bool": True, "int": 1, "uint": 1, "float": 1.0}
        return next((value for kind, value in kinds.items() if feature.dtype.startswith(kind)), None)
    if isinstance(feature, dict):
        return {key: _make_up(key, each) for key, each in feature.items()}
    inner = feature[0] if isinstance(feature, list) else getattr(feature, "feature", None)
    if inner is None or name == "tools":
        return None if inner is None else []
    for who, speakers in _SPEAKERS.items():
        if isinstance(inner, dict) and who in inner:
            said = "content" if who == "role" else "value"
            turn = {**dict.fromkeys(inner), said: _make_up(said, inner.get(said))}
            return [{**turn, who: speakers[one]} for one in _TURNS.get(name, (0, 1))]
    return [_make_up(name, inner)]
