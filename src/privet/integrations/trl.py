"""Private supervised fine-tuning in the loop of TRL's `SFTTrainer` (extra `trl`)."""

from __future__ import annotations

__all__ = ["PrivateSFTTrainer"]

import logging
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from torch.utils.data import Dataset

from privet.collate import Collate, Padded
from privet.errors import InvalidArgumentError, count
from privet.gradients.core.losses import LossFunction
from privet.integrations.transformers import PrivateTrainerMixin
from privet.integrations.transformers.arguments import REFUSED, Refused
from privet.integrations.transformers.label_loss import IGNORED
from privet.units import Users, grouped

try:
    import datasets
    from trl import SFTTrainer  # type: ignore[attr-defined]

    from privet.integrations.sft_rows import Rows, finish, unwrap
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

    Raises:
        InvalidArgumentError: packing, padding_free or another argument is refused, or disagrees with the plan.

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
            raise InvalidArgumentError(
                "SFTConfig.max_length", None, "a number with user_column",
                "The examples of a user are padded to this public length, so that they can be computed together.",
            )  # fmt: skip

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
        return Users(dataset, ids, self._user_cap, collate=whole), None, grouped(loss_fn)


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
