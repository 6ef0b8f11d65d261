"""The default loss of a model of transformers: cross entropy of each example's own labels."""

from __future__ import annotations

__all__ = ["IGNORED", "label_loss", "predicts_next_token"]

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from privet.errors import InvalidArgumentError

IGNORED = -100


def predicts_next_token(model: Any) -> bool:
    """Return whether the label of a position is compared with the prediction one position earlier.

    Args:
        model: model of transformers, also within an adapter of peft. Models that generate text do so, unless they have a decoder
            of their own, whose input is shifted instead.
    """
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    generates = getattr(base, "can_generate", lambda: False)()
    return bool(generates) and not getattr(getattr(base, "config", None), "is_encoder_decoder", False)


def label_loss(shifted: bool) -> Callable[[nn.Module, Any], Tensor]:
    """Return a loss function for models of transformers: per example, the mean cross entropy over its own labels.

    Args:
        shifted: whether labels are compared with the predictions one position earlier; see `predicts_next_token`.

    Returns:
        (model, batch) → (B,) losses, where batch is a dict with `labels`, (B,) classes or (B, L) token ids, and the model's other
        inputs. Labels of −100, such as those of a prompt or of padding, do not count; the loss of an example without labels is 0.
        Losses of a whole batch that a model adds, such as those that balance experts, are left out.

    Guarantee:
        The number of labels, which is private, divides only the loss of its own example.

    Raises:
        InvalidArgumentError: at the check before the first step: there are no labels, or they are not whole numbers.
    """

    def loss(model: nn.Module, batch: Any) -> Tensor:
        labels = batch.get("labels") if isinstance(batch, dict) else None
        if not isinstance(labels, Tensor) or labels.is_floating_point():
            found = labels.dtype if isinstance(labels, Tensor) else type(labels).__name__
            raise InvalidArgumentError(
                "loss_fn", f"left out for labels of type {found}", "given for this data set",
                "The default needs items with 'labels' that are whole numbers; for other tasks, such as regression, pass a "
                "function (model, batch) → one loss per example.",
            )  # fmt: skip
        logits = model(**_inputs(model, batch)).logits.float()
        if shifted:
            # Prompt tuning puts positions in front, which have no labels.
            logits, labels = logits[:, -labels.shape[1] : -1], labels[:, 1:]
        each = F.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="none", ignore_index=IGNORED)
        rows = labels.shape[0], -1
        return each.reshape(rows).sum(1) / (labels != IGNORED).reshape(rows).sum(1).clamp(min=1)

    return loss


def _inputs(model: Any, batch: dict[str, Any]) -> dict[str, Any]:
    """Return the model's inputs: without labels, from which decoders make their input."""
    inputs = {name: value for name, value in batch.items() if name != "labels"}
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    if getattr(getattr(base, "config", None), "is_encoder_decoder", False) and "decoder_input_ids" not in inputs:
        inputs["decoder_input_ids"] = base.prepare_decoder_input_ids_from_labels(labels=batch["labels"])
    return inputs
