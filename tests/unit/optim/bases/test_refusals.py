"""What cannot be stepped block by block is refused by name, for a reason."""

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

import bcsc
from bcsc.choices import MASKS
from bcsc.errors import UnsupportedOptimizerError


def parameters() -> list[nn.Parameter]:
    return [nn.Parameter(torch.ones(4, 4)), nn.Parameter(torch.ones(5))]


class Stepper(Optimizer):
    """A base to make odd ones from."""

    def __init__(self, tensors: list[Tensor]) -> None:
        super().__init__(tensors, {"lr": 0.1})
        self.hidden: dict[Tensor, Tensor] = {}

    def own_step(self, p: Tensor) -> None:
        raise NotImplementedError

    @torch.no_grad()
    def step(self, closure=None):
        for p in (p for group in self.param_groups for p in group["params"] if p.grad is not None):
            self.own_step(p)


class NeedsClosure(Stepper):
    def step(self, closure):
        loss = closure()
        for p in (p for group in self.param_groups for p in group["params"] if p.grad is not None):
            p.data.add_(p.grad, alpha=-float(loss))


class Differentiates(Stepper):
    def own_step(self, p: Tensor) -> None:
        with torch.enable_grad():
            (curvature,) = torch.autograd.grad(p.grad.sum(), p)
        p.sub_(p.grad.detach() / (1 + curvature.abs()))


class HidesItsState(Stepper):
    def own_step(self, p: Tensor) -> None:
        self.hidden[p] = 0.9 * self.hidden.get(p, torch.zeros_like(p)) + p.grad
        p.sub_(self.hidden[p])


class WrapsItsState(Stepper):
    def own_step(self, p: Tensor) -> None:
        momenta = self.state[p].setdefault("momenta", [torch.zeros_like(p)])
        p.sub_(momenta[0].mul_(0.9).add_(p.grad))


class WrapsItsStateInATable(Stepper):
    def own_step(self, p: Tensor) -> None:
        momenta = self.state[p].setdefault("momenta", {"slow": torch.zeros_like(p)})
        p.sub_(momenta["slow"].mul_(0.9).add_(p.grad))


class Fails(Stepper):
    def own_step(self, p: Tensor) -> None:
        raise RuntimeError("not\ntoday")


class HasNoStep(Optimizer):
    def __init__(self, tensors: list[Tensor]) -> None:
        super().__init__(tensors, {"lr": 0.1})


class MovesTheIdle(Stepper):
    @torch.no_grad()
    def step(self, closure=None):
        for p in (p for group in self.param_groups for p in group["params"]):
            p.mul_(0.9).sub_(torch.zeros_like(p) if p.grad is None else p.grad)


class MissesWhatItHid(Stepper):
    """Counts its steps by itself, and fails where the state is not as it left it."""

    def own_step(self, p: Tensor) -> None:
        self.count = getattr(self, "count", 0) + 1
        if self.count == 3:  # of two tensors, in the second step
            self.state[p]["slow"] = p.clone()
        if self.count == 5:
            p.sub_(self.state[p]["slow"])
        p.sub_(p.grad)


class EvaluatesElsewhere(Stepper):
    """Steps in one place and is evaluated in another, half-way to where it began."""

    def own_step(self, p: Tensor) -> None:
        self.state[p].setdefault("start", p.clone())
        p.sub_(p.grad)

    @torch.no_grad()
    def eval(self) -> None:
        for p, state in self.state.items():
            p.lerp_(state["start"], 0.5)


class HasAnOptimizerInside(Optimizer):
    def __init__(self, tensors: list[Tensor]) -> None:
        self.inside = torch.optim.Adam(tensors)
        super().__init__(tensors, {"lr": 0.1})

    def step(self, closure=None):
        self.inside.step()


@pytest.mark.parametrize(
    ("kind", "masks", "reason"),
    [
        (
            NeedsClosure,
            MASKS,
            "its step needs the closure, which BlockCyclic evaluates once before it, to have a gradient to mask",
        ),
        (Differentiates, MASKS, "its step differentiates the gradient"),
        (EvaluatesElsewhere, ["update"], r"its eval\(\) makes the weights of the parameters and of state"),
        (HidesItsState, ["all"], "it keeps state that is not in optimizer.state"),
        (HasAnOptimizerInside, ["all"], "it keeps state that is not in optimizer.state"),
        (WrapsItsState, ["all"], "it keeps state by element in lists"),
        (WrapsItsStateInATable, ["all"], "it keeps state by element in lists"),
        (Fails, ["all"], r"a trial of it fails \(RuntimeError: not today\)"),
        (HasNoStep, MASKS, "it has no step"),
        (MovesTheIdle, ["all"], "it moves tensors that have no gradient"),
        (MissesWhatItHid, ["all"], "it keeps state that is not in optimizer.state"),
    ],
)
def test_a_base_is_refused_for_what_it_does_under_the_masks_that_it_matters_to(kind, masks, reason) -> None:
    for mask in MASKS:
        base = kind(parameters())
        if mask in masks:
            says = f"^{kind.__name__} cannot be the base of BlockCyclic: (what .*)?{reason}"
            with pytest.raises(UnsupportedOptimizerError, match=says):
                bcsc.BlockCyclic(base, 2, mask=mask)
        else:
            bcsc.BlockCyclic(base, 2, mask=mask)


@pytest.mark.parametrize("change", [{"lr": 0.0}, {"warmup_steps": 1000}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_who_stands_still_for_now_is_refused_for_what_it_will_do(change: dict, dtype: torch.dtype) -> None:
    schedulefree = pytest.importorskip("schedulefree")
    base = schedulefree.AdamWScheduleFree([nn.Parameter(torch.ones(3, 3, dtype=dtype))], lr=1e-4)
    base.param_groups[0].update(change)
    with pytest.raises(UnsupportedOptimizerError, match="take another mask"):
        bcsc.BlockCyclic(base, 2)


class WantsSomethingLater(Stepper):
    def own_step(self, p: Tensor) -> None:
        self.count = getattr(self, "count", 0) + 1
        if self.count > 4:
            raise RuntimeError("call update_curvature() first")
        p.sub_(p.grad)


class EvaluatesSomethingElse(Stepper):
    def own_step(self, p: Tensor) -> None:
        p.sub_(p.grad)

    def eval(self, model: nn.Module) -> None:
        """Has nothing to do with weights."""


@pytest.mark.parametrize("rescale", [False, True])
@pytest.mark.parametrize("kind", [WantsSomethingLater, EvaluatesSomethingElse])
def test_what_cannot_be_tried_out_is_not_refused_for_it(kind, rescale: bool) -> None:
    optimizer = bcsc.BlockCyclic(kind(tensors := parameters()), 2, rescale=rescale)
    for p in tensors:
        p.grad = torch.ones_like(p)
    optimizer.step()


def test_what_is_evaluated_elsewhere_can_still_be_moved_all_at_once() -> None:
    optimizer = bcsc.BlockCyclic(EvaluatesElsewhere(tensors := parameters()), 1)
    for p in tensors:
        p.grad = torch.ones_like(p)
    optimizer.step()
    optimizer.eval()
    assert all((p == 0.5).all() for p in tensors)
    with pytest.raises(UnsupportedOptimizerError, match="take another mask"):
        bcsc.BlockCyclic(EvaluatesElsewhere(tensors), 1, align=True)


class LeadsToAPlace(Stepper):
    """Goes half the way to a place that its gradients make, wherever it is."""

    def own_step(self, p: Tensor) -> None:
        place = self.state[p].setdefault("place", torch.zeros_like(p))
        p.lerp_(place.sub_(p.grad), 0.5)


class LooksAhead(Stepper):
    """Goes back half the way at every fifth step."""

    def own_step(self, p: Tensor) -> None:
        state = self.state[p]
        start = state.setdefault("start", p.clone())
        state["count"] = state.get("count", 0) + 1
        p.sub_(p.grad)
        if state["count"] % 5 == 0:
            start.copy_(p.lerp_(start, 0.5))


@pytest.mark.parametrize("kind", [LeadsToAPlace, LooksAhead])
def test_moves_that_make_up_for_where_the_parameters_are_are_not_multiplied(kind) -> None:
    for options in ({"num_blocks": 2}, {"num_blocks": 1, "rescale": True}, {"num_blocks": 2, "align": True}):
        bcsc.BlockCyclic(kind(parameters()), **options)
    for options in ({"redraw": 2}, {"order": "bernoulli"}):
        with pytest.raises(
            UnsupportedOptimizerError, match=f"^{kind.__name__} .*: its steps lead to places of its own"
        ):
            bcsc.BlockCyclic(kind(parameters()), 2, rescale=True, **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_decay_and_large_rates_are_not_taken_for_a_place(dtype: torch.dtype) -> None:
    tensors = [nn.Parameter(torch.ones(4, 4, dtype=dtype)), nn.Parameter(torch.ones(0, dtype=dtype))]
    bcsc.BlockCyclic(torch.optim.SGD(tensors, lr=2.0, momentum=0.9, weight_decay=0.3), 2, rescale=True)
    bcsc.BlockCyclic(torch.optim.AdamW(tensors, lr=1.0, weight_decay=0.5), 2, rescale=True)
    bcsc.BlockCyclic(torch.optim.SGD(tensors, lr=0.01, weight_decay=10.0), 2, rescale=True)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (
            torch.optim.LBFGS,
            "it evaluates the closure several times per step and keeps one history for the whole vector",
        ),
        (torch.optim.SparseAdam, "it takes sparse gradients only, which have no value for every scalar of a block"),
    ],
)
def test_a_base_that_is_known_not_to_work_is_refused_for_the_known_reason(kind, reason) -> None:
    class Own(kind):
        """One of theirs is refused as theirs."""

    for known in (kind, Own):
        says = f"^{known.__name__} cannot be the base of BlockCyclic: {reason}.$"
        with pytest.raises(UnsupportedOptimizerError, match=says):
            bcsc.BlockCyclic(known(parameters()), 2)


@pytest.mark.parametrize("shape", [(5,), (2,), (2, 1)])
def test_state_in_lists_is_noticed_of_the_shortest_vectors(shape) -> None:
    with pytest.raises(UnsupportedOptimizerError, match="it keeps state by element in lists"):
        bcsc.BlockCyclic(WrapsItsState([nn.Parameter(torch.ones(shape))]), 2, mask="all")


def test_an_optimizer_without_groups_is_none() -> None:
    class Empty(Optimizer):
        def __init__(self) -> None:
            pass

    with pytest.raises(
        UnsupportedOptimizerError, match="^Empty cannot .*: it has no param_groups. Take the optimizer inside it.$"
    ):
        bcsc.BlockCyclic(Empty(), 2)


def test_a_base_that_is_spread_over_processes_is_refused_under_all_alone_and_not_tried() -> None:
    class Spread(Stepper):
        __module__ = "torch.distributed.optim.some_optimizer"

        def own_step(self, p: Tensor) -> None:
            raise AssertionError("others would have to step, too")

    for mask in ("update", "gradient"):
        bcsc.BlockCyclic(Spread(parameters()), 2, mask=mask)
    with pytest.raises(UnsupportedOptimizerError, match="^Spread cannot be the base.*: its state is not in"):
        bcsc.BlockCyclic(Spread(parameters()), 2, mask="all")


@pytest.fixture
def group_of_one(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
def test_a_base_whose_state_is_shared_out_over_ranks_is_refused_under_all_and_works_else(group_of_one) -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    def zero(tensors: list[nn.Parameter]) -> Optimizer:
        return ZeroRedundancyOptimizer(tensors, optimizer_class=torch.optim.Adam, lr=0.1)

    with pytest.raises(UnsupportedOptimizerError, match="^ZeroRedundancyOptimizer cannot.*not in optimizer.state"):
        bcsc.BlockCyclic(zero(parameters()), 2, mask="all")
    for mask in ("update", "gradient"):
        ours, plain = parameters(), parameters()
        pair = (
            bcsc.BlockCyclic(zero(ours), 2, mask=mask),
            bcsc.BlockCyclic(torch.optim.Adam(plain, lr=0.1), 2, mask=mask),
        )
        for step in range(4):
            for p in (*ours, *plain):
                p.grad = torch.full_like(p, 1.0 + step)
            for optimizer in pair:
                optimizer.step()
        assert all(map(torch.equal, ours, plain))


def test_a_base_whose_state_dict_could_not_be_checked_is_refused_before_anything_is_lost() -> None:
    class Packed(torch.optim.SGD):
        def state_dict(self) -> dict:
            return {"inside": super().state_dict()}

    says = (
        "^Packed cannot be the base of BlockCyclic: its state dict has no state and param_groups to be checked when "
        "it is loaded; take the optimizer inside it.$"
    )
    with pytest.raises(UnsupportedOptimizerError, match=says):
        bcsc.BlockCyclic(Packed(parameters(), lr=0.1), 2)
