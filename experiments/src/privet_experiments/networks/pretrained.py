"""Networks with pretrained weights from public data, on top of `privet_experiments.features`."""

from __future__ import annotations

__all__ = ["EFFICIENTNET_LAST_BLOCK", "MINILM_LAST_LAYER", "MINILM_LORA"]

from collections import OrderedDict

from torch import nn

from privet.errors import PrivetError, count
from privet.models.networks import Network
from privet.models.pretrained import minilm
from privet_experiments.features import efficientnet
from privet_experiments.features.minilm import last_layer

# Names of the encoder's layers that LoRA adapts: the projections that the authors found to matter most.
_ADAPTED = ["query", "value"]


def efficientnet_last_block(input_shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """Return the trainable last block and head of EfficientNet-Lite0 with a new classifier, for (192, 3, 3) features."""
    return nn.Sequential(OrderedDict(block=efficientnet.last_block(), output=nn.Linear(efficientnet.WIDTH, classes)))


def minilm_last_layer(input_shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """Return the trainable last layer of all-MiniLM-L6-v2 with a new classifier, for (48, 384) features."""
    return _classifier(last_layer(), classes)


def minilm_lora(input_shape: tuple[int, ...], classes: int, *, rank: int = 8) -> nn.Sequential:
    """Return all-MiniLM-L6-v2 with trainable low-rank adapters in its attention and a new classifier, for 48 tokens.

    Raises:
        PrivetError: peft is not installed.

    Source: Hu et al. 2022, "LoRA: low-rank adaptation of large language models".
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError:
        raise PrivetError("LoRA needs peft, which is not installed; run: pip install 'privet[transfer]'") from None
    network = minilm.pretrained()
    config = LoraConfig(r=count("rank", rank), lora_alpha=2 * rank, lora_dropout=0.0, target_modules=_ADAPTED)
    inject_adapter_in_model(config, network)
    return _classifier(network, classes)


def _classifier(network: nn.Module, classes: int) -> nn.Sequential:
    return nn.Sequential(OrderedDict(encoder=network.eval(), output=nn.Linear(minilm.WIDTH, classes)))


# Entry points `privet.networks`.
EFFICIENTNET_LAST_BLOCK = Network(efficientnet_last_block, shape=efficientnet.LAST_BLOCK_INPUT)
MINILM_LAST_LAYER = Network(minilm_last_layer, shape=(minilm.LENGTH, minilm.WIDTH))
MINILM_LORA = Network(minilm_lora, shape=(minilm.LENGTH,))
