"""The step of a base on a block in one pass over memory. ``bcsc.optim.masking`` is the general way, with the same bits.

Three bases are known. A loop is used after a check in this process: on numbers of all kinds it must give what the base
itself gives.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from operator import is_
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

from bcsc.choices import Mask
from bcsc.kernels.passes import Pieces, checked, compiled_loops, run_shared, same_numbers
from bcsc.optim.fast.adam import AdamRecipe
from bcsc.optim.fast.layout import LABELS, Layout, layout_of
from bcsc.optim.fast.sgd import SgdRecipe
from bcsc.optim.partition import EpochBlocks
from bcsc.seeding import stream

Recipe = SgdRecipe | AdamRecipe
RECIPES: Mapping[type[Optimizer], type[Recipe]] = {SGD: SgdRecipe, Adam: AdamRecipe, AdamW: AdamRecipe}

NUMBERS = {torch.float32: np.float32, torch.float64: np.float64}
WIDTHS = (1, 2, 4, 8, 16)  # scalars in a register of torch's fused step; 1 where all are rounded alike
SPECIAL = (0.0, -0.0, 1.0, float("inf"), -float("inf"), float("nan"), 1e-40, 3e38)


class Pass(NamedTuple):
    """A loop with what it is given, the parameters that it steps, and the counters of their steps."""

    kernel: Any
    addresses: Any
    pieces: Pieces
    arguments: tuple[Any, ...]
    parameters: Sequence[Tensor]
    counters: list[Tensor]


class Prepared(NamedTuple):
    """What steps of the same parameters have in common, as long as the options of their group are the same objects."""

    options: list[object]
    recipe: Recipe
    layout: Layout
    kernel: Any
    before_block: tuple[Any, ...]  # arguments of the kernel
    after_block: tuple[Any, ...]


def step_in_one_pass(base: Optimizer, blocks: EpochBlocks, block: int, mask: Mask) -> bool:
    """Make the step if it can be made in one pass, and say whether it was."""
    if type(base) not in RECIPES or torch.compiler.is_compiling() or compiled_loops() is None or is_watched(base):
        return False
    passes = []
    for group in base.param_groups:
        parameters = stepped(base, group, blocks, (mask, block))
        one = pass_over(base, group, parameters, blocks, (mask, block)) if parameters else None
        if one is not None:
            passes.append(one)
        elif parameters:
            return False
    moved = passes[0].parameters if len(passes) == 1 else [p for one in passes for p in one.parameters]
    if len(passes) > 1 and has_one_twice(moved):
        return False
    for one in passes:
        run_shared(one.kernel, one.addresses, one.pieces, one.arguments)
        if one.counters:
            torch._foreach_add_(one.counters, 1)
    # As after any operation in place: a graph that has kept a parameter then knows that it has changed.
    increment_version(moved)
    return True


def has_one_twice(parameters: Sequence[Tensor]) -> bool:
    """Whether a parameter is there more than once."""
    return len(set(map(id, parameters))) != len(parameters)


def stepped(
    base: Optimizer, group: Mapping[str, Any], blocks: EpochBlocks, masked: tuple[Mask, int]
) -> Sequence[Tensor]:
    """The parameters of a group that make the step. Under "all", what has nothing in the block counts no step."""
    mask, block = masked
    parameters = [p for p in group["params"] if p.grad is not None and p.requires_grad]
    if mask == "all" and RECIPES[type(base)] is AdamRecipe:
        parameters = [p for p in parameters if block in blocks.present[blocks.number_of[id(p)]]]
    return parameters


def is_watched(base: Optimizer) -> bool:
    """Whether someone counts on the base's own ``step`` being called: a hook, a scheduler, or a scaler of gradients."""
    own = vars(base)
    hooks = base._optimizer_step_pre_hooks or base._optimizer_step_post_hooks
    hooked = bool(hooks or _global_optimizer_pre_hooks or _global_optimizer_post_hooks)
    return hooked or "step" in own or "grad_scale" in own or "found_inf" in own


def pass_over(
    base: Optimizer,
    group: Mapping[str, Any],
    parameters: Sequence[Tensor],
    blocks: EpochBlocks,
    masked: tuple[Mask, int],
) -> Pass | None:
    """The step of some parameters of a group, if there is a loop for it and all tensors lie alike."""
    mask, block = masked
    prepared = prepared_for(base, group, parameters, blocks, mask)
    return None if prepared is None else pass_of(prepared, base, group, parameters, LABELS[blocks.label_dtype](block))


def pass_of(
    prepared: Prepared, base: Optimizer, group: Mapping[str, Any], parameters: Sequence[Tensor], block: Any
) -> Pass | None:
    """The same, where there is a loop for it."""
    _, recipe, layout, kernel, before_block, after_block = prepared
    states = [base.state[p] for p in parameters] if recipe.state else []  # asking makes an entry
    rows = [[state.get(name) for state in states] for name in recipe.state]  # None before the first step
    addresses = layout.addresses(parameters, [p.grad for p in parameters], *rows)
    counters = recipe.counters(states)
    if addresses is None or counters is None:
        return None
    by_count = recipe.by_count(group, counters, NUMBERS[layout.dtype])
    arguments = (*before_block, block, *after_block, *by_count)
    return Pass(kernel, addresses, layout.pieces, arguments, parameters, counters)


def prepared_for(
    base: Optimizer, group: Mapping[str, Any], parameters: Sequence[Tensor], blocks: EpochBlocks, mask: Mask
) -> Prepared | None:
    """What was prepared before, or is now; the blocks keep their parameters, so that no other one has their ids."""
    known: dict[tuple[object, ...], Prepared] = blocks.derived("prepared", dict)
    key = (type(base), mask, parameters[0].dtype, *map(id, parameters))
    options = [value for name, value in group.items() if name != "params"]
    found = known.get(key)
    if found is None or len(found.options) != len(options) or not all(map(is_, found.options, options)):
        dtype, label_dtype = parameters[0].dtype, blocks.label_dtype
        recipe = RECIPES[type(base)].of(base, group, mask, dtype) if dtype in NUMBERS else None
        width = None if recipe is None else rounding_width(recipe, dtype, label_dtype)
        if recipe is None or width is None or has_one_twice(parameters):
            return None
        layout = layout_of(blocks, [blocks.number_of[id(p)] for p in parameters], dtype)
        found = known[key] = prepared_with(width, recipe, group, layout, label_dtype)._replace(options=options)
    return found


def prepared_with(
    width: int, recipe: Recipe, group: Mapping[str, Any], layout: Layout, label_dtype: torch.dtype
) -> Prepared:
    """The kernel for these types and options, and what it is given at every step."""
    number = NUMBERS[layout.dtype]
    kernel = compiled(recipe, layout.dtype, label_dtype)
    sizes = layout.dtype.itemsize, label_dtype.itemsize
    scalars = tuple(map(number, (0.0, *recipe.numbers(group))))
    return Prepared([], recipe, layout, kernel, (width, sizes), scalars)


def compiled(recipe: Recipe, dtype: torch.dtype, label_dtype: torch.dtype) -> Any:
    """The kernel for these types and options."""
    return recipe.kernel(compiled_loops(), NUMBERS[dtype].__name__, LABELS[label_dtype].__name__)


@cache
def rounding_width(recipe: Recipe, dtype: torch.dtype, label_dtype: torch.dtype) -> int | None:
    """With which width the kernel gives the bits of torch's own step; None if with none, or if it does not compile."""

    def check(_loops: Any) -> int | None:
        expected = Example(recipe, dtype, label_dtype).stepped_by_torch()
        for width in WIDTHS if recipe.fused else WIDTHS[:1]:
            found = Example(recipe, dtype, label_dtype).stepped_by_kernel(width)
            if all(map(same_numbers, found, expected)):
                return width
        return None

    return checked(check)


class Example:
    """Tensors of 1, 2, 3, ... numbers of all kinds, so that there are all kinds of last ones; half are in the block.

    They are always the same.
    """

    def __init__(self, recipe: Recipe, dtype: torch.dtype, label_dtype: torch.dtype) -> None:
        self.recipe = recipe
        generator = stream(0, "numbers for kernels")
        draw = torch.randn(4, 400, generator=generator, dtype=torch.float64)
        special = torch.tensor(SPECIAL, dtype=torch.float64)[torch.randint(len(SPECIAL), (4, 400), generator=generator)]
        numbers = torch.where(torch.rand(4, 400, generator=generator) < 0.1, special, draw).to(dtype)
        numbers[3] = numbers[3].abs()  # the mean of squares, where there is one
        labels = torch.randint(2, (400,), generator=generator).to(label_dtype)
        rows = [[x.clone() for x in torch.split(row, [*range(1, 28), 22])] for row in (*numbers, labels)]
        self.parameters, self.labels = [nn.Parameter(x) for x in rows[0]], rows[4]
        self.base = recipe.example(self.parameters)
        for number, p in enumerate(self.parameters):
            p.grad = rows[1][number]
            for name, row in zip(recipe.state, rows[2:4], strict=False):
                self.base.state[p][name] = row[number]

    def tensors(self) -> list[Tensor]:
        """The parameters, and all their state by element."""
        entries = [self.base.state[p][name] for name in self.recipe.state for p in self.parameters]
        return [*(p.detach() for p in self.parameters), *entries]

    def stepped_by_torch(self) -> list[Tensor]:
        """The tensors after a step, masked in so many words."""
        inside = [own == 1 for own in self.labels]
        before = [x.clone() for x in self.tensors()]
        if self.recipe.mask == "gradient":
            for p, here in zip(self.parameters, inside, strict=True):
                p.grad = torch.where(here, p.grad, 0)  # type: ignore[arg-type]
        self.base.step()
        after, num_parameters = self.tensors(), len(inside)
        num_masked = {"update": num_parameters, "gradient": 0, "all": len(after)}[self.recipe.mask]
        masked = [
            torch.where(inside[number % num_parameters], after[number], before[number]) for number in range(num_masked)
        ]
        return [*masked, *after[num_masked:]]

    def stepped_by_kernel(self, width: int) -> list[Tensor]:
        """The same by the kernel."""
        blocks, group = EpochBlocks(self.parameters, self.labels), self.base.param_groups[0]
        layout = layout_of(blocks, range(len(self.parameters)), self.parameters[0].dtype)
        prepared = prepared_with(width, self.recipe, group, layout, blocks.label_dtype)
        one: Any = pass_of(prepared, self.base, group, self.parameters, LABELS[blocks.label_dtype](1))
        one.kernel(one.addresses, layout.pieces.rows, 0, len(layout.pieces.rows), *one.arguments)
        return self.tensors()
