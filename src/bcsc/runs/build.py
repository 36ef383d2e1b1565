"""A RunSpec becomes objects here and nowhere else."""

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer
from torch.utils.data import Dataset

from bcsc import models
from bcsc.data.dataset import DataSet, load
from bcsc.data.feeding import Feeder, evaluation_feeder, training_feeder
from bcsc.data.outliers import HUMAN, outliers_asked_for
from bcsc.data.registry import find_source
from bcsc.distributed.block_gradients import sum_before_steps
from bcsc.distributed.block_parallel import BlockParallel
from bcsc.distributed.collectives import Ranks
from bcsc.distributed.division import Division
from bcsc.errors import BcscError, InvalidArgumentError, UnsupportedOptimizerError, check_choice, in_one_line
from bcsc.optim.bases.refusals import refuse_base
from bcsc.optim.bases.trial import ready_to_step
from bcsc.optim.block_cyclic import BlockCyclic
from bcsc.optim.methods import METHODS, build_method
from bcsc.optim.sampler import BlockCyclicSampler
from bcsc.runs.batches import FeederData, LoaderData, length_of
from bcsc.runs.spec import RunSpec
from bcsc.training.checkpoint import unreadable_class_in
from bcsc.training.schedule import learning_rate
from bcsc.training.trainer import Data, LossFunction, Plan, SteppedOptimizer, Trainer

OPTIMIZERS: dict[str, type[Optimizer]] = {
    name.lower(): getattr(torch.optim, name) for name in torch.optim.__all__ if name[0].isupper()
}
OPTIMIZERS.pop("optimizer", None)
TAKE_ANOTHER = "Take another optimizer, or a loop of your own."


def build_run(spec: RunSpec, checkpoint_every: int | None, ranks: Ranks) -> tuple[Trainer, DataSet]:
    """The trainer of a run on one of our data sets, and the data set with what was corrupted."""
    device = check_device(spec.device)
    for name in ("method", "optimizer", "model"):
        check_setting(name, getattr(spec, name))
    dataset = load_data(spec, download=ranks.alone)
    source = dataset.source
    image_size = source.size if spec.model == "lenet4" else 32
    network: nn.Module = models.build(
        spec.model, source.num_classes, source.channels, image_size=image_size, dropout=spec.dropout, seed=spec.seed
    )
    network = with_batch_norm_as_asked(spec, network.to(device))
    optimizer, sampler = build_optimizer(spec, network, len(dataset.train_labels))
    data = FeederData(
        training_feeder(dataset, spec.seed, image_size=image_size, device=device),
        evaluation_feeder(dataset, image_size=image_size, device=device),
        sampler,
        sampler.batches_per_step,
        division_of(spec, ranks),
        overwrite=True,
    )
    plan = make_plan(spec, optimizer, F.cross_entropy, checkpoint_every, ranks)
    return Trainer(compiled_if_asked(spec, network), parallel_optimizer(spec, optimizer, ranks), data, plan), dataset


def check_setting(name: str, value: Any) -> None:
    """Refuse the name of something that is not there: a data set, network, method, optimizer or kind of outliers."""
    checks: Mapping[str, Callable[[Any], Any]] = {
        "data": find_source,
        "model": lambda model: check_choice("model", model, models.MODELS),
        "method": lambda method: check_choice("method", method, METHODS),
        "optimizer": find_optimizer,
        "outliers": outliers_asked_for,
        "device": check_device,
    }
    if name in checks:
        checks[name](value)


def build_own_run(
    spec: RunSpec,
    model: nn.Module,
    *,
    sets: tuple[Dataset[Any], Dataset[Any]],
    loss_fn: LossFunction,
    checkpoint_every: int | None,
    ranks: Ranks,
) -> Trainer:
    """The trainer of a run of the user's own network on the user's own data."""
    train, test = sets
    device = check_device(spec.device)
    model = with_batch_norm_as_asked(spec, model.to(device))
    optimizer, sampler = build_optimizer(spec, model, length_of(train))
    division = division_of(spec, ranks)
    batches_per_step = sampler.batches_per_step
    data: Data = (
        FeederData(train, test, sampler, batches_per_step, division)
        if isinstance(train, Feeder) and isinstance(test, Feeder)
        else LoaderData(train, test, sampler, batches_per_step, device=device, division=division)
    )
    plan = make_plan(spec, optimizer, loss_fn, checkpoint_every, ranks)
    return Trainer(compiled_if_asked(spec, model), parallel_optimizer(spec, optimizer, ranks), data, plan)


def division_of(spec: RunSpec, ranks: Ranks) -> Division:
    """What is this rank's: a part of each mini-batch, or some of the inner steps."""
    return Division(ranks.rank, ranks.size, by="steps" if spec.parallel == "blocks" else "samples")


def parallel_optimizer(spec: RunSpec, optimizer: BlockCyclic, ranks: Ranks) -> SteppedOptimizer:
    """The optimizer itself where there is one rank, else one that steps together with the other ranks."""
    if spec.parallel == "blocks":
        return BlockParallel(optimizer, ranks)
    if not ranks.alone:
        sum_before_steps(optimizer, ranks)
    return optimizer


def with_batch_norm_as_asked(spec: RunSpec, model: nn.Module) -> nn.Module:
    """The network, with BatchNorm over the mini-batches of all ranks if asked."""
    if not spec.sync_batch_norm:
        return model
    if torch.device(spec.device).type == "cpu":
        raise InvalidArgumentError(
            "sync_batch_norm needs an accelerator: torch's SyncBatchNorm does not run on the CPU. "
            "Leave it out, and BatchNorm normalises over each rank's part of the mini-batch."
        )
    synced: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
    return synced


def load_data(spec: RunSpec, *, download: bool = True) -> DataSet:
    """The data set, cut, corrupted and split as asked; several ranks must not fetch it at once."""
    outliers = outliers_asked_for(spec.outliers)
    dataset = load(spec.data, download=download)
    subset = len(dataset.train_labels) if spec.subset is None else spec.subset
    if outliers is not None and outliers.kind == HUMAN:  # the labels of the whole set, in its order
        dataset = dataset.with_outliers(outliers).first(subset)
    else:
        dataset = dataset.first(subset)
        dataset = dataset if outliers is None else dataset.with_outliers(outliers)
    return dataset if spec.validation is None else dataset.held_out(spec.validation, spec.seed)


def build_optimizer(spec: RunSpec, model: nn.Module, num_samples: int) -> tuple[BlockCyclic, BlockCyclicSampler]:
    """The method's optimizer around the base, and its sampler."""
    refuse_statistics_of_other_weights(base := build_base(spec, model), model)
    return build_method(
        spec.method,
        base,
        num_samples=num_samples,
        batch_size=spec.batch_size,
        num_blocks=spec.blocks,
        seed=spec.seed,
        mask=spec.mask,
        granularity=spec.granularity,
    )


def refuse_statistics_of_other_weights(base: Optimizer, model: nn.Module) -> None:
    """Refuse BatchNorm where other weights are evaluated than were trained, and its statistics gathered with."""
    if hasattr(base, "eval") and any(isinstance(layer, _BatchNorm) for layer in model.modules()):
        raise UnsupportedOptimizerError(
            f"{type(base).__name__} has other weights evaluated than it trains, and the statistics of BatchNorm are of "
            "those trained. Take a network without BatchNorm, such as lenet4, or a loop of your own that gathers them."
        )


def check_method(spec: RunSpec) -> None:
    """Refuse a method, an optimizer and a mask that do not go together, before there is a network."""
    stand_in = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    build_optimizer(replace(spec, blocks=min(spec.blocks, 2)), stand_in, num_samples=1)


def find_optimizer(name: str) -> type[Optimizer]:
    """One of torch.optim by its name, or that of any installed package by its place: ``package.module:Name``."""
    module_name, colon, kind_name = name.partition(":")
    if not colon:
        return OPTIMIZERS[check_choice("optimizer (or package.module:Name)", name.lower(), OPTIMIZERS)]
    try:
        kind: object = getattr(importlib.import_module(module_name), kind_name)
    except Exception as error:  # the module is not there, or whatever it raises while it is read
        reason = in_one_line(error)
        raise InvalidArgumentError(
            f"There is no optimizer {name} here: {reason}. Install its package first."
        ) from error
    if not (isinstance(kind, type) and issubclass(kind, Optimizer)):
        raise InvalidArgumentError(f"{name} is a {type(kind).__name__}, not a subclass of torch.optim.Optimizer.")
    return kind


def build_base(spec: RunSpec, model: nn.Module) -> Optimizer:
    """The optimizer, given what it takes of the recipe's rate, momentum and decay, and the options."""
    name, method = spec.optimizer.lower(), METHODS[check_choice("method", spec.method, METHODS)]
    kind, taken = checked_optimizer(spec)
    recipe = {"lr": spec.learning_rate, "momentum": spec.momentum, "weight_decay": spec.weight_decay}
    options: dict[str, Any] = {name: value for name, value in recipe.items() if name in taken and value is not None}
    unfused = any(spec.optimizer_options.get(name) for name in ("foreach", "differentiable"))
    if name == "sgd" and torch.device(spec.device).type == "cpu" and not unfused:
        options["fused"] = True  # one operation for the whole step: docs/performance.md
    options |= spec.optimizer_options
    try:
        base: Optimizer = kind(model.parameters(), **options)
        refuse_base(base, spec.mask, has_blocks=method.num_blocks(spec.blocks) > 1, **method.moves)
        try_out(partial(kind, **options), {p.dim() for p in model.parameters()})
    except BcscError:
        raise
    except Exception as error:  # optimizers check options here and there, some in the first step only
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidArgumentError(f"{kind.__module__}.{kind.__name__} refuses {options}: {reason}") from error
    return base


def checked_optimizer(spec: RunSpec) -> tuple[type[Optimizer], Mapping[str, inspect.Parameter]]:
    """The optimizer and what its signature takes, which must be all that the run gives it."""
    kind = find_optimizer(spec.optimizer)
    taken = inspect.signature(kind).parameters
    check_options(spec.optimizer_options, taken, f"{kind.__module__}.{kind.__name__}")
    return kind, taken


def check_options(options: Mapping[str, Any], taken: Mapping[str, inspect.Parameter], name: str) -> None:
    """Refuse options that the optimizer's signature does not have, and words or numbers for its switches."""
    takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in taken.values())
    for option, value in options.items():
        if not takes_any:
            check_choice(f"An option of {name}", option, list(taken)[1:])
        if option in taken and isinstance(taken[option].default, bool) and not isinstance(value, bool):
            raise InvalidArgumentError(f"The optimizer option {option} must be true or false, got {value!r}.")


def try_out(build: Callable[[list[nn.Parameter]], Optimizer], dimensions: set[int]) -> None:
    """Two steps on zeros of so many dimensions, the second with all the state; a run must be able to keep that."""
    parameters = [nn.Parameter(torch.zeros([2] * number)) for number in sorted(dimensions)]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizer = build(parameters)
    ready_to_step(optimizer)
    for _ in range(2):
        optimizer.step()
    name, kept = type(optimizer).__name__, unreadable_class_in(optimizer.state_dict())
    if "lr" not in optimizer.param_groups[0]:
        raise InvalidArgumentError(f"{name} has no learning rate (lr), which a run sets in every epoch. {TAKE_ANOTHER}")
    if kept is not None:
        reason = "which no checkpoint can be read with, as reading one runs no code"
        raise InvalidArgumentError(f"{name} keeps a {kept}, {reason}. {TAKE_ANOTHER}")


def make_plan(
    spec: RunSpec, optimizer: BlockCyclic, loss_fn: LossFunction, checkpoint_every: int | None, ranks: Ranks
) -> Plan:
    """How the trainer is to train."""
    start = float(optimizer.param_groups[0]["lr"])
    return Plan(
        epochs=spec.epochs,
        learning_rate=partial(_learning_rate, spec, start),
        loss_fn=loss_fn,
        seed=spec.seed,
        device=torch.device(spec.device),
        autocast=autocast_type(spec),
        checkpoint_every=checkpoint_every,
        ranks=ranks,
    )


def autocast_type(spec: RunSpec) -> torch.dtype | None:
    """The type to compute in where it is not float32, if this machine can."""
    if spec.precision == "fp32":
        return None
    if torch.device(spec.device).type == "cpu":
        from bcsc.training.precision import make_bfloat16_work

        make_bfloat16_work()
    return torch.bfloat16


def _learning_rate(spec: RunSpec, start: float, epoch: int) -> float:
    return learning_rate(spec.schedule, start, epoch, spec.epochs)


def compiled_if_asked(spec: RunSpec, model: nn.Module) -> nn.Module:
    """The model, compiled in place if asked: the names in its state stay the same."""
    if spec.compile:
        model.compile()
    return model


def check_device(name: str) -> torch.device:
    """The device, if torch can use it here."""
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError, ImportError) as error:
        reason = str(error).splitlines()[0].split(". ")[0].removesuffix(".")
        raise InvalidArgumentError(f"device {name!r} cannot be used here: {reason}. Take --device cpu.") from error
    return device
