"""The default loss of a model of transformers: cross entropy of each example's own labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from privet.errors import InvalidArgumentError

IGNORED = -100
# These generate text, and yet the host compares a label with the prediction at its own position.
_UNSHIFTED = ("flaubert", "xlm", "xlnet")


def predicts_next_token(model: Any) -> bool:
    """Return whether the label of a position is compared with the prediction one position earlier.

    Models that generate text do so, unless they have a decoder of their own, whose input is shifted instead.
    """
    config = getattr(_base(model), "config", None)
    return _generates(model) and not _has_decoder(model) and getattr(config, "model_type", None) not in _UNSHIFTED


def label_loss(shifted: bool) -> Callable[[nn.Module, Any], Tensor]:
    """Return a loss for models of transformers: (model, batch) → (B,), the mean cross entropy over an example's own labels.

    The batch is a dict with `labels`, (B,) classes or (B, L) token ids, and the model's other inputs. Labels of −100, such as
    those of a prompt or of padding, do not count; the loss of an example without labels is 0. Losses of a whole batch that a
    model adds, such as those that balance experts, are left out. With `shifted`, as for `predicts_next_token`.

    Guarantee:
        The number of labels, which is private, divides only the loss of its own example.
    """

    def loss(model: nn.Module, batch: Any) -> Tensor:
        labels = batch.get("labels") if isinstance(batch, dict) else None
        if not isinstance(labels, Tensor) or labels.is_floating_point():
            found = labels.dtype if isinstance(labels, Tensor) else type(labels).__name__
            allowed = "given for this data set"
            fix = (
                "The default needs items with 'labels' that are whole numbers; for other tasks, such as regression, pass a "
                "function (model, batch) → one loss per example."
            )
            raise InvalidArgumentError("loss_fn", f"left out for labels of type {found}", allowed, fix)
        logits = _logits(model(**_inputs(model, batch))).float()
        if shifted:
            # Prompt tuning puts positions in front, which have no labels; the last of them predicts the first token.
            labels = labels[:, max(labels.shape[1] + 1 - logits.shape[1], 0) :]
            logits = logits[:, -labels.shape[1] - 1 : -1]
        if logits.shape[:-1] != labels.shape or logits.shape[-1] == 1:
            given = f"left out for labels of shape {tuple(labels.shape)} and logits of shape {tuple(logits.shape)}"
            fix = (
                "The default needs one label for each prediction among several classes; for other tasks, such as regression, "
                "several labels at once or speech, pass a function (model, batch) → one loss per example."
            )
            raise InvalidArgumentError("loss_fn", given, "given for this model", fix)
        each = F.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="none", ignore_index=IGNORED)
        rows = labels.shape[0], -1
        return each.reshape(rows).sum(1) / (labels != IGNORED).reshape(rows).sum(1).clamp(min=1)

    return loss


def _base(model: Any) -> Any:
    """Return the model within an adapter, or the model."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _generates(model: Any) -> bool:
    return bool(getattr(_base(model), "can_generate", lambda: False)())


def _has_decoder(model: Any) -> bool:
    return bool(getattr(getattr(_base(model), "config", None), "is_encoder_decoder", False))


def _inputs(model: Any, batch: dict[str, Any]) -> dict[str, Any]:
    """Return the model's inputs: without labels, unless only the model itself can make its decoder's input from them."""
    inputs = {name: value for name, value in batch.items() if name != "labels"}
    # Models that classify with encoder and decoder make the decoder's input from their own.
    if _generates(model) and _has_decoder(model) and inputs.keys().isdisjoint(("decoder_input_ids", "decoder_inputs_embeds")):
        shift = getattr(_base(model), "prepare_decoder_input_ids_from_labels", None)
        inputs |= {"labels": batch["labels"]} if shift is None else {"decoder_input_ids": shift(labels=batch["labels"])}
    return inputs


def _logits(outputs: Any) -> Tensor:
    """Return the logits of a model's outputs; a user's own model may return a dict."""
    found = outputs.get("logits") if isinstance(outputs, Mapping) else getattr(outputs, "logits", None)
    if not isinstance(found, Tensor):
        given = f"left out for a model that returns a {type(outputs).__name__} without logits"
        fix = "The default needs outputs with 'logits'; pass a function (model, batch) → one loss per example."
        raise InvalidArgumentError("loss_fn", given, "given for this model", fix)
    return found
