"""The table of models in the documentation: each architecture's method, and the cost of a private step.

python -m benchmarks.models_table docs/results/models.md
"""

from __future__ import annotations

import argparse
import datetime
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

import privet
from benchmarks.architectures import ARCHITECTURES, LLAMA, Architecture
from privet.cost import alternating, paired_ratio
from privet.errors import PrivetError, PrivetWarning

BATCH, ROUNDS, RATE = 16, 11, 1e-3


@dataclass(frozen=True)
class Row:
    """The measurements of one model.

    Args:
        name, model: what users call it, and its class.
        parameters: number of trained parameters.
        method: of the private step, or the reason for a refusal.
        plain: seconds of a plain step, median; processor time.
        ratio: seconds of a private over a plain step, median of paired rounds.
        start: seconds that creating the training takes, with the check.
    """

    name: str
    model: str
    parameters: int
    method: str
    plain: float
    ratio: float
    start: float


def measure(architecture: Architecture, rounds: int = ROUNDS, base: Architecture | None = None) -> Row:
    """Measure one architecture; plain and private steps alternate, with a model each.

    Args:
        architecture: of the private steps.
        rounds: number of steps of each kind.
        base: of the plain steps, if different.
    """
    model = architecture.build()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    number = sum(parameter.numel() for parameter in trained)
    plain = _plain_step((base or architecture).build(), architecture)
    began = time.process_time()
    try:
        steps, training = _private_steps(model, trained, architecture, rounds)
    except PrivetError as error:
        return Row(architecture.name, architecture.model, number, f"refused: {error}", float("nan"), float("nan"), float("nan"))
    start = time.process_time() - began
    taken = alternating({"plain": plain, "private": lambda: next(steps)}, rounds, time.process_time)
    ratio = paired_ratio(taken["private"], taken["plain"])
    method = training.method
    training.close()
    return Row(architecture.name, architecture.model, number, method, statistics.median(taken["plain"]), ratio, start)


def _plain_step(model: nn.Module, architecture: Architecture) -> Callable[[], object]:
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer, batch = torch.optim.AdamW(trained, lr=RATE), architecture.task.items(BATCH)

    def step() -> None:
        optimizer.zero_grad()
        architecture.task.loss(model, batch).mean().backward()
        optimizer.step()

    return step


def _private_steps(
    model: nn.Module, trained: list[nn.Parameter], architecture: Architecture, rounds: int
) -> tuple[Iterator[Any], privet.Training]:
    """Return the steps of a whole training: reading, clipping, secure noise, ledger, optimizer."""
    items = architecture.task.items(4 * BATCH)
    plan = privet.Plan(
        examples=4 * BATCH, sampling=privet.sampling.FixedSize(BATCH), steps=rounds + 2, delta=1e-5,
        clipping=privet.clipping.Flat(0.1), noise=privet.noise.Gaussian(1.0), adjacency="replace-one",
    )  # fmt: skip
    data, optimizer = torch.utils.data.TensorDataset(*items), torch.optim.AdamW(trained, lr=RATE)
    training = privet.Training(plan, model, architecture.task.loss, optimizer, data)
    return iter(training), training


def low_rank(model: nn.Module, **options: Any) -> nn.Module:
    from peft import LoraConfig, get_peft_model

    return get_peft_model(model, LoraConfig(r=8, target_modules=["q_proj", "v_proj"], **options))


def dora(model: nn.Module) -> nn.Module:
    return low_rank(model, use_dora=True)


def over_int8(model: nn.Module) -> nn.Module:
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    quantize_(model.model.layers, Int8WeightOnlyConfig())
    return low_rank(model)


def over_4_bits(model: nn.Module) -> nn.Module:
    return low_rank(_quantised(model, load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32))


def over_8_bits(model: nn.Module) -> nn.Module:
    return low_rank(_quantised(model, load_in_8bit=True))


def _quantised(model: nn.Module, **options: Any) -> nn.Module:
    """Return the model as bitsandbytes loads it."""
    from transformers import BitsAndBytesConfig

    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        config = BitsAndBytesConfig(**options)
        return type(model).from_pretrained(folder, quantization_config=config, device_map="cpu")


def in_bfloat16(model: nn.Module) -> nn.Module:
    return model.to(torch.bfloat16)


def low_rank_over_bfloat16(model: nn.Module) -> nn.Module:
    adapted = low_rank(model.to(torch.bfloat16))
    for parameter in adapted.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
    return adapted


def checkpointed(model: nn.Module) -> nn.Module:
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model


ADAPTED = [
    replace(LLAMA, name=name, adapt=adapt)
    for name, adapt in {
        "Llama, LoRA": low_rank,
        "Llama, DoRA": dora,
        "Llama, LoRA over a bfloat16 base": low_rank_over_bfloat16,
        "Llama, LoRA over 8 bits (torchao)": over_int8,
        "Llama, LoRA over 4 bits (bitsandbytes, NF4)": over_4_bits,
        "Llama, LoRA over 8 bits (bitsandbytes)": over_8_bits,
        "Llama, all parameters bfloat16": in_bfloat16,
        "Llama, gradient checkpointing": checkpointed,
    }.items()
]


def compiled(model: nn.Module) -> nn.Module:
    wrapped: nn.Module = torch.compile(model)
    return wrapped


def compiled_in_place(model: nn.Module) -> nn.Module:
    model.compile()
    return model


COMPILED = [
    LLAMA,
    replace(LLAMA, name="Llama, `torch.compile(model)`", adapt=compiled),
    replace(LLAMA, name="Llama, `model.compile()`", adapt=compiled_in_place),
]

_PAGE = """\
# Models

{count} architectures of transformers {transformers} with small random weights: most have two layers of width 128. A
batch is {batch} texts of {words} words, images of {pixels}×{pixels} or sounds of {samples} samples. `make models-table`
writes this page.

A plain step is forward, backward and AdamW. A private step is one of `privet.Training`: reading, per-example
gradients, clipping, secure noise, ledger, AdamW. The ratio is the median of {rounds} rounds, in which plain and
private steps alternate. Times are processor times of one thread, torch {torch}, {date}.
The server was shared and busy: two runs of this table differed by 2 % in the median row, by up to 9 % in the others
and by 20 % in one (Mamba). In such small models the fixed cost of a pass and the noise for each parameter weigh more
than in large ones ([the cost of larger models](gradients.md)).

The method "ghost" takes many examples in one pass, "loop" one at a time ([the engine](../engine.md)). BLOOM has an
autograd function of its own, which takes the loop. Mixtures of experts are trained as they come, with torch's
grouped products.

{architectures}

## Adapters, quantised bases and precision

A 4-bit or 8-bit base is frozen; the adapters are float32. bitsandbytes' 8-bit layers have an autograd function of
their own and take the loop. Parameters in bfloat16 are trained with float32 masters, but for the plain step, which
rounds its updates ([low precision](../guide/models.md#low-precision)).

{adapted}

## Compiled models

Private steps run compiled models uncompiled, and say so once. Nothing is compiled, so a training with a compiled
model starts and steps as fast as with a plain one. "Start" is the time to create the training, with the check on
public input. The plain step is that of the model that is not compiled.

{compiled}
"""


def page(architectures: Iterable[Row], adapted: Iterable[Row], of_compiled: Iterable[Row], rounds: int = ROUNDS) -> str:
    """Return the page."""
    import transformers

    from benchmarks.architectures import PIXELS, SAMPLES, WORDS

    rows = list(architectures)
    return _PAGE.format(
        count=len(rows), transformers=transformers.__version__, words=WORDS, pixels=PIXELS, samples=SAMPLES, batch=BATCH,
        rounds=rounds,
        torch=torch.__version__.partition("+")[0], date=f"{datetime.date.today():%d %B %Y}".lstrip("0"),
        architectures=_table(rows), adapted=_table(adapted), compiled=_start_table(of_compiled),
    )  # fmt: skip


def _table(rows: Iterable[Row]) -> str:
    lines = ["| model | class | trained parameters | method | plain step | private / plain |", "|---|---|---|---|---|---|"]
    for row in rows:
        cost = "— | —" if row.plain != row.plain else f"{1e3 * row.plain:.0f} ms | {row.ratio:.2f}"
        lines.append(f"| {row.name} | `{row.model}` | {row.parameters:,} | {row.method} | {cost} |")
    return "\n".join(lines)


def _start_table(rows: Iterable[Row]) -> str:
    lines = ["| model | start | plain step | private / plain |", "|---|---|---|---|"]
    lines += [f"| {row.name} | {row.start:.2f} s | {1e3 * row.plain:.0f} ms | {row.ratio:.2f} |" for row in rows]
    return "\n".join(lines)


def _measured(architectures: Iterable[Architecture], base: Architecture | None = None) -> list[Row]:
    rows = []
    for architecture in architectures:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows.append(measure(architecture, base=base))
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path, help="the page to write")
    path = parser.parse_args().path
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", PrivetWarning)
    measure(LLAMA, rounds=1)  # imports and compiles once per process
    path.write_text(page(_measured(ARCHITECTURES), _measured(ADAPTED), _measured(COMPILED, LLAMA)))


if __name__ == "__main__":
    main()
