"""Let a twin of an optimizer step small stand-ins for its parameters; neither it nor the parameters notice."""

import copy
import random
import warnings
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bcsc.seeding import stream

GENERATORS = (torch.Generator, random.Random)
HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")


class Trials:
    """Makes trials of a base, which all begin with the same numbers.

    They begin without state, as a base does, but for one that makes its state when it is built.

    Attributes:
        error: what goes wrong in a step, if something does.
    """

    def __init__(self, base: Optimizer) -> None:
        self._base, self._with_state = base, False
        self.error = failure(self._step)
        if self.error is not None and base.state:
            self._with_state = True
            self.error = failure(self._step)

    def new(self, **options: object) -> "Trial":
        """Begin a trial, with some options of the groups changed."""
        seed_generators(generators_of(self._base))
        return Trial(self._base, self._with_state, options)

    def _step(self) -> None:
        self.new().step(scale=1.0)


def failure(action: Callable[[], None]) -> Exception | None:
    """What goes wrong, if something does."""
    try:
        action()
    except Exception as error:  # of a base that nobody knows, it may be anything
        return error
    return None


class Trial:
    """A twin of a base, and the stand-ins that it steps."""

    def __init__(self, base: Optimizer, with_state: bool, options: Mapping[str, object]) -> None:
        parameters = {id(p): p for group in base.param_groups for p in group["params"] if p.requires_grad}
        generator = stream(0, "stand-ins")
        numbers = [torch.randn(2, *small_shape(p), generator=generator, device="cpu") for p in parameters.values()]
        pairs = [pair.to(numbers_on(p.device), p.dtype) for pair, p in zip(numbers, parameters.values(), strict=True)]
        self.stand_ins = [nn.Parameter(values) for values, _ in pairs]
        self.gradients = [gradient for _, gradient in pairs]
        self.twin = twin_of(base, dict(zip(parameters, self.stand_ins, strict=True)))
        if with_state:
            for p, stand_in in zip(parameters.values(), self.stand_ins, strict=True):
                entries = base.state.get(p, {}).items()
                self.twin.state[stand_in] = {name: state_of_stand_in(value, p, stand_in) for name, value in entries}
        for group in self.twin.param_groups:
            group.update({name: value for name, value in options.items() if name in group})
        ready_to_step(self.twin)

    def step(self, scale: float, num_idle: int = 0) -> None:
        """Make one step on the gradients, scaled; the first ``num_idle`` of several stand-ins have none."""
        for number, (p, gradient) in enumerate(zip(self.stand_ins, self.gradients, strict=True)):
            p.grad = None if number < num_idle < len(self.stand_ins) else gradient * scale
        step_unnoticed(self.twin)

    def steps(self, *scales: float) -> None:
        """Make some steps on the gradients, each scaled."""
        for scale in scales:
            self.step(scale)

    def step_with_closure(self) -> None:
        """Make one step that may compute gradients itself, as often as it likes."""

        @torch.enable_grad()
        def closure() -> Tensor:
            for p in self.stand_ins:
                p.grad = None
            loss = self._loss()
            torch.autograd.backward(loss)
            return loss.detach()

        closure()
        step_unnoticed(self.twin, closure)

    def step_with_graph(self) -> None:
        """Make one step on gradients that can be differentiated."""
        with torch.enable_grad():
            gradients = torch.autograd.grad(self._loss(), self.stand_ins, create_graph=True)
        for p, gradient in zip(self.stand_ins, gradients, strict=True):
            p.grad = gradient
        step_unnoticed(self.twin)

    def snapshot(self) -> tuple[list[Tensor], dict[Any, Any], list[dict[str, Any]]]:
        """Copy the stand-ins, the state and the options of the groups."""
        values = [p.detach().clone() for p in self.stand_ins]
        themselves = {id(p): p for p in self.stand_ins}
        state = copy.deepcopy(dict(self.twin.state), dict(themselves))
        return values, state, [copy.deepcopy(group, dict(themselves)) for group in self.twin.param_groups]

    def restore(self, snapshot: tuple[list[Tensor], dict[Any, Any], list[dict[str, Any]]]) -> None:
        """Go back to a snapshot."""
        values, state, groups = snapshot
        for p, value in zip(self.stand_ins, values, strict=True):
            p.data.copy_(value)
        self.twin.state.clear()
        self.twin.state.update(state)
        for group, options in zip(self.twin.param_groups, groups, strict=True):
            group.update(options)

    def _loss(self) -> Tensor:
        return torch.stack([p.abs().pow(3).sum().float() for p in self.stand_ins]).sum()


def numbers_on(device: torch.device) -> torch.device:
    """The device, or the CPU for one on which there are no numbers."""
    return torch.device("cpu") if device.type == "meta" else device


def small_shape(tensor: Tensor) -> list[int]:
    """As many dimensions, all of different lengths, so that no other shape is taken for it."""
    return [length if length < 2 else 2 + place for place, length in enumerate(tensor.shape)]


def state_of_stand_in(value: object, parameter: Tensor, stand_in: Tensor) -> object:
    """A corner of a tensor that has the parameter's shape, or a copy of anything else."""
    if not isinstance(value, Tensor) or value.shape != parameter.shape:
        return copy.deepcopy(value)
    for dimension, length in enumerate(stand_in.shape):
        places = torch.arange(length, device=value.device) % max(1, value.shape[dimension])
        value = value.index_select(dimension, places)
    return value.clone()


def ready_to_step(optimizer: Optimizer) -> None:
    """Put a schedule-free optimizer into the mode in which alone it steps; others have none."""
    getattr(optimizer, "train", lambda: None)()


def step_unnoticed(twin: Optimizer, *closure: Callable[[], Tensor]) -> None:
    """Make a step that no one is told of, not even hooks on all optimizers."""
    step: Any = type(twin).step
    (step.__wrapped__ if getattr(step, "hooked", False) else step)(twin, *closure)


@contextmanager
def without_trace(base: Optimizer) -> Iterator[None]:
    """Leave the global generators, of the CPU and of the parameters' accelerator, as they were; show no warnings."""
    devices = generators_of(base)
    kind = devices[0].type if devices else "cuda"
    with torch.random.fork_rng(devices, device_type=kind), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def generators_of(base: Optimizer) -> list[torch.device]:
    """The accelerators that parameters of the base are on; each has a generator beside that of the CPU."""
    accelerator = torch.accelerator.current_accelerator()
    devices = {p.device for group in base.param_groups for p in group["params"]}
    return [device for device in devices if accelerator is not None and device.type == accelerator.type]


def seed_generators(accelerators: list[torch.device]) -> None:
    """Seed the global generators of the CPU and of some accelerators, and no other: they are somebody's."""
    torch.default_generator.manual_seed(0)
    for device in accelerators:
        state = torch.Generator(device).manual_seed(0).get_state()
        torch.get_device_module(device.type).set_rng_state(state, device)


def twin_of(base: Optimizer, stand_ins: Mapping[int, Tensor]) -> Optimizer:
    """An optimizer of the base's class and settings, without state, for stand-ins, which go by the parameter's id."""
    return Twinning(stand_ins).twin(base)


class Twinning:
    """Copies an optimizer, with stand-ins in the place of its parameters; what is shared inside it stays shared."""

    def __init__(self, stand_ins: Mapping[int, Tensor]) -> None:
        self._copies: dict[int, Any] = dict(stand_ins)

    def twin(self, base: Optimizer) -> Optimizer:
        """Copy an optimizer, and those inside it."""
        twin: Optimizer = object.__new__(type(base))
        self._copies[id(base)] = twin
        of_no_parameter = ((key, self._copy(value)) for key, value in base.state.items() if not isinstance(key, Tensor))
        self._copies.setdefault(id(base.state), defaultdict(dict, of_no_parameter))
        groups = [self._group(group) for group in base.param_groups]
        self._copies.setdefault(id(base.param_groups), [group for group in groups if group["params"]])
        own = {name: value for name, value in vars(base).items() if name != "step"}  # a scheduler's wrapper
        vars(twin).update({name: OrderedDict() if name in HOOKS else self._copy(value) for name, value in own.items()})
        return twin

    def _group(self, group: dict[str, Any]) -> dict[str, Any]:
        """Copy a group with all its options, so that counting in them counts for nobody else."""
        known = [self._copies[id(p)] for p in group["params"] if id(p) in self._copies]
        options = {name: self._copy(value) for name, value in group.items() if name != "params"}
        copied: dict[str, Any] = self._copies.setdefault(id(group), {**options, "params": known})
        return copied

    def _copy(self, value: Any) -> Any:
        """Copy tensors, optimizers, containers and generators; anything else is the same object."""
        if id(value) not in self._copies:
            self._copies[id(value)] = self._new_copy(value)
        return self._copies[id(value)]

    def _new_copy(self, value: Any) -> Any:
        if isinstance(value, Optimizer):
            return self.twin(value)
        if isinstance(value, Tensor):
            return value.detach().clone()
        if type(value) in (list, tuple, set):
            return type(value)(self._copy(item) for item in value)
        if type(value) is deque:
            return deque((self._copy(item) for item in value), value.maxlen)
        if type(value) in (dict, OrderedDict, defaultdict):
            items = ((self._copy(key), self._copy(item)) for key, item in value.items())
            return defaultdict(value.default_factory, items) if type(value) is defaultdict else type(value)(items)
        return copy.deepcopy(value) if isinstance(value, GENERATORS) else value
