"""Which optimizers cannot be stepped block by block, and why."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim import LBFGS, Optimizer, SparseAdam

from bcsc.choices import Mask
from bcsc.errors import UnsupportedOptimizerError, in_one_line
from bcsc.optim.bases.conduct import is_distributed, same_bits
from bcsc.optim.bases.trial import Trials, failure, without_trace

REFUSED = "cannot be the base of BlockCyclic"
KNOWN: Mapping[type[Optimizer], str] = {
    LBFGS: "it evaluates the closure several times per step and keeps one history for the whole vector",
    SparseAdam: "it takes sparse gradients only, which have no value for every scalar of a block",
}


def refuse_base(
    base: Optimizer, mask: Mask, *, has_blocks: bool = True, rescale: bool = False, align: bool = False
) -> None:
    """Refuse what cannot be stepped block by block: what is known not to, and what is seen not to.

    Unless it ``has_blocks`` there is one, so that every step moves everything, and as far as the base does.
    """
    name = type(base).__name__
    if not isinstance(base, Optimizer):
        raise UnsupportedOptimizerError(
            f"The base must be a torch.optim.Optimizer, got {name}. Build one first, "
            "for instance torch.optim.SGD(model.parameters(), lr=0.1)."
        )
    if not hasattr(base, "param_groups"):
        raise UnsupportedOptimizerError(f"{name} {REFUSED}: it has no param_groups. Take the optimizer inside it.")
    refuse_differentiable(base, base.param_groups)
    asked = {
        "update": mask == "update" and (has_blocks or align),
        "rescale": has_blocks and rescale,
        "all": mask == "all",
    }
    reasons = [reason for kind, reason in KNOWN.items() if isinstance(base, kind)]
    reason = reasons[0] if reasons else reason_not_saved(base) or reason_seen(base, mask, asked)
    if reason is not None:
        raise UnsupportedOptimizerError(f"{name} {REFUSED}: {reason}.")


def refuse_differentiable(base: Optimizer, groups: list[dict[str, Any]]) -> None:
    """Refuse groups whose step is to be differentiated through."""
    if any(group.get("differentiable") for group in groups):
        raise UnsupportedOptimizerError(
            f"{type(base).__name__} with differentiable=True {REFUSED}: "
            "putting values back outside the block "
            "would cut the graph through its step. Build it with differentiable=False."
        )


def refuse_sparse(gradients: Iterable[Tensor | None]) -> None:
    """Refuse gradients that have no value for every scalar."""
    for gradient in gradients:
        if gradient is not None and gradient.layout != torch.strided:
            raise UnsupportedOptimizerError(
                f"BlockCyclic needs dense gradients, got one of layout {gradient.layout} for a parameter of shape "
                f"{tuple(gradient.shape)}. Build the layer without sparse=True, or call to_dense() on its gradient."
            )


def reason_not_saved(base: Optimizer) -> str | None:
    """Why what the base saves could not be checked when it is loaded."""
    if is_distributed(base) or {"state", "param_groups"} <= base.state_dict().keys():
        return None
    return "its state dict has no state and param_groups to be checked when it is loaded; take the optimizer inside it"


def reason_seen(base: Optimizer, mask: Mask, asked: Mapping[str, bool]) -> str | None:
    """What trials of the base tell against it."""
    if is_distributed(base):
        return 'its state is not in optimizer.state, where mask="all" looks for it' if mask == "all" else None
    with without_trace(base):
        trials = Trials(base)
        if trials.error is not None:
            return reason_it_fails(trials, mask)
        return next((reason for name, is_seen, reason in SEEN if asked[name] and is_seen(trials)), None)


def reason_it_fails(trials: Trials, mask: Mask) -> str | None:
    """Why a base fails in a step without a closure. Where only its state is in question, it may still step."""
    if isinstance(trials.error, NotImplementedError):
        return "it has no step; where parameters move during the backward pass, nothing can be masked"
    if failure(lambda: trials.new().step_with_closure()) is None:
        return "its step needs the closure, which BlockCyclic evaluates once before it, to have a gradient to mask"
    if failure(lambda: trials.new().step_with_graph()) is None:
        return "its step differentiates the gradient, and a masked one has no graph"
    if mask == "all" and trials.error is not None:
        error = f"{type(trials.error).__name__}: {in_one_line(trials.error)}"
        return f'what it keeps for mask="all" to hold is unknown, as a trial of it fails ({error})'
    return None


def hides_state(trials: Trials) -> bool:
    """Whether a step depends on earlier gradients by more than the parameters, the state and the groups' options.

    Two trials make different steps that are then undone, as far as these three go. What comes after must be the same,
    for more steps than one, as some bases leave tensors out at random.
    """
    ends: list[list[Tensor]] = []
    for detour in (1.0, -2.0):
        trial = trials.new()
        trial.step(scale=1.0)
        before = trial.snapshot()
        trial.step(detour)
        trial.restore(before)
        if failure(partial(trial.steps, 3.0, 1.0, 2.0, 1.0)) is not None:
            return True  # it misses what is not to be undone
        ends.append([p.detach() for p in trial.stand_ins])
    return not all(map(same_bits, *ends))


def evaluates_elsewhere(trials: Trials) -> bool:
    """Whether the base changes the parameters to have them evaluated, as schedule-free optimizers do."""
    trial = trials.new(lr=1.0, warmup_steps=0)  # so that it moves, whatever a warm-up has made of its rate
    before: list[Tensor] = []

    def step_and_evaluate() -> None:
        trial.steps(*[1.0] * 8)  # the schedule-free RAdam stands still in its first four
        before.extend(p.detach().clone() for p in trial.stand_ins)
        trial.twin.eval()  # type: ignore[attr-defined]

    if not hasattr(trial.twin, "eval") or failure(step_and_evaluate) is not None:
        return False
    return not all(map(same_bits, (p.detach() for p in trial.stand_ins), before))


def leads_to_places(trials: Trials) -> bool:
    """Whether where a step leads does not go along when the parameters are shifted, as with FTRL.

    Then a move is what is missing to a place of the base's own, and one that is M times as long leads beyond it.
    """
    ends: list[list[Tensor]] = []

    def step_with_and_without_a_shift() -> None:
        for shift in (0.0, 1.0):
            trial = trials.new(lr=1e-3, weight_decay=0.0)  # nothing that draws towards zero
            trial.step(scale=1.0)
            with torch.no_grad():
                torch._foreach_add_([*trial.stand_ins], shift)
            trial.steps(*[1.0] * 11)  # look-ahead bases step back every five or six
            ends.append([p.detach() for p in trial.stand_ins])

    if failure(step_with_and_without_a_shift) is not None:
        return False
    kept = [(one - other).abs().double().mean() for other, one in zip(*ends, strict=True) if one.numel()]
    return any(abs(each - 1) > 0.05 for each in kept)


def steps_without_gradient(trials: Trials) -> bool:
    """Whether one of several tensors moves in a step in which it alone has no gradient."""
    trial = trials.new()
    trial.step(scale=1.0)
    before = trial.stand_ins[0].detach().clone()
    trial.step(scale=1.0, num_idle=1)
    return len(trial.stand_ins) > 1 and not same_bits(trial.stand_ins[0].detach(), before)


def wraps_state(trials: Trials) -> bool:
    """Whether there are tensors by element inside containers in the state."""
    trial = trials.new()
    trial.step(scale=1.0)
    return any(
        tensor.shape == p.shape
        for p in trial.stand_ins
        for value in trial.twin.state.get(p, {}).values()
        if not isinstance(value, Tensor) and p.numel() > 1
        for tensor in tensors_in(value)
    )


def tensors_in(value: object) -> Iterator[Tensor]:
    """The tensors in a container, however deep."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from tensors_in(list(value.values()))
    elif isinstance(value, Iterable) and not isinstance(value, str):
        for item in value:
            yield from tensors_in(item)


# What trials may tell against a base, by the mask or the option that it then does not go with.
SEEN: tuple[tuple[str, Callable[[Trials], bool], str], ...] = (
    (
        "update",
        evaluates_elsewhere,
        "its eval() makes the weights of the parameters and of state that go together, and "
        'mask="update" lets only the state go on; take another mask',
    ),
    (
        "rescale",
        leads_to_places,
        "its steps lead to places of its own, wherever the parameters were, and rescale=True would go M times as far, "
        "beyond them; leave it out",
    ),
    (
        "all",
        hides_state,
        'it keeps state that is not in optimizer.state, where mask="all" looks for it; take another mask',
    ),
    (
        "all",
        wraps_state,
        'it keeps state by element in lists or the like, where mask="all" cannot hold it; take another mask',
    ),
    (
        "all",
        steps_without_gradient,
        'it moves tensors that have no gradient, by which mask="all" holds them; take another mask',
    ),
)
