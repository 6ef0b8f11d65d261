"""Checks of a host's arguments: what would void the guarantee, distort training, or disagree with the plan is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from privet.errors import InvalidArgumentError
from privet.plan import Plan
from privet.plan.mechanism import epochs

_OFF: tuple[Any, ...] = (None, False, 0, "", [], {}, "no")


@dataclass(frozen=True)
class Refused:
    """The values of an argument that private training allows, by default those that switch it off; and why it refuses others."""

    reason: str
    allowed: tuple[Any, ...] = _OFF

    def describe(self) -> str:
        """Return the allowed values in words."""
        return "left off" if self.allowed is _OFF else " or ".join(map(repr, self.allowed))


_WHOLE_MODEL = (
    "Each process holds the whole model and sums clipped gradients; nothing else may divide the model or add gradients."
)
_PRIVATE_NUMBERS = "It is computed from the private examples of a step, and would be published without noise."

# Arguments of transformers' TrainingArguments, in any version: what a version lacks is not looked at.
REFUSED: Mapping[str, Refused] = {
    "gradient_accumulation_steps": Refused(
        "The plan's sampling decides which examples a step has. per_device_train_batch_size limits memory use.", (1,)
    ),
    "auto_find_batch_size": Refused(
        "A step that runs out of memory is spent, and must not be repeated. Lower per_device_train_batch_size."
    ),
    "max_grad_norm": Refused(
        "The gradient of each example is clipped to the plan's bound. Clipping their noised sum again would only distort it. "
        "The host's default, 1.0, is read as 0.",
        (None, 0.0, 1.0),
    ),
    "label_smoothing_factor": Refused(
        "The host smooths the loss of a batch. Pass a loss_fn that smooths each example's: "
        "torch.nn.functional.cross_entropy(..., reduction='none', label_smoothing=...)."
    ),
    "include_num_input_tokens_seen": Refused(_PRIVATE_NUMBERS + " Leave it at 'no'."),
    "skip_memory_metrics": Refused(
        "The peak of memory use depends on the lengths of private examples, and would be logged.", (True,)
    ),
    "debug": Refused("It prints values of activations, which are those of private examples."),
    "fp16": Refused("Loss scaling inspects the gradients of all examples at once. Use bf16=True, which needs no scaling."),
    "half_precision_backend": Refused("Privet follows torch's autocast only.", ("auto", "cpu_amp", "cuda_amp")),
    "train_sampling_strategy": Refused("The plan's sampling draws the examples of every step.", ("random",)),
    "group_by_length": Refused("The plan's sampling draws the examples of every step. Pad to public lengths instead."),
    "dataloader_drop_last": Refused("The plan's sampling draws the examples of every step; no batch is dropped."),
    "data_seed": Refused("The guarantee needs a sample that nobody can predict; its randomness has no seed."),
    "torch_compile": Refused("A compiled graph hides where parameters are used, so training would run uncompiled."),
    "use_liger_kernel": Refused("Its fused kernels hide where parameters are used."),
    **dict.fromkeys(("deepspeed", "fsdp", "parallelism_config", "tpu_num_cores"), Refused(_WHOLE_MODEL)),
    "n_gpu": Refused(
        _WHOLE_MODEL + " Start one process for each GPU by torchrun, or make one visible: CUDA_VISIBLE_DEVICES=0.", (0, 1)
    ),
}

# Methods of a Trainer that private training does not call, or whose result must not reach the host.
_NOT_CALLED = {
    "compute_loss": "It would be given a whole batch. Pass loss_fn, which returns one loss per example, and compute_metrics for "
    "evaluation.",
    "training_step": "It would be given a whole batch. Pass loss_fn, which returns one loss per example.",
    "get_train_dataloader": "The plan's sampling draws the examples of every step. Change train_dataset or data_collator.",
    "_get_train_sampler": "The plan's sampling draws the examples of every step.",
    "get_batch_samples": "No batch of private examples reaches the host.",
}
# Each process on one device, in accelerate's words.
_REPLICATED = ("NO", "MULTI_CPU", "MULTI_GPU")
_HOSTS = ("transformers", "trl", "privet")


def check_arguments(args: Any, refused: Mapping[str, Refused] = REFUSED) -> None:
    """Refuse TrainingArguments that would void the guarantee or have no effect, by name and reason."""
    for name, rule in refused.items():
        value = getattr(args, name, rule.allowed[0])
        if not any(value == each for each in rule.allowed):
            raise InvalidArgumentError(f"{type(args).__name__}.{name}", value, rule.describe(), rule.reason)


def check_precision(accelerator: Any) -> None:
    """Refuse float16, which accelerate can be told by its environment, past the arguments."""
    if accelerator.mixed_precision == "fp16" or getattr(accelerator, "scaler", None) is not None:
        fix = REFUSED["fp16"].reason + " Its configuration and ACCELERATE_MIXED_PRECISION set it."
        raise InvalidArgumentError("mixed_precision of accelerate", accelerator.mixed_precision, "'no' or 'bf16'", fix)


def check_processes(accelerator: Any) -> None:
    """Refuse ways of working in several processes that accelerate can be told by its configuration, past the arguments."""
    found = str(accelerator.distributed_type.value)
    if found not in _REPLICATED or getattr(accelerator, "parallelism_config", None) is not None:
        allowed = "without FSDP, DeepSpeed and parallelism of tensors"
        fix = _WHOLE_MODEL + " Run accelerate config again, or start the script by torchrun."
        raise InvalidArgumentError("distributed_type of accelerate", found, allowed, fix)


def check_world(args: Any, size: int) -> None:
    """Refuse a host that takes each of several processes for the only one: all of them would write the same files."""
    if args.world_size != size:
        fix = "To train on CPUs, pass use_cpu=True: without it, accelerate counts one process where there is no GPU."
        allowed = f"the number of processes, {size}"
        raise InvalidArgumentError(f"{type(args).__name__}.world_size", args.world_size, allowed, fix)


def check_overrides(kind: type) -> None:
    """Refuse a subclass that overrides methods which private training does not call: they would be left out silently."""
    for each in kind.__mro__:
        if each.__module__.partition(".")[0] not in _HOSTS:
            for name in vars(each).keys() & _NOT_CALLED.keys():
                raise InvalidArgumentError(f"{each.__qualname__}.{name}", "an override", "left as it is", _NOT_CALLED[name])


def apply_plan(args: Any, plan: Plan) -> None:
    """Make steps and clipping of the host's arguments those of the plan, or refuse arguments that say otherwise."""
    kind = type(args).__name__
    steps, batch_size = plan.total_steps, plan.sampling.expected_batch_size(plan.examples)
    if args.max_steps > 0 and args.max_steps != steps:
        fix = "Leave it out: it follows from the plan."
        raise InvalidArgumentError(f"{kind}.max_steps", args.max_steps, f"the plan's number of steps, {steps}", fix)
    asked, usual = args.num_train_epochs, _default(args, "num_train_epochs")
    if args.max_steps <= 0 and (asked != usual or type(asked) is not type(usual)):  # 3 is asked for; 3.0 is the default
        meant = _steps_in(plan, asked)
        if meant != steps:
            allowed = f"as long as the plan, which has {steps} steps"
            fix = f"So many epochs are {meant} steps of this plan. Leave it out: it follows from the plan."
            raise InvalidArgumentError(f"{kind}.num_train_epochs", asked, allowed, fix)
    physical = args.per_device_train_batch_size
    if physical != _default(args, "per_device_train_batch_size") and physical > batch_size:
        allowed = f"at most the plan's batch size, {batch_size:g}"
        fix = (
            "It is the largest number of examples that the model is given at once, and only limits memory use. The plan's "
            "sampling decides how many examples a step has."
        )
        raise InvalidArgumentError(f"{kind}.per_device_train_batch_size", physical, allowed, fix)
    args.max_steps, args.max_grad_norm = steps, 0.0


def _default(args: Any, name: str) -> Any:
    return type(args).__dataclass_fields__[name].default


def _steps_in(plan: Plan, number: float) -> int:
    try:
        return replace(plan, steps=epochs(number)).total_steps
    except InvalidArgumentError:  # less than one step
        return 0
