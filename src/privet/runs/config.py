"""Configuration of a run apart from its plan: data, public examples, network and optimizer by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import TensorDataset

from privet import data, models
from privet._utils.tensors import check_device
from privet.accounting.privacy_unit import Unit, group_unit
from privet.artifact import Architecture
from privet.clipping import GEP, Rule
from privet.data import DataSet
from privet.data.loading import load_for_run
from privet.data.sets.dead_leaves import DEVIATION, MEAN, dead_leaves
from privet.errors import InvalidArgumentError, between, choice, count, positive, real
from privet.gradients.core.losses import LossFunction
from privet.models.networks import check_task
from privet.optim import NAG, SGLD, AdamBC, GaussianPrior, UncorrectedAdam, coupled_learning_rate, sgld_learning_rates
from privet.plan import Plan
from privet.runs.division import Division, divide, sizes
from privet.runs.tasks import Task, network_options, normalise_priors, scale_targets, task_of
from privet.tables import Schema
from privet.units import Users, averaged, grouped
from privet.units.augmentations import augmentation

DEAD_LEAVES = "dead-leaves"
# Made-up images, of which a step draws its anchors.
_IMAGES = 2000
_PALEST = 0.4  # smallest factor of a channel in a made-up colour


@dataclass(frozen=True)
class Setup:
    """The settings of a run that do not affect its guarantee, as stored in `run.json`.

    Args:
        data: name in the catalogue, or a path to a table or an .npz file.
        optimizer_options: further arguments of the optimizer, such as {"weight_decay": 0.01}; those of "sgld" are `diffusion`,
            `burn_in`, `thinning`, `keep` and `prior`, the standard deviation of a normal prior.
        momentum: momentum of "sgd", "heavy-ball" and "nesterov", in [0, 1).
        couple_learning_rate: scale the learning rate to keep η·σ·C constant under schedules of bound and noise.
        average: "uniform" or "ema" to evaluate and save an average of the parameters over the steps; or None.
        seed: seed of the initial parameters, which are public.
        folder: folder with the files of the data set, instead of fetching them.
        schema: path to the schema of a table, as it was given; a resumed run takes the schema of its plan instead.
        classes: for an .npz file: the number of classes, or their names in order, separated by commas.
        test: path to a file of public test data, for a file.
        user_column: array of an .npz file with the user of each example; users are then the unit of privacy, as with a column
            of users in a schema.
        user_cap: largest number of examples used per user, ≥ 1; with users.
        group_size: number of examples that are sampled and clipped as one unit, ≥ 1; for "replace-one" adjacency.
        views: number of augmented views of an example, averaged before clipping, ≥ 1; with `augment`.
        augment: names from `privet.units.AUGMENTATIONS`, separated by commas.
        license: identifier of the model's licence for its card, such as "apache-2.0"; None leaves it out.
        purpose: what the model is for, in your own words; statement and card repeat it.
        holdout: fraction of the private examples, or users, that no step uses and on which the final model's result is released,
            in (0, 1); the plan's `holdout` says with how much noise. None for no such release.
        class_priors: public class priors in the order of the classes, for a loss in which every class counts alike, in place of
            those of a schema.
        defaults: option → value of the settings that were not given but chosen from public facts, for the record.
    """

    command: ClassVar[str] = "train"

    data: str
    model: str
    learning_rate: float
    optimizer: str = "sgd"
    optimizer_options: dict[str, Any] = field(default_factory=dict)
    momentum: float = 0.9
    couple_learning_rate: bool = False
    average: str | None = None
    seed: int = 0
    physical_batch_size: int = 256
    folder: str | None = None
    schema: str | None = None
    classes: str | None = None
    test: str | None = None
    user_column: str | None = None
    user_cap: int | None = None
    group_size: int | None = None
    views: int | None = None
    augment: str | None = None
    device: str = "cpu"
    license: str | None = None
    purpose: str | None = None
    holdout: float | None = None
    class_priors: tuple[float, ...] | None = None
    defaults: dict[str, Any] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        choice("model", self.model, models.NAMES)
        choice("optimizer", self.optimizer, OPTIMIZERS)
        if self.average is not None:
            choice("average", self.average, AVERAGES)
        positive("learning_rate", self.learning_rate)
        if not 0 <= real("momentum", self.momentum) < 1:
            raise InvalidArgumentError("momentum", self.momentum, "at least 0 and below 1", "A typical value is 0.9.")
        count("seed", self.seed, minimum=0)
        count("physical_batch_size", self.physical_batch_size, fix="It limits memory use and does not change the result.")
        if self.holdout is not None:
            between("holdout", self.holdout, 0.0, 1.0, "Such as 0.2.")
        if self.class_priors is not None:
            object.__setattr__(self, "class_priors", normalise_priors(self.class_priors))
        self._check_units()
        check_device("device", self.device)

    def _check_units(self) -> None:
        for name in ("user_cap", "group_size", "views"):
            if getattr(self, name) is not None:
                count(name, getattr(self, name))
        if (self.views is None) != (self.augment is None):
            missing, given = ("views", "augment") if self.views is None else ("augment", "views")
            raise InvalidArgumentError(missing, None, f"given with {given}", f"Set both or neither of {missing} and {given}.")
        if self.user_cap is not None and self.group_size is not None:
            fix = "The unit is either a user or a group."
            raise InvalidArgumentError("group_size", self.group_size, "left out with user_cap", fix)

    def load_data(self, schema: Schema | None = None) -> DataSet:
        """Return the data set, after fetching it if necessary; a plan's schema takes the place of the file."""
        return load_data(self, schema)

    def _check_users(self, dataset: DataSet) -> None:
        if (dataset.users is None) != (self.user_cap is None):
            allowed = "left out for data without users" if dataset.users is None else "given for data with users"
            fix = 'Users are a column of the kind "user" in a schema, or the array user_column of an .npz file.'
            raise InvalidArgumentError("user_cap", self.user_cap, allowed, fix)

    def sizes(self, dataset: DataSet) -> tuple[int, int]:
        """Return the public numbers of entries that are trained on and that are held out: examples, users or groups."""
        self._check_users(dataset)
        return sizes(dataset, self.holdout, user_cap=self.user_cap, group_size=self.group_size)

    def divide(self, dataset: DataSet, key: str) -> Division:
        """Return the entries that are sampled and clipped as a whole, and those that are held out, by the run's secret key."""
        return divide(dataset, self.sizes(dataset)[1], key, user_cap=self.user_cap, group_size=self.group_size)

    @property
    def needs_key(self) -> bool:
        """Whether the division of the data is random: something is held out, or some of a user's examples are chosen."""
        return self.holdout is not None or self.user_cap is not None

    def task(self, dataset: DataSet, plan: Plan | None = None) -> Task:
        """Return what the run learns to predict; with a plan that counts classes, its loss adopts the released priors later."""
        known = () if dataset.schema is None else dataset.schema.priors
        priors = self.class_priors or (normalise_priors(known) if known else None)
        return task_of(dataset, priors, counted=plan is not None and plan.class_counts is not None)

    def build_loss(self, loss: LossFunction) -> LossFunction:
        """Return the loss per unit: the mean over the views of each example, and over the examples of the unit."""
        if self.views is not None and self.augment is not None:
            loss = averaged(loss, augmentation(*self.augment.split(",")), self.views)
        return loss if self.user_cap is self.group_size is None else grouped(loss)

    def load_public(self, plan: Plan, dataset: DataSet) -> TensorDataset | None:
        """Return the public examples that the plan's clipping rule names, or None for a rule without any."""
        if isinstance(plan.clipping, GEP) and (self.user_cap is not None or self.group_size is not None):
            fix = "Public examples are not divided into users or groups."
            raise InvalidArgumentError("clipping", "GEP", "another rule for users or groups", fix)
        return load_public(plan.clipping, dataset)

    def checkpoint_every(self, plan: Plan) -> int:
        """Return the number of steps from one checkpoint to the next."""
        return 100

    @property
    def privacy_unit(self) -> str | Unit:
        """The unit of privacy, for the plan."""
        if self.user_cap is not None:
            return Users.privacy_unit
        return "one example" if self.group_size is None else group_unit(self.group_size)

    @property
    def entries_at_once(self) -> int:
        """Number of units that go through the model at once within the physical batch size."""
        return max(1, self.physical_batch_size // ((self.user_cap or self.group_size or 1) * (self.views or 1)))

    def architecture(self, dataset: DataSet) -> Architecture:
        """Return the network for the public shape, task and schema of the data: a schema says which features are numbers."""
        options = network_options(self.model, dataset.schema)
        return Architecture(self.model, dataset.input_shape, self.task(dataset).outputs, options)

    def build_model(self, dataset: DataSet) -> nn.Module:
        """Return the network with initial parameters drawn from the seed."""
        check_task(self.model, self.task(dataset).name)
        if not dataset.train.tensors[0].is_floating_point():
            fix = "For text, use a recipe: privet reproduce --list."
            raise InvalidArgumentError("data", self.data, "a data set with numeric inputs", fix)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            return self.architecture(dataset).build().to(self.device)

    def build_optimizer(self, plan: Plan, model: nn.Module) -> torch.optim.Optimizer:
        """Return the optimizer over the model's parameters."""
        try:
            return OPTIMIZERS[self.optimizer](self, plan, model)
        except InvalidArgumentError:
            raise
        except (TypeError, ValueError) as error:  # raised by torch
            raise InvalidArgumentError(
                "optimizer_options", self.optimizer_options, f"options of {self.optimizer!r}", cause=f"{error}"
            ) from None

    def build_scheduler(self, plan: Plan, optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler | None:
        """Return the learning-rate scheduler, or None."""
        return coupled_learning_rate(optimizer, plan) if self.couple_learning_rate else None

    def build_average(self, model: nn.Module) -> AveragedModel | None:
        """Return the average of the model's parameters, or None."""
        return None if self.average is None else AVERAGES[self.average](model)


def load_data(described: Any, schema: Schema | None = None) -> DataSet:
    """Return the data that settings or options describe, with scaled targets; `schema` takes the place of the file's."""
    options = {name: getattr(described, name, None) for name in ("folder", "target", "classes", "test", "user_column")}
    return scale_targets(load_for_run(described.data, schema=schema or described.schema, **options))


def load_public(rule: Rule, dataset: DataSet) -> TensorDataset | None:
    """Return the public examples that a plan's rule names, or None for a rule without any.

    The name is that of a data set of the catalogue, the path of an .npz file, or "dead-leaves" for made-up images. Labels are
    drawn at random from a fixed seed, as in Yu et al. 2021, "Do Not Let Privacy Overbill Utility: Gradient Embedding Perturbation
    for Private Learning", section 4. Of the private data set, only shape, classes and pixel range are read.
    """
    if not isinstance(rule, GEP):
        return None
    if dataset.classes is None:
        fix = "In Python, pass public=... to privet.Training."
        raise InvalidArgumentError("clipping", "GEP", "another rule for a regression by name", fix)
    inputs = _make_images(dataset, max(_IMAGES, rule.anchors)) if rule.public == DEAD_LEAVES else _load(rule, dataset)
    if inputs.shape[1:] != dataset.input_shape:
        found = f"{rule.public!r} of shape {tuple(inputs.shape[1:])}"
        allowed = f"of shape {dataset.input_shape}"
        fix = "Public examples must look like the private ones to the model."
        raise InvalidArgumentError("clipping.public", found, allowed, fix)
    labels = torch.randint(dataset.classes, (len(inputs),), generator=torch.Generator().manual_seed(0), device="cpu")
    return TensorDataset(inputs, labels)


def _load(rule: GEP, dataset: DataSet) -> Tensor:
    path = rule.public.lower().endswith(".npz")
    found = data.load(rule.public, classes=dataset.classes) if path else data.load(rule.public)
    # A copy of a file elsewhere is not noticed: to compare the contents would make an error depend on them.
    if found.name == dataset.name and (not path or found.provenance == dataset.provenance):
        fix = "What gradients of private examples span is private, too."
        raise InvalidArgumentError("clipping.public", rule.public, "other data than those that are trained on", fix)
    return found.train.tensors[0]


def _make_images(dataset: DataSet, number: int) -> Tensor:
    """Return dead leaves (number, *input shape) on the scale of the data's pixels, in random colours."""
    shape = dataset.input_shape
    if len(shape) != 3 or shape[1] != shape[2] or dataset.pixel_range is None:
        raise InvalidArgumentError("clipping.public", DEAD_LEAVES, "another name", "These images are square, on a known scale.")
    black, white = dataset.pixel_range
    grey = dead_leaves(number, shape[1]) * DEVIATION + MEAN
    colours = torch.rand(number, shape[0], 1, 1, generator=torch.Generator().manual_seed(1), device="cpu")
    tinted = grey * (1 if shape[0] == 1 else _PALEST + (1 - _PALEST) * colours)
    return black + (white - black) * tinted


Build = Callable[[Setup, Plan, nn.Module], torch.optim.Optimizer]


def _optimizer(kind: Callable[..., torch.optim.Optimizer], *, has_momentum: bool = False, **options: Any) -> Build:
    def build(setup: Setup, plan: Plan, model: nn.Module) -> torch.optim.Optimizer:
        momentum = {"momentum": setup.momentum} if has_momentum else {}
        return kind(model.parameters(), lr=setup.learning_rate, **momentum, **options | setup.optimizer_options)

    return build


def _sgld(setup: Setup, plan: Plan, model: nn.Module) -> torch.optim.Optimizer:
    options = dict(setup.optimizer_options)
    prior = options.pop("prior", None)
    rates = sgld_learning_rates(plan, options.get("diffusion", 1.0))
    return SGLD(model.parameters(), rates, plan.examples, prior=None if prior is None else GaussianPrior(prior), **options)


# Name → function that builds the optimizer. The plan's noise determines the learning rate of Langevin dynamics (sgld). In the
# calibration paper's words, "sgd" with momentum is the heavy ball, "adam-uncorrected" is DP-Adam, and "nag" has growing momentum.
OPTIMIZERS: dict[str, Build] = {
    "sgd": _optimizer(torch.optim.SGD, has_momentum=True),
    "heavy-ball": _optimizer(torch.optim.SGD, has_momentum=True),
    "nesterov": _optimizer(torch.optim.SGD, has_momentum=True, nesterov=True),
    "nag": _optimizer(NAG),
    "adam": _optimizer(torch.optim.Adam),
    "adamw": _optimizer(torch.optim.AdamW),
    "adam-uncorrected": _optimizer(UncorrectedAdam),
    "adagrad": _optimizer(torch.optim.Adagrad),
    "rmsprop": _optimizer(torch.optim.RMSprop),
    "adam-bc": lambda setup, plan, model: AdamBC.of(plan, model, setup.learning_rate, **setup.optimizer_options),
    "sgld": _sgld,
}
AVERAGES: dict[str, Callable[[nn.Module], AveragedModel]] = {
    "uniform": AveragedModel,
    "ema": lambda model: AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.99)),
}
