"""The trainer does what a plain loop over the method's optimizer and sampler does, counts it, and stops in time."""

import copy
import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from bcsc.errors import Diverged, Interrupted, InvalidArgumentError
from bcsc.optim.block_cyclic import BlockCyclic
from bcsc.optim.methods import METHODS, build_method
from bcsc.optim.sampler import BlockCyclicSampler
from bcsc.runs.batches import LoaderData
from bcsc.seeding import stream
from bcsc.training import trainer as trainer_module
from bcsc.training.trainer import STEPS_BETWEEN_LOOKS, Plan, Trainer, as_classes, evaluate
from bcsc.training.watcher import StepTimer, Watcher

NUM_SAMPLES, NUM_CLASSES = 10, 3
CPU = torch.device("cpu")
RATES = (0.1, 0.02, 0.005)


def samples(size: int = NUM_SAMPLES, purpose: str = "train") -> TensorDataset:
    generator = stream(0, purpose)
    inputs = torch.randn(size, 4, generator=generator, dtype=torch.float64)
    return TensorDataset(inputs, torch.randint(NUM_CLASSES, (size,), generator=generator))


def network() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, NUM_CLASSES)).double()
    with torch.no_grad():
        for number, p in enumerate(model.parameters()):
            p.copy_(torch.randn(p.shape, generator=stream(0, "weights", number)))
    return model


def method_of(model: nn.Module, method: str, batch_size: int) -> tuple[BlockCyclic, BlockCyclicSampler]:
    base = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9)
    return build_method(method, base, num_samples=NUM_SAMPLES, batch_size=batch_size, num_blocks=3, seed=5)


def built(method: str = "bcsc", batch_size: int = 4, model: nn.Module | None = None, **plan: object) -> Trainer:
    model = model or network()
    optimizer, sampler = method_of(model, method, batch_size)
    per_step = sampler.batches_per_step
    data = LoaderData(samples(), samples(7, "test"), sampler, per_step, device=CPU)
    given = Plan(epochs=3, learning_rate=RATES.__getitem__, loss_fn=F.cross_entropy, seed=5, device=CPU)
    return Trainer(model, optimizer, data, replace(given, **plan))


def nothing() -> None:
    pass


def never() -> bool:
    return False


def trained(trainer: Trainer, watcher: Watcher | None = None) -> Trainer:
    trainer.run(nothing, never, watcher or Watcher())
    return trainer


def weights(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def mean_loss(model: nn.Module, indices: Tensor) -> Tensor:
    inputs, labels = samples()[indices]
    return F.cross_entropy(model(inputs), labels)


def plain_loop(method: str, batch_size: int) -> tuple[nn.Module, list[list[float]]]:
    """Three epochs by hand, and the losses of their mini-batches. BCD's gradient is that of the whole set at once."""
    model = network()
    optimizer, sampler = method_of(model, method, batch_size)
    losses = []
    for epoch in range(3):
        optimizer.param_groups[0]["lr"] = RATES[epoch]
        optimizer.set_epoch(epoch)
        losses.append([])
        batches = list(sampler.index_batches(epoch))
        group_size = sampler.batches_per_pass if method == "bcd" else 1
        for start in range(0, len(batches), group_size):
            group = batches[start : start + group_size]
            losses[-1] += [mean_loss(model, batch).item() for batch in group]
            optimizer.zero_grad()
            mean_loss(model, torch.cat(group)).backward()
            optimizer.step()
    return model, losses


@pytest.mark.parametrize("batch_size", [1, 4, 5, 20])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_as_a_plain_loop_does(method: str, batch_size: int) -> None:
    trainer = trained(built(method, batch_size))
    model, losses = plain_loop(method, batch_size)
    torch.testing.assert_close(weights(trainer.model), weights(model), rtol=0, atol=1e-12)
    for row, own in zip(trainer.rows, torch.tensor(losses, dtype=torch.float64), strict=True):
        assert row.train_loss == pytest.approx(own.mean().item(), rel=1e-12)
        assert row.train_loss_std == pytest.approx(own.std(correction=0).item(), rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("batch_size", [1, 4, 5, 20])
@pytest.mark.parametrize("method", METHODS)
def test_gradient_evaluations_are_the_samples_that_went_backward(method: str, batch_size: int) -> None:
    model, num_backward = network(), []

    def watch(_module: nn.Module, _inputs: object, scores: Tensor) -> None:
        if scores.requires_grad:
            scores.register_hook(lambda gradient: num_backward.append(len(gradient)))

    model.register_forward_hook(watch)
    trainer = trained(built(method, batch_size, model))
    per_epoch = sum(num_backward) // 3
    assert [row.gradient_evaluations for row in trainer.rows] == [per_epoch, 2 * per_epoch, 3 * per_epoch]


class Recording(Watcher):
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.epochs: list[tuple[int, int, int, float]] = []
        self.losses: list[float] = []
        self.estimates: list[float] = []

    def begin_epoch(self, epoch: int, step: int, steps: int, samples_per_step: float) -> None:
        self.epochs.append((epoch, step, steps, samples_per_step))

    def after_step(self, loss: Tensor) -> None:
        self.losses.append(loss.item())

    def estimate(self, seconds: float) -> None:
        self.estimates.append(seconds)


class Littering(Watcher):
    """Leaves gradients behind at the end of every epoch."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def end_epoch(self, row: object) -> None:
        for p in self.model.parameters():
            p.grad = torch.full_like(p, 100.0)


def test_gradients_from_before_an_epoch_do_not_leak_into_it() -> None:
    trainer = built()
    litter = Littering(trainer.model)
    litter.end_epoch(None)
    trained(trainer, litter)
    assert torch.equal(weights(trainer.model), weights(trained(built()).model))


def test_gradients_are_gone_when_the_run_ends() -> None:
    assert all(p.grad is None for p in trained(built()).model.parameters())


@pytest.mark.parametrize("method", METHODS)
def test_the_rate_of_the_epoch_is_given_to_every_group_and_written_down(method: str) -> None:
    trainer = built(method)
    trainer.optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(2))], "lr": 7.0})
    seen = []

    class Looking(Watcher):
        def begin_epoch(self, *_: object) -> None:
            seen.append([group["lr"] for group in trainer.optimizer.param_groups])

    trained(trainer, Looking())
    assert seen == [[rate, rate] for rate in RATES]
    assert [row.learning_rate for row in trainer.rows] == list(RATES)
    assert [row.epoch for row in trainer.rows] == [1, 2, 3]


def test_the_network_trains_in_training_mode_and_is_tested_in_evaluation_mode() -> None:
    model, modes = network(), []
    model.register_forward_hook(lambda module, _inputs, _outputs: modes.append(module.training))
    trainer = built("sgd", 5, model)
    model.eval()
    trained(trainer)
    assert modes == [True, True, False] * 3


def test_an_optimizer_with_weights_to_evaluate_puts_them_in_place_for_the_test_and_the_checkpoint() -> None:
    schedulefree, model = pytest.importorskip("schedulefree"), network()
    base = schedulefree.SGDScheduleFree(model.parameters(), lr=0.1)
    optimizer, sampler = build_method("sgd", base, num_samples=NUM_SAMPLES, batch_size=4, num_blocks=1, seed=5)
    data = LoaderData(samples(), samples(7, "test"), sampler, 1, device=CPU)
    plan = Plan(epochs=2, learning_rate=lambda _: 0.1, loss_fn=F.cross_entropy, seed=5, device=CPU)
    run = trained(Trainer(model, optimizer, data, plan))
    assert not base.param_groups[0]["train_mode"]
    assert evaluate(model, data.test_batches(), plan)[0] == run.rows[-1].test_loss
    averaged = weights(model)
    base.train()
    assert not torch.allclose(weights(model), averaged)


def test_a_data_set_that_asks_for_it_is_told_the_epoch() -> None:
    class Told(TensorDataset):
        def __init__(self) -> None:
            super().__init__(*samples().tensors)
            self.epochs: list[int] = []

        def set_epoch(self, epoch: int) -> None:
            self.epochs.append(epoch)

    train, run = Told(), built()
    sampler = BlockCyclicSampler(NUM_SAMPLES, 4, 3, seed=5)
    trained(Trainer(run.model, run.optimizer, LoaderData(train, samples(7, "test"), sampler, 1, device=CPU), run.plan))
    assert train.epochs == [0, 1, 2]


def test_the_test_loss_is_the_mean_over_the_samples_whatever_the_batches() -> None:
    model, (inputs, labels) = network(), samples(7, "test")[:]
    plan = built().plan
    for sizes in ([7], [1, 6], [3, 3, 1], [1] * 7):
        batches = zip(inputs.split(sizes), labels.split(sizes), strict=True)
        loss, accuracy = evaluate(model, iter(batches), plan)
        assert loss == pytest.approx(F.cross_entropy(model(inputs), labels).item(), rel=1e-12)
        assert accuracy == pytest.approx(100 * (model(inputs).argmax(1) == labels).double().mean().item(), rel=1e-12)
    assert 0 < accuracy < 100


def test_where_a_sample_has_a_label_at_every_place_the_accuracy_is_that_of_places() -> None:
    scores = torch.tensor([[[2.0, 0.0, 2.0], [1.0, 1.0, 1.0]], [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]])  # 2 classes
    labels = torch.tensor([[0, 1, 1], [1, 1, 1]])
    for sizes in ([2], [1, 1]):
        batches = zip(scores.split(sizes), labels.split(sizes), strict=True)
        assert evaluate(nn.Identity(), iter(batches), built().plan)[1] == pytest.approx(100 * 5 / 6)


def test_probabilities_for_labels_are_their_likeliest_class() -> None:
    scores, labels = torch.tensor([[1.0, 2.0, 0.0], [3.0, 2.0, 0.0]]), torch.tensor([[0.0, 0.6, 0.4], [0.1, 0.0, 0.9]])
    assert evaluate(nn.Identity(), iter([(scores, labels)]), built().plan)[1] == 50


@pytest.mark.parametrize(
    "labels", [torch.zeros(8), torch.zeros(8, 1), torch.zeros(8, 2), torch.zeros(8, 1, dtype=torch.int64)]
)
def test_labels_of_which_no_accuracy_can_be_told_are_refused_before_the_first_step(labels: Tensor) -> None:
    model = nn.Linear(3, 1 if labels.shape == (8, 1) and labels.is_floating_point() else 4)
    scores = model(torch.zeros(8, 3))
    with pytest.raises(InvalidArgumentError, match="the labels must be whole numbers of shape"):
        as_classes(labels, scores)
    run = built("sgd", 8, model)
    run.data, run.plan = (
        LoaderData(
            TensorDataset(torch.zeros(8, 3), labels), samples(7, "test"), BlockCyclicSampler(8, 8, 1), 1, device=CPU
        ),
        replace(run.plan, loss_fn=lambda scores, _labels: scores.sum()),
    )
    before = weights(model).clone()
    with pytest.raises(InvalidArgumentError, match="take BlockCyclic and its sampler in a loop of your own"):
        trained(run)
    assert torch.equal(weights(model), before)


def test_testing_leaves_no_graph_and_no_gradient() -> None:
    model, (inputs, labels) = network(), samples(7, "test")[:]
    needed = []
    model.register_forward_hook(lambda _module, _inputs, outputs: needed.append(outputs.requires_grad))
    evaluate(model, iter([(inputs, labels)]), built().plan)
    assert needed == [False]


@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
def test_autocast_is_on_in_training_and_testing_where_it_is_asked_for(autocast: torch.dtype | None) -> None:
    model, types = network().float(), []
    model.register_forward_hook(lambda module, _inputs, outputs: types.append((module.training, outputs.dtype)))
    trainer = built("sgd", 5, model, autocast=autocast, epochs=1)
    trainer.data._train, trainer.data._test = (
        [(x.float(), y) for x, y in sets] for sets in (samples(), samples(7, "test"))
    )
    trained(trainer)
    assert types == [(training, autocast or torch.float32) for training in (True, True, False)]
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def trainer_of_a_long_epoch(num_steps: int, bad_from: float, **plan: object) -> tuple[Trainer, list[float]]:
    """SGD on one sample at a time, with a loss that is not finite from a step on, and the losses as they come."""
    model = nn.Linear(1, 2, dtype=torch.float64)
    base = torch.optim.SGD(model.parameters(), lr=1.0)
    optimizer, sampler = build_method("sgd", base, num_samples=num_steps, batch_size=1, num_blocks=1)
    data = TensorDataset(torch.ones(num_steps, 1, dtype=torch.float64), torch.zeros(num_steps, dtype=torch.int64))
    losses: list[float] = []

    def loss_fn(scores: Tensor, _labels: Tensor) -> Tensor:
        losses.append(math.nan if len(losses) >= bad_from else 0.0)
        return scores.sum() * losses[-1]

    given = Plan(epochs=1, learning_rate=lambda _: 0.1, loss_fn=loss_fn, seed=0, device=CPU)
    held = LoaderData(data, data, sampler, 1, device=CPU)
    return Trainer(model, optimizer, held, replace(given, **plan)), losses


@pytest.mark.parametrize(
    ("bad_from", "checkpoint_every", "noticed_after"),
    [(0, None, 64), (63, None, 64), (64, None, 128), (130, None, 150), (10, 25, 25), (25, 25, 50)],
)
def test_divergence_is_noticed_at_the_next_look(
    bad_from: int, checkpoint_every: int | None, noticed_after: int
) -> None:
    assert STEPS_BETWEEN_LOOKS == 64
    trainer, losses = trainer_of_a_long_epoch(150, bad_from, checkpoint_every=checkpoint_every)
    saved = []
    with pytest.raises(Diverged, match=f"The loss is nan in epoch 1, inner step {bad_from}, block 0, at learning rate"):
        trainer.run(lambda: saved.append(len(losses)), never, Watcher())
    assert len(losses) == noticed_after
    assert all(step <= bad_from for step in saved)


def test_it_saves_every_so_many_steps_and_at_the_end_of_an_epoch() -> None:
    for every, expected in ((None, [150]), (40, [40, 80, 120, 150]), (50, [50, 100, 150, 150])):
        trainer, losses = trainer_of_a_long_epoch(150, math.inf, checkpoint_every=every)
        saved = []
        trainer.run(lambda losses=losses, saved=saved: saved.append(min(len(losses), 150)), never, Watcher())
        assert saved == expected


def test_a_test_loss_that_is_not_finite_is_divergence_before_anything_is_saved() -> None:
    trainer, losses = trainer_of_a_long_epoch(3, 3)
    saved = []
    with pytest.raises(Diverged, match="The test loss is nan in epoch 1, inner step 2, block 0"):
        trainer.run(lambda: saved.append(len(losses)), never, Watcher())
    assert saved == []


def interrupted_after(num_questions: int, trainer: Trainer) -> dict:
    """The state that is saved when the trainer is asked to stop at its n-th question."""
    answers: Iterator[bool] = iter([False] * (num_questions - 1) + [True])
    saved = []
    with pytest.raises(Interrupted, match=r"Stopped in epoch \d after \d+ inner steps; all of it is saved"):
        trainer.run(lambda: saved.append(trainer.state_dict()), lambda: next(answers), Watcher())
    return saved[-1]


def test_losses_in_the_memory_of_a_momentum_are_not_changed_by_steps() -> None:
    state = interrupted_after(13, built(model=with_dropout()))
    momentum = state["optimizer"]["state"][0]["momentum_buffer"]
    apart = {**state, "losses": momentum.flatten()[: len(state["losses"])].clone()}
    shared = {**copy.deepcopy(state), "losses": None}
    memory = shared["optimizer"]["state"][0]["momentum_buffer"].flatten()
    shared["losses"] = memory[: len(state["losses"])]
    ends = []
    for saved in (apart, shared):
        trainer = built(model=with_dropout())
        trainer.load_state_dict(saved)
        ends.append([row[:7] for row in trained(trainer).rows])
    assert ends[0] == ends[1]


@settings(max_examples=30)
@given(st.sampled_from(list(METHODS)), st.integers(1, 8))
def test_a_state_taken_between_any_two_steps_goes_on_to_the_same_end(method: str, num_questions: int) -> None:
    whole = trained(built(method, model=with_dropout()))
    state = interrupted_after(num_questions, built(method, model=with_dropout()))
    resumed = built(method, model=with_dropout())
    resumed.load_state_dict(state)
    heard = Recording()
    trained(resumed, heard)
    assert torch.equal(weights(resumed.model), weights(whole.model))
    assert [row[:7] for row in resumed.rows] == [row[:7] for row in whole.rows]
    batches = resumed.data.batches_per_epoch
    epoch, batch = divmod(num_questions * resumed.data.batches_per_step, batches)
    assert heard.epochs[0][:3] == ((epoch, batch, batches) if batch else (epoch - 1, batches, batches))


def with_dropout() -> nn.Module:
    model = network()
    return nn.Sequential(model[0], nn.Dropout(0.5), nn.BatchNorm1d(5, dtype=torch.float64), model[2])


class Clock:
    """A clock that is moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(trainer_module.time, "perf_counter", lambda: self.now)


class Ticking(Recording):
    """Lets a second pass with every step."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def after_step(self, loss: Tensor) -> None:
        super().after_step(loss)
        self.clock.now += 1


def test_the_seconds_of_an_epoch_are_its_own_and_those_before_an_interruption(monkeypatch) -> None:
    clock = Clock(monkeypatch)
    trainer, saved = built(), []
    questions = iter([False] * 12 + [True])  # an epoch has 9 steps
    with pytest.raises(Interrupted, match="Stopped in epoch 2 after 4 inner steps"):
        trainer.run(lambda: saved.append(trainer.state_dict()), lambda: next(questions), Ticking(clock))
    clock.now += 5000
    resumed = built()
    resumed.load_state_dict(saved[-1])
    trained(resumed, Ticking(clock))
    assert [row.seconds for row in resumed.rows] == [9, 9, 9]
    assert [row.images_per_second for row in resumed.rows] == [30 / 9] * 3


def test_a_clock_that_stands_still_is_no_obstacle(monkeypatch) -> None:
    Clock(monkeypatch)
    assert [(row.seconds, row.images_per_second) for row in trained(built()).rows] == [(0, 0)] * 3


@pytest.mark.parametrize(
    ("method", "batch_size", "steps"), [("bcsc", 4, 9), ("sgd", 4, 3), ("bcd", 4, 9), ("sbc", 20, 3)]
)
def test_a_watcher_hears_of_every_epoch_and_every_mini_batch(method: str, batch_size: int, steps: int) -> None:
    heard, trainer = Recording(), built(method, batch_size)
    trained(trainer, heard)
    samples_per_step = trainer.rows[0].gradient_evaluations / steps
    assert heard.epochs == [(epoch, 0, steps, samples_per_step) for epoch in range(3)]
    assert len(heard.losses) == 3 * trainer.data.batches_per_epoch
    first = heard.losses[: trainer.data.batches_per_epoch]
    assert trainer.rows[0].train_loss == pytest.approx(sum(first) / len(first), rel=1e-12)


def test_the_time_left_is_that_of_the_steps_and_tests_to_come(monkeypatch) -> None:
    """2 epochs of 30 steps, a second each; an estimate after 13 steps; testing 7 samples costs a third of training."""
    clock = Clock(monkeypatch)
    trainer, heard = built(batch_size=1, epochs=2), Ticking(clock)
    trained(trainer, heard)
    assert heard.estimates == [pytest.approx((60 - 13) * (1 + 7 / 30 / 3)), pytest.approx((30 - 13) * (1 + 7 / 30 / 3))]


def test_a_timer_warms_up_and_answers_once(monkeypatch) -> None:
    clock, timer, answers = Clock(monkeypatch), StepTimer(), []
    for step in range(30):
        clock.now += 100 if step < StepTimer.WARM_UP else 2
        answers.append(timer.has_timed_enough())
    assert answers == [step == StepTimer.WARM_UP + StepTimer.TIMED - 1 for step in range(30)]
    assert timer.seconds_per_step == 2


def test_dropout_differs_between_epochs_and_is_fixed_by_the_seed() -> None:
    def masks(seed: int) -> list[Tensor]:
        model, seen = with_dropout(), []
        model[1].register_forward_hook(
            lambda module, _, outputs: seen.append(outputs == 0) if module.training else None
        )
        trained(built("sgd", 20, model, seed=seed))
        return seen

    one, again, other = masks(1), masks(1), masks(2)
    assert all(map(torch.equal, one, again))
    assert not torch.equal(one[0], one[1])
    assert not torch.equal(one[0], other[0])


def test_nothing_of_a_finished_epoch_is_kept_in_a_state_but_its_row() -> None:
    trainer = trained(built())
    state = trainer.state_dict()
    assert state["losses"].numel() == 0
    assert state["seconds"] == 0.0
    assert state["rank_states"] is None
    assert len(state["rows"]) == 3


def test_a_seed_and_an_epoch_give_the_dropout_that_they_always_gave() -> None:
    """Else the records of runs with dropout could not be repeated."""
    model, seeds = with_dropout(), []
    model.register_forward_pre_hook(lambda model, _: seeds.append(torch.initial_seed() if model.training else 0))
    trained(built(model=model, batch_size=20))
    expected = [7381308281880557283, 3671120577429274725, 1159647630185622182]
    assert [seed for seed in dict.fromkeys(seeds) if seed] == expected


def test_a_loss_is_looked_at_once_and_with_others() -> None:
    """Looking waits for the device."""
    trainer, looks = built(batch_size=1, epochs=1), []
    look = trainer._refuse_divergence
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer_module, "STEPS_BETWEEN_LOOKS", 8)
        patch.setattr(trainer, "_refuse_divergence", lambda: looks.append(trainer.optimizer.inner_step) or look())
        trained(trainer)
    assert looks == [8, 16, 24, 30, 30]


def test_divergence_in_the_first_step_of_an_epoch_is_told_by_that_step() -> None:
    model = network()

    def spoil(model: nn.Module, _inputs: object, scores: Tensor) -> Tensor:
        return scores * math.nan if model.training and trainer.epoch == 1 else scores

    model.register_forward_hook(spoil)
    trainer = built(model=model)
    with pytest.raises(Diverged, match="The loss is nan in epoch 2, inner step 0, block 0"):
        trained(trainer)
