"""The optimizer: one block of the parameters per step, around nearly any ``torch.optim`` optimizer."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch._compile import _disable_dynamo  # torch.compiler.disable loads the compiler at once
from torch.optim import Optimizer

from bcsc.choices import GRANULARITIES, MASKS, ORDERS, Granularity, Mask, Order
from bcsc.errors import (
    StateMismatchError,
    UnsupportedOptimizerError,
    check_at_least,
    check_choice,
    check_optional,
    check_same_setup,
)
from bcsc.optim.bases.conduct import Conduct, learn_conduct, settings_of
from bcsc.optim.bases.refusals import refuse_base, refuse_differentiable, refuse_sparse
from bcsc.optim.drift import DriftWatch
from bcsc.optim.fast.one_pass import step_in_one_pass
from bcsc.optim.masking import given_gradients, lent_gradients, masked_step
from bcsc.optim.partition import EpochBlocks, check_num_blocks, draw_blocks
from bcsc.optim.position import Position
from bcsc.optim.state_check import OWN_STATE, check_base_state, check_complete, check_shapes, num_stateful, own_part
from bcsc.optim.updates.alignment import Alignment, Factors, refuse_sharded
from bcsc.optim.updates.settings import check_moves, checked_exclusion
from bcsc.seeding import stream_key

SETTINGS = ("num_blocks", "seed", "mask", "granularity", "order", "steps_per_epoch", "redraw", "rescale", "align")
# What the state of a BlockCyclic lacks that was saved before these were settings.
BEFORE_MASKED_UPDATES: Mapping[str, Any] = {"redraw": None, "rescale": False, "align": False, "exclude": []}


def shared_with_base(name: str) -> Any:
    """An attribute that is the base's own, also after the base has replaced it."""
    return property(lambda self: getattr(self.base, name), lambda self, value: setattr(self.base, name, value))


class BlockCyclic(Optimizer):
    """Block-coordinate steps around nearly any ``torch.optim`` optimizer; itself a ``torch.optim.Optimizer``.

    Every epoch all trainable scalars are cut at random into M blocks; every ``step`` moves one of them, the next in
    the cycle. Together with ``BlockCyclicSampler`` this is Algorithm 1 of the paper.

    Paper -> code:  M -> num_blocks,  P_j -> the scalars with label j (``bcsc.optim.partition``),  (t, j) -> inner_step
    = t * M + j,  Q_j^T in Eq. 9 -> mask (``bcsc.optim.masking``),  eta -> the base's lr.
    Differs from the paper: M need not divide m, block sizes may differ by one scalar.

    Args:
        base: the optimizer that makes the steps. Parameter groups and state are shared with it, so that a scheduler on
            either drives both. What cannot be stepped block by block is refused by name (docs/optimizer.md).
        num_blocks: M, at most the number of trainable scalars (rows, tensors).
        seed: fixes the blocks of every epoch, together with the shapes of the parameters.
        mask: what stays put outside the active block. ``"update"``: the parameters; the state of the base learns from
            the whole gradient (the paper's numbers). ``"gradient"``: the gradient is zero there, momentum and decay go
            on. ``"all"``: parameters and their per-element state.
        granularity: what moves together: every scalar for itself (``"element"``, the paper's), slices along dimension
            0 (``"row"``) or whole tensors (``"tensor"``).
        order: the blocks in turn (``"cyclic"``), or one drawn at random for every step (``"random"``, for SBC and BCD).
            ``"bernoulli"``: no blocks but every unit by itself, moved at each step with probability 1 / M (SkipUpdate).
        steps_per_epoch: begin the next epoch by itself after so many steps, for loops that do not call ``set_epoch``.
        redraw: draw fresh blocks after so many steps, not only at the beginning of an epoch; M of them are a cycle.
        rescale: let the block go M times as far as the base moves it, under ``mask="update"``.
        align: let every unit go as far as its gradient agrees with those before, under ``mask="update"``: Magma
            (``bcsc.optim.updates.alignment``).
        exclude: parameters of the base that are in no block and move at every step, such as embeddings and norms.

    Examples:
        >>> model = torch.nn.Linear(4, 2)
        >>> optimizer = BlockCyclic(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), num_blocks=5)
        >>> for epoch in range(2):
        ...     optimizer.set_epoch(epoch)
        ...     for batch in torch.ones(10, 3, 4):
        ...         optimizer.zero_grad()
        ...         model(batch).square().mean().backward()
        ...         optimizer.step()
        >>> optimizer.epoch, optimizer.inner_step, optimizer.block
        (1, 10, 0)
    """

    def __init__(
        self,
        base: Optimizer,
        num_blocks: int,
        *,
        seed: int = 0,
        mask: Mask = "update",
        granularity: Granularity = "element",
        order: Order = "cyclic",
        steps_per_epoch: int | None = None,
        redraw: int | None = None,
        rescale: bool = False,
        align: bool = False,
        exclude: Iterable[Tensor] = (),
    ) -> None:
        check_choice("mask", mask, MASKS)
        check_choice("granularity", granularity, GRANULARITIES)
        check_choice("order", order, ORDERS)
        refuse_nested(base)
        self.num_blocks = check_at_least("num_blocks", num_blocks, 1)
        self.seed, self.redraw = check_at_least("seed", seed, 0), check_optional("redraw", redraw, 1)
        check_moves(mask, order, redraw, rescale=rescale, align=align)
        refuse_base(base, mask, has_blocks=self.num_blocks > 1, rescale=rescale, align=align)
        self.base, self.rescale, self.align = base, rescale, align
        self.mask, self.granularity, self.order = mask, granularity, order
        self.steps_per_epoch = check_optional("steps_per_epoch", steps_per_epoch, 1)
        self.exclude = checked_exclusion(exclude, self._parameters())
        self._alignment = Alignment(granularity) if align else None
        self._position, self._drift = Position(), DriftWatch()
        self._blocks: EpochBlocks | None = None
        self._conducts: dict[Hashable, Conduct] = {}
        shapes = [p.shape for p in self._in_blocks()]
        check_num_blocks(self.num_blocks, shapes, granularity, balanced=order != "bernoulli")
        refuse_sharded(self._in_blocks() if align else ())
        # As after unpickling: sets up the hooks. Optimizer.__init__ would make parameter groups and state of our own.
        super().__setstate__({})

    param_groups: list[dict[str, Any]] = shared_with_base("param_groups")
    state: defaultdict[Tensor, Any] = shared_with_base("state")
    defaults: dict[str, Any] = shared_with_base("defaults")
    train: Callable[[], None] = shared_with_base("train")  # of schedule-free bases; others have neither
    eval: Callable[[], None] = shared_with_base("eval")

    @property
    def epoch(self) -> int:
        """The epoch of the next step."""
        return self._position.epoch

    @property
    def inner_step(self) -> int:
        """The position of the next step in its epoch: t * M + j."""
        return self._position.step

    @property
    def block(self) -> int:
        """The block that the next step moves: j."""
        return self.block_at(self.inner_step)

    def block_at(self, inner_step: int) -> int:
        """The block that an inner step of this epoch moves."""
        if self.order != "random":
            return inner_step % self.num_blocks
        return stream_key(self.seed, "active block", self.epoch, inner_step) % self.num_blocks

    def set_epoch(self, epoch: int) -> None:
        """Begin ``epoch`` with fresh blocks; right after ``load_state_dict`` its own epoch goes on from there."""
        self._drift.before_epoch(self._position)
        self._position.set_epoch(epoch)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Let the base make one step that moves the active block alone; returns the closure's loss."""
        loss = None if closure is None else torch.enable_grad()(closure)()
        self._drift.before_step(self, self._position)
        blocks = self.epoch_blocks()
        is_plain = not (self.rescale or self.align or len(self.exclude) > 0)
        if not is_plain or not step_in_one_pass(self.base, blocks, self.block, self.mask):
            self._step_generally(blocks)
        self.advance()
        return loss

    @torch.no_grad()
    def _step_generally(self, blocks: EpochBlocks) -> None:
        refuse_sparse(p.grad for p in blocks.parameters)
        with given_gradients(self._none_for_frozen()), lent_gradients(self._copies_for_excluded()):
            masked_step(self.base, blocks, self.block, self.mask, self.conduct(), factors=self.factors(blocks))

    def advance(self) -> None:
        """Go to the next inner step without making this one."""
        self._position.advance(self.steps_per_epoch)

    def epoch_blocks(self) -> EpochBlocks:
        """The blocks, drawn when first asked for, when it is time, and if other parameters are trainable by now."""
        trainable, every = self._in_blocks(), 1 if self.order == "bernoulli" else self.redraw
        blocks, draw = self._blocks, None if every is None else self.inner_step // every
        drawn_from = (self.seed, self.epoch, self.num_blocks, self.granularity, self.order == "bernoulli", draw)
        if blocks is None or blocks.drawn_from != drawn_from or not blocks.is_over(trainable):
            blocks = self._draw(trainable, drawn_from)
        return blocks

    @_disable_dynamo
    @torch.no_grad()
    def _draw(self, trainable: list[Tensor], drawn_from: tuple[Any, ...]) -> EpochBlocks:
        seed, epoch, num_blocks, granularity, independent, draw = drawn_from
        shapes, old = [p.shape for p in trainable], self._blocks
        labels = draw_blocks(
            shapes, num_blocks, granularity=granularity, seed=seed, epoch=epoch, draw=draw, balanced=not independent
        )
        like = old if old is not None and old.is_over(trainable) and old.drawn_from[:2] == (seed, epoch) else None
        self._blocks = EpochBlocks(trainable, labels, drawn_from=drawn_from, like=like)
        self.conduct()  # which a compiled step would break its graph for, too
        if self._alignment is not None:
            self._alignment.begin(trainable)
        return self._blocks

    def factors(self, blocks: EpochBlocks) -> Factors:
        """By what the moves of this step are multiplied; the scores learn from its gradients."""
        scale = self.num_blocks if self.rescale else 1
        if self._alignment is None:
            return None if scale == 1 else float(scale)
        return [scale * score for score in self._alignment.learn(blocks.parameters)]

    def conduct(self) -> Conduct:
        """What the base does with its present settings."""
        known = self._conducts.get(settings := settings_of(self.base))
        return learn_conduct(self.base, settings, self._conducts) if known is None else known

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to the base; the current epoch's blocks are drawn anew over all parameters."""
        refuse_differentiable(self.base, [param_group])
        self.base.add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        """The base's state, and under ``"block_cyclic"`` the position and what the blocks are drawn from."""
        for pre_hook in self._optimizer_state_dict_pre_hooks.values():
            pre_hook(self)
        state_dict = self.base.state_dict()
        counted = {"shapes": self._shapes(), "stateful": num_stateful(state_dict)}
        own = {"epoch": self.epoch, "step": self.inner_step, **counted, **self._setup()}
        if self._alignment is not None:
            own["alignment"] = self._alignment.state_of(self._maskable())
        state_dict = {**state_dict, OWN_STATE: own}
        for post_hook in self._optimizer_state_dict_post_hooks.values():
            state_dict = post_hook(self, state_dict) or state_dict
        return state_dict

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where ``state_dict`` was taken, to the bit; a state of another set-up is refused."""
        state_dict = dict(state_dict) if isinstance(state_dict, Mapping) else {}
        for pre_hook in self._optimizer_load_state_dict_pre_hooks.values():
            state_dict = pre_hook(self, state_dict) or state_dict
        own = self._checked_own_state(state_dict)
        alignment = self._alignment and self._alignment.checked(own.get("alignment"), self._maskable())
        check_base_state(self.base, state_dict)
        check_complete(state_dict)
        try:
            self.base.load_state_dict({key: value for key, value in state_dict.items() if key != OWN_STATE})
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise StateMismatchError(f"{type(self.base).__name__} refuses the saved state: {error}") from error
        self._position.restore(own["epoch"], own["step"])
        self._alignment = alignment
        for post_hook in self._optimizer_load_state_dict_post_hooks.values():
            post_hook(self)

    def __getstate__(self) -> dict[str, Any]:
        own = ("base", *SETTINGS, "exclude", "_alignment", "_position", "_drift")
        return {**{name: self.__dict__[name] for name in own}, "_blocks": None, "_conducts": {}}

    def __repr__(self) -> str:
        setup = ", ".join(f"{name}={value!r}" for name, value in self._setup().items() if name != "base")
        return f"BlockCyclic({setup}, base={self.base!r})"

    def _parameters(self) -> list[Tensor]:
        """All parameters of all groups, each once."""
        return list({id(p): p for group in self.param_groups for p in group["params"]}.values())

    def _maskable(self) -> list[Tensor]:
        excluded = set(map(id, self.exclude))
        return [p for p in self._parameters() if id(p) not in excluded] if excluded else self._parameters()

    def _in_blocks(self) -> list[Tensor]:
        return [p for p in self._maskable() if p.requires_grad]

    def _none_for_frozen(self) -> list[tuple[Tensor, Tensor | None]]:
        return [(p, None) for p in self._parameters() if not p.requires_grad and p.grad is not None]

    def _copies_for_excluded(self) -> list[tuple[Tensor, Tensor | None]]:
        """Of gradients that the base may write into."""
        writes = len(self.exclude) > 0 and self.conduct().may_write_into_gradients
        return [(p, p.grad.clone()) for p in self.exclude if writes and p.requires_grad and p.grad is not None]

    def _shapes(self) -> list[list[int]]:
        return [list(p.shape) for p in self._parameters()]

    def _setup(self) -> dict[str, Any]:
        settings, ids = {name: getattr(self, name) for name in SETTINGS}, set(map(id, self.exclude))
        exclude = [number for number, p in enumerate(self._parameters()) if id(p) in ids]
        return {"base": type(self.base).__name__, **settings, "exclude": exclude}

    def _checked_own_state(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """The part of a saved state that is not the base's, if it fits this optimizer."""
        own = {**BEFORE_MASKED_UPDATES, **own_part(state_dict)}
        check_same_setup("BlockCyclic", saved=own, current=self._setup(), others=("epoch", "step", "shapes"))
        check_shapes(own["shapes"], self._shapes())
        Position().restore(own["epoch"], own["step"])  # refuses what is not a position before anything is changed
        if self.steps_per_epoch is not None and own["step"] >= self.steps_per_epoch:
            raise StateMismatchError(f"The saved step {own['step']} is beyond the {self.steps_per_epoch} of an epoch.")
        return own


def refuse_nested(base: Optimizer) -> None:
    """Refuse blocks of blocks."""
    if isinstance(base, BlockCyclic):
        raise UnsupportedOptimizerError(
            "BlockCyclic cannot be the base of BlockCyclic: it already steps block by block. "
            "Build it from the optimizer inside."
        )
