"""A `Trainer` of transformers whose training steps are private; evaluation, callbacks, schedules and saving stay the host's.

The host iterates over empty batches, one for each step of the plan. In its training step, Privet samples, reads, clips and
noises, and leaves the release in `.grad`; the host's optimizer and scheduler take the step.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import json
import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, distributed, nn
from torch.utils.data import DataLoader, Dataset

from privet._utils.files import write_atomically, write_text
from privet.collate import Collate
from privet.distributed.world import ALONE, World, count_processes
from privet.errors import InvalidArgumentError, LedgerError, PrivetError, PrivetWarning
from privet.gradients.core.losses import LossFunction
from privet.integrations.transformers import arguments, padding
from privet.integrations.transformers.arguments import Refused
from privet.integrations.transformers.label_loss import label_loss, predicts_next_token
from privet.plan import Plan
from privet.reading.batches import BatchDataset, check_dataset, check_map_style
from privet.training import Reading, Step, Storage, Training
from privet.training.directory import check_plan, holds_run
from privet.training.together import begin_together
from privet.units import grouped

try:
    from accelerate.optimizer import AcceleratedOptimizer
    from transformers import Trainer
    from transformers.trainer_utils import get_last_checkpoint
except ImportError:
    raise ImportError(
        "privet.integrations.transformers needs transformers and accelerate; run: pip install 'privet[transformers]'"
    ) from None

# The host computes these from zero losses or from noised gradients, under names that promise something else.
_MEANINGLESS = ("loss", "train_loss", "grad_norm")
_NEVER = 2**31 - 1
_RUNS_UNCOMPILED = (
    "the model is compiled; it is trained, evaluated and saved uncompiled, because a compiled graph hides where parameters are "
    "used. Pass the module that you compiled"
)
_SHORT = 25  # tokens of a made-up example, which padding to multiples of 16 lengthens
_PADDING_CHANGES = (
    "padding changes the gradient of a made-up example (it is on the left and shifts positions, or the model takes the last "
    "token for the end of the text because its config has no pad_token_id), so each example is computed at its own length. "
    "That takes more passes: set config.pad_token_id, or the tokenizer's padding_side to 'right'; or pad_to_multiple_of=1 of the "
    "data collator, which says so"
)
PRIVACY = "privacy.json"
STATE = "privet_state.pt"


class PrivateTrainerMixin:
    """Makes the training of a subclass of `transformers.Trainer` private: `class Mine(PrivateTrainerMixin, MyTrainer)`.

    Arguments are those of the trainer, and these. Arguments that would void the guarantee are refused by name.

    Args:
        plan: plan with known noise and steps; `max_steps` follows from it.
        loss_fn: (model, batch) → (B,) losses, one per example; by default, the mean cross entropy over the example's own labels.
            Labels of −100 do not count. For `privet.units.Users` or `Groups`, a `grouped` loss; by default, that of this one.
        ledger: directory of the run, or a `privet.Storage`; None keeps the ledger in memory, and training cannot be resumed.
        reading: what the check before the first step uses; by default, with `dataloader_num_workers` as its workers.
        adopt: resume a run of another machine, or from before this one rebooted; see `Training.resume`.

    Attributes:
        training: the `privet.Training` of the last call of `train`; None before its first step.

    Guarantee:
        As for `privet.Training`, which takes all steps: the host gets empty batches, losses of zero, and noised gradients. So
        nothing that it logs or saves depends on the training data in another way. Data for evaluation are not covered. Several
        processes, started by `torchrun` or `accelerate launch`, take each step together; see `privet.distributed.World`.
    """

    refused: ClassVar[Mapping[str, Refused]] = arguments.REFUSED
    # Of the host:
    accelerator: Any
    args: Any
    data_collator: Any
    eval_dataset: Any
    model: Any
    optimizer: Any
    state: Any
    train_dataset: Any

    def __init__(
        self,
        *args: Any,
        plan: Plan,
        loss_fn: LossFunction | None = None,
        ledger: str | Path | Storage | None = None,
        reading: Reading | None = None,
        adopt: bool = False,
        **kwargs: Any,
    ) -> None:
        # TrainingArguments make the group; if none were given, the host makes them.
        known = count_processes() == 1 or distributed.is_initialized()
        self._world = World.here() if known else ALONE
        with begin_together(self._world) if known else contextlib.nullcontext():
            if not isinstance(plan, Plan):
                raise InvalidArgumentError("plan", type(plan).__name__, "a privet.Plan")
            self.plan, self.loss_fn, self.ledger, self.reading, self.adopt = plan, loss_fn, Storage.of(ledger), reading, adopt
            self.training: Training | None = None
            self._releases: Iterator[Step] | None = None
            self._resumes = False
            self._pads = True
            self._checkpoint: Path | None = None
            arguments.check_overrides(type(self))
            bound = inspect.signature(super().__init__).bind_partial(*args, **kwargs)
            given = bound.arguments
            self._check_given(given)
            if "model" in given:
                given["model"] = _uncompiled(given["model"])
        super().__init__(*bound.args, **bound.kwargs)
        # A copy: what follows from this plan must not be read as a wish of the user when the arguments are used again.
        self.args = copy.copy(self.args)
        self._world = self._world if known else World.here()
        with begin_together(self._world):
            self._check_arguments()
            arguments.check_world(self.args, self._world.size)
            self._private.append(self.train_dataset)  # as the host has prepared it
            if self.train_dataset is not None:
                dataset, _, _ = self._private_parts()
                check_dataset(dataset, plan.examples, plan.unit)
        if self._world.size > 1:  # releases are alike in all processes, so nothing has to wrap the model to average gradients
            self.accelerator.prepare_model = partial(self.accelerator.prepare_model, evaluation_mode=True)

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """Take the steps of the plan, in the host's loop, and return what the host does; the training loss, private, is NaN.

        Args:
            resume_from_checkpoint: path of a checkpoint, or True for the last one in `output_dir`; for a run that was stopped
                before its first one, True begins again. Steps that were spent after the checkpoint stay spent, without a second
                update; the run ends at the plan's last step, with the schedule of that step.
            *args, **kwargs: as for the host.
        """
        with begin_together(self._world):
            found = self._find_checkpoint(resume_from_checkpoint)
        try:
            return super().train(found or None, *args, **kwargs)._replace(training_loss=math.nan)  # type: ignore[misc]
        finally:
            self._close()

    def _find_checkpoint(self, resume_from_checkpoint: str | bool | None) -> str | bool | None:
        """Return the checkpoint to resume from, and note it; refuse what would begin a run twice, or resume none."""
        self._check_arguments()
        used = self.ledger.folder is not None and holds_run(self.ledger.folder)
        if not resume_from_checkpoint and (used or self.training is not None):
            how = "continue it by train(resume_from_checkpoint=True)" if used else "without a directory, it cannot be continued"
            raise LedgerError(
                f"{self.ledger.folder or 'this trainer'} holds a run already; {how}. For a second training, whose ε adds to that "
                "of the first, create another trainer with another ledger"
            )
        if resume_from_checkpoint and not used:
            raise LedgerError(f"there is no run to resume: ledger is {self.ledger.folder}, which must be its directory")
        if used and self.ledger.folder is not None:
            check_plan(self.ledger.folder, self.plan)
        found = get_last_checkpoint(self.args.output_dir) if resume_from_checkpoint is True else resume_from_checkpoint
        self._resumes, self._checkpoint = used, Path(found) if found else None
        return found

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return empty batches, as many as an epoch of the plan has steps."""
        steps = max(1, round(self.plan.sampling.steps_per_epoch(self.plan.examples)))
        return DataLoader(range(steps), batch_size=1, collate_fn=_no_content)  # type: ignore[arg-type]

    def num_examples(self, dataloader: Any) -> int:
        """Return the plan's number of examples, for the empty batches of training, and the host's for other loaders."""
        if getattr(dataloader, "collate_fn", None) is _no_content:
            return self.plan.examples
        return super().num_examples(dataloader)  # type: ignore[misc, no-any-return]

    def get_total_train_batch_size(self, args: Any) -> int:
        """Return the plan's batch size, which the host prints and counts samples per second by."""
        return round(self.plan.sampling.expected_batch_size(self.plan.examples))

    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """Leave the noised gradient of the next step in `.grad`; return a loss of zero, because the true one is private.

        Without a step to take, `.grad` stays empty and the host's optimizer changes nothing: while the host repeats steps that
        were spent before it was interrupted, or that belong to an epoch whose partition was lost.
        """
        model.train()
        if callable(getattr(self.optimizer, "train", None)):  # schedule-free optimizers
            self.optimizer.train()
        if self._releases is None:
            self._open()
        assert self.training is not None
        assert self._releases is not None
        if self.training.steps_spent <= self.state.global_step:
            next(self._releases, None)
        return torch.zeros((), device=self.args.device)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log what the host has, without its loss and gradient norm, and with ε and δ of the steps spent so far."""
        for name in _MEANINGLESS:
            logs.pop(name, None)
        if self.training is not None:
            logs["epsilon"], logs["delta"] = self.training.epsilon(), self.plan.delta
        super().log(logs, start_time)  # type: ignore[misc]

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save as the host does, with the guarantee beside the weights, and the state to resume from in checkpoints."""
        super().save_model(output_dir, _internal_call)  # type: ignore[misc]
        if self.training is None or not self.args.should_save:
            return
        folder = Path(self.args.output_dir if output_dir is None else output_dir)
        write_privacy(folder, self.training)
        if folder.name == f"checkpoint-{self.state.global_step}" and not self.args.save_only_model:
            state = self.training.state_dict()
            write_atomically(folder / STATE, lambda path: torch.save(state, path))  # all of it was released

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Write the host's model card; its table of evaluations has columns for ε and δ."""
        log = self.state.log_history
        # The host names columns after what follows "eval_", and takes them from the first line, which may precede all steps.
        spent = [{f"eval_{name}": line.get(name, "No log") for name in ("epsilon", "delta")} for line in log]
        plain = [{name: value for name, value in line.items() if name not in ("epsilon", "delta")} for line in log]
        self.state.log_history = [line | more if "eval_loss" in line else line for line, more in zip(plain, spent, strict=True)]
        try:
            super().create_model_card(*args, **kwargs)  # type: ignore[misc]
        finally:
            self.state.log_history = log

    def evaluate(self, eval_dataset: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Evaluate as the host does, on data that are not those of the training."""
        self._check_public(self.eval_dataset if eval_dataset is None else eval_dataset)
        return super().evaluate(eval_dataset, *args, **kwargs)  # type: ignore[misc]

    def predict(self, test_dataset: Any, *args: Any, **kwargs: Any) -> Any:
        """Predict as the host does, for data that are not those of the training."""
        self._check_public(test_dataset, "test_dataset")
        return super().predict(test_dataset, *args, **kwargs)  # type: ignore[misc]

    def call_model_init(self, trial: Any = None) -> Any:
        """Return the model of `model_init`, as the host does; a compiled one is unwrapped, as for `model`."""
        return _uncompiled(super().call_model_init(trial))  # type: ignore[misc]

    def hyperparameter_search(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse to search: every trial would spend privacy that nobody counts."""
        raise PrivetError(
            "hyperparameter_search trains on the private data once per trial, and the choice among trials is a release of its "
            "own; use privet.tuning.search, which accounts for both"
        )

    def _private_parts(self) -> tuple[Dataset[Any], Collate | None, LossFunction]:
        loss_fn = label_loss(predicts_next_token(self.model)) if self.loss_fn is None else self.loss_fn
        if isinstance(self.train_dataset, BatchDataset):  # units, which collate their examples themselves
            return self.train_dataset, None, grouped(loss_fn) if self.loss_fn is None else loss_fn
        collate = padding.with_public_lengths(self.data_collator, self._longest_inputs()) if self._pads else self.data_collator
        if hasattr(self.train_dataset, "remove_columns"):
            return self._remove_unused_columns(self.train_dataset, description="training"), collate, loss_fn  # type: ignore[attr-defined]
        return self.train_dataset, self._get_collator_with_removed_columns(collate, description="training"), loss_fn  # type: ignore[attr-defined]

    def _longest_inputs(self) -> tuple[int, ...]:
        tokenizer = getattr(self.data_collator, "tokenizer", None) or getattr(self, "processing_class", None)
        others = getattr(self.data_collator, "max_length", None), getattr(self.args, "max_length", None)
        return padding.longest_inputs(self.model, tokenizer, *others)

    def _check_padding(self) -> None:
        """Compute examples at their own lengths if padding changes a made-up one; refuse lengths that the model cannot take."""
        dataset, collate, loss_fn = self._private_parts()
        reading = Reading() if self.reading is None else self.reading
        if collate is None or not reading.probe or (reading.probe_batch is not None and reading.spec is None):
            return
        try:
            like = dataset[0] if reading.spec is None else reading.spec
            limits = self._longest_inputs()
            short = padding.make_row(like, self.model, max(1, min([_SHORT, *(limit - 1 for limit in limits)])))
        except Exception:  # the check before the first step says what is wrong with the data
            return
        if short is None:
            return
        longest = getattr(self.args, "max_length", None)
        if type(longest) is int:
            long = padding.make_row(like, self.model, longest)
            padding.check_longest(f"{type(self.args).__name__}.max_length", self.model, loss_fn, collate, (short, long))
        coarse = self.accelerator.mixed_precision != "no"
        if not padding.pads_by_itself(self.data_collator) and padding.padding_changes(
            self.model, loss_fn, collate, short, coarse=coarse
        ):
            warnings.warn(_PADDING_CHANGES, PrivetWarning, stacklevel=2)
            self._pads = False

    def _open(self) -> None:
        """Create the training, or open it again at a checkpoint, whose model and optimizer the host has restored."""
        with begin_together(self._world):
            self._check_padding()
            dataset, collate, loss_fn = self._private_parts()
            reading = Reading(workers=self.args.dataloader_num_workers) if self.reading is None else self.reading
            state = None if self._checkpoint is None else read_state(self._checkpoint)
        outer = self.optimizer
        optimizer = outer.optimizer if isinstance(outer, AcceleratedOptimizer) else outer
        physical = self.args.per_device_train_batch_size
        options = {"collate": collate, "world": self._world, "physical_batch_size": physical, "reading": reading}
        # The host decides when to save.
        storage = replace(self.ledger, checkpoint_every=_NEVER)
        if self._resumes:
            storage = replace(storage, anchor=None, files={}, private={}, restore=False)
            training = Training.resume(storage, self.model, loss_fn, optimizer, dataset, adopt=self.adopt, **options)
            if state is not None:
                try:
                    training.load_state_dict(state)
                except BaseException:
                    training.close()
                    raise
        else:
            training = Training(self.plan, self.model, loss_fn, optimizer, dataset, storage, **options)
        self.training, self._releases = training, training.releases()

    def _close(self) -> None:
        """Return steps that were not taken to the ledger, and release it."""
        releases, self._releases = self._releases, None
        if releases is not None and self.training is not None:
            releases.close()  # type: ignore[attr-defined]
            self.training.close()

    def _check_given(self, given: dict[str, Any]) -> None:
        """Check arguments of the constructor, and change what the host gets, before it prepares data or writes files."""
        if (args := given.get("args")) is not None:
            arguments.check_arguments(args, self.refused)
            arguments.apply_plan(copy.copy(args), self.plan)
        if given.get("compute_loss_func") is not None:
            fix = (
                "It sees a whole batch, and num_items_in_batch counts the labels of all of it. Pass loss_fn, which returns one "
                "loss per example."
            )
            raise InvalidArgumentError("compute_loss_func", "given", "left out", fix)
        self._private = [given.get("train_dataset")]
        if self._private[0] is not None:
            check_map_style(self._private[0])
        self._check_public(given.get("eval_dataset"))

    def _check_arguments(self) -> None:
        arguments.check_arguments(self.args, self.refused)
        arguments.apply_plan(self.args, self.plan)
        arguments.check_precision(self.accelerator)
        arguments.check_processes(self.accelerator)
        if getattr(self, "is_model_parallel", False):
            raise InvalidArgumentError("model", "on several devices", "on one device", "Load it without device_map.")

    def _check_public(self, eval_dataset: Any, name: str = "eval_dataset") -> None:
        for each in eval_dataset.values() if isinstance(eval_dataset, dict) else [eval_dataset]:
            if each is not None and any(each is private for private in self._private):
                fix = "Results on the training set would be logged without noise."
                raise InvalidArgumentError(name, "the training set", "public data, or held-out data", fix)


class PrivateTrainer(PrivateTrainerMixin, Trainer):
    """`transformers.Trainer` with private training steps; see `PrivateTrainerMixin` for the arguments that it adds."""


def _no_content(indices: list[int]) -> dict[str, Any]:
    return {}


def _uncompiled(model: Any) -> Any:
    """Return the module within a compiled model, and any other model as it is.

    The host reads the signature of a compiled model, which names no column, and saves weights under names that `from_pretrained`
    does not know.
    """
    inner = getattr(model, "_orig_mod", None)
    if inner is None:
        return model
    warnings.warn(_RUNS_UNCOMPILED, PrivetWarning, stacklevel=4)
    return inner


def write_privacy(folder: Path, training: Training) -> Path:
    """Write the guarantee of all steps spent so far beside saved weights, and return the path of the file."""
    guarantee = training.guarantee()
    content = {
        "epsilon": guarantee.epsilon, "delta": guarantee.delta, "steps": guarantee.steps, "statement": str(guarantee),
        "guarantee": guarantee.to_dict(), "plan": training.plan.to_dict(),
    }  # fmt: skip
    return write_text(folder / PRIVACY, json.dumps(content, ensure_ascii=False, indent=2, default=str) + "\n")


def read_state(folder: Path) -> dict[str, Any]:
    """Return the state in a checkpoint, by a reader that only creates tensors and plain values."""
    path = folder / STATE
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise LedgerError(
            f"the checkpoint {folder} has no {STATE}: it was not saved by a private trainer, or with save_only_model=True, so "
            "which steps it contains is unknown. Resume from a checkpoint that has one"
        ) from None
    except Exception as error:  # for damaged bytes, torch raises many kinds
        raise LedgerError(f"{path} is damaged ({type(error).__name__}); resume from another checkpoint") from None
    return state
