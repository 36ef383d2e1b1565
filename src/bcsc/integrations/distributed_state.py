"""The optimizer in checkpoints of ``torch.distributed.checkpoint``."""

import json
from typing import Any

from torch import nn

from bcsc.errors import StateMismatchError, in_short
from bcsc.optim.block_cyclic import BlockCyclic
from bcsc.optim.masking import given_gradients
from bcsc.optim.state_check import OWN_STATE, state_after_a_step

WITHOUT_STATE = "without_state"  # the names of parameters for whose state there is room only


class DistributedState:
    """What ``torch.distributed.checkpoint`` is to save and load of an optimizer: each process its shards, by name.

    The helpers of torch keep what they know of an optimizer only, and where it has no state yet they make a step, which
    would count. A plain ``load`` fills the tensors that are there: in a new optimizer none. With this the state comes
    back whole, in any number of processes, or is refused.

    Args:
        model: whose parameters the optimizer steps; sharded by ``fully_shard``, wrapped or neither.
        optimizer: built after the model was sharded.

    Examples:
        A checkpoint of which all comes back, inside an epoch too:

            state = {"model": model, "optimizer": bcsc.DistributedState(model, optimizer), "loader": loader}
            torch.distributed.checkpoint.save(state, checkpoint_id=folder)
            torch.distributed.checkpoint.load(state, checkpoint_id=folder)
    """

    def __init__(self, model: nn.Module, optimizer: BlockCyclic) -> None:
        self.model, self.optimizer = model, optimizer

    def state_dict(self) -> dict[str, Any]:
        """The base's state by the names of the parameters, with room for what it will hold, and the position."""
        from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict  # loads much, and not everywhere

        own, base = self.optimizer.state_dict()[OWN_STATE], self.optimizer.base
        parameters = [p for group in base.param_groups for p in group["params"]]
        options = [{name: value for name, value in group.items() if name != "params"} for group in base.param_groups]
        with given_gradients((p, None) for p in parameters):  # or torch makes no room
            named = get_optimizer_state_dict(self.model, base)
        if not own["stateful"]:  # undo the step by which torch makes room
            base.state.clear()
            for group, before in zip(base.param_groups, options, strict=True):
                for name in group.keys() - before.keys() - {"params"}:
                    del group[name]
                group.update(before)
        without = self._make_room(named)
        return {**named, OWN_STATE: own, WITHOUT_STATE: json.dumps(without)}

    def _make_room(self, named: dict[str, Any]) -> list[str]:
        """Room for the state of parameters that have none yet, which a new optimizer has for all; their names."""
        base, without = self.optimizer.base, []
        pairs = [(p, group) for group in base.param_groups for p in group["params"]]
        for name, (p, group) in zip(names_of_parameters(named), pairs, strict=True):
            room = None if named["state"].get(name) or not p.requires_grad else state_after_a_step(base, p, group, {})
            if room:
                named["state"][name] = room
                without.append(name)
        return without

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where ``state_dict`` was taken, to the bit; a state of another set-up is refused."""
        try:
            names = names_of_parameters(state_dict)
            numbers = {name: number for number, name in enumerate(names)}
            groups = [
                {**group, "params": [numbers[name] for name in group["params"]]} for group in state_dict["param_groups"]
            ]
            own, without = state_dict[OWN_STATE], set(json.loads(state_dict[WITHOUT_STATE]))
            having = {name: entry for name, entry in state_dict["state"].items() if name not in without}
            state = {numbers[name]: entry for name, entry in having.items() if own["stateful"] > 0}
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise StateMismatchError(
                f"This is not the state of a DistributedState ({in_short(error)}). Load what state_dict() returned."
            ) from error
        current = names_of_parameters(self.state_dict())
        if names != current and len(names) == len(current) and {*names} == {*current}:
            saved, here = next(pair for pair in zip(names, current, strict=True) if len({*pair}) > 1)
            raise StateMismatchError(
                f"The optimizer was saved with {saved!r} where it has {here!r} now, and the blocks depend on the "
                "order. Give the parameters to the base in the order in which they were."
            )
        self.optimizer.load_state_dict({"state": state, "param_groups": groups, OWN_STATE: own})


def names_of_parameters(state_dict: dict[str, Any]) -> list[str]:
    """The names of the parameters of all groups, in order."""
    return [name for group in state_dict["param_groups"] for name in group["params"]]
