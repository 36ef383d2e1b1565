"""A checkpoint is read as it was written or not at all, nothing in it runs, and only what fits is gone on from."""

import copy
import io
import math
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bcsc.distributed.division import Division
from bcsc.errors import CheckpointError, StateMismatchError
from bcsc.training.checkpoint import checked_progress, checkpoint_content, digest, read_checkpoint
from bcsc.training.trainer import Trainer
from bcsc.training.watcher import Watcher
from tests.unit.training.test_trainer import built, interrupted_after, never, with_dropout


def test_what_is_written_is_read(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.pt").write_bytes(checkpoint_content({"number": 1, "weights": torch.arange(3.0)}, "its run"))
    state = read_checkpoint(tmp_path / "checkpoint.pt")
    assert (state["number"], state["weights"].tolist(), state["run"]) == (1, [0.0, 1.0, 2.0], "its run")


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty"])
def test_damage_is_noticed(tmp_path: Path, damage: str) -> None:
    content = bytearray(checkpoint_content({"weights": torch.full((1000,), 1.0)}, "its run"))
    if damage == "flip":
        content[content.index(torch.full((2,), 1.0).numpy().tobytes()) + 100] ^= 1
    path = tmp_path / "checkpoint.pt"
    path.write_bytes({"truncate": content[: len(content) // 2], "flip": content, "empty": b""}[damage])
    with pytest.raises(CheckpointError, match=f"{path} (cannot be read|is damaged)"):
        read_checkpoint(path)


class Hostile:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return (Path.touch, (self.path,))


@pytest.mark.filterwarnings("ignore:Environment variable TORCH_FORCE")
@pytest.mark.parametrize("environment", [{}, {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}], ids=str)
def test_a_hostile_checkpoint_does_not_run(tmp_path: Path, environment: dict[str, str], monkeypatch) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    mark = tmp_path / "it-ran"
    torch.save({"model": Hostile(mark)}, tmp_path / "checkpoint.pt")
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_checkpoint(tmp_path / "checkpoint.pt")
    assert not mark.exists()
    with zipfile.ZipFile(tmp_path / "checkpoint.pt") as archive:
        pickle.loads(archive.read(next(name for name in archive.namelist() if name.endswith("data.pkl"))))
    assert mark.exists()  # so the file was really hostile


def test_what_was_changed_after_it_was_written_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(checkpoint_content({"weights": torch.zeros(3)}, "its run"))
    state = torch.load(path, weights_only=True)
    changes: list[dict[str, Any]] = [
        {"weights": torch.tensor([0.0, 0.0, -0.0])},
        {"weights": torch.zeros(3, 1)},
        {"weights": torch.zeros(3, dtype=torch.int32)},
        {"run": "another run"},
        {"sha256": None},
        {"more": 1},
    ]
    for changed in [{**state, **change} for change in changes] + [
        {name: value for name, value in state.items() if name != gone} for gone in ("weights", "run", "sha256")
    ]:
        torch.save(changed, path)
        with pytest.raises(CheckpointError, match="was changed after it was written"):
            read_checkpoint(path)


def test_a_checkpoint_of_an_earlier_version_is_read_without_a_digest(tmp_path: Path) -> None:
    torch.save({"weights": torch.ones(2)}, tmp_path / "checkpoint.pt")
    assert read_checkpoint(tmp_path / "checkpoint.pt")["weights"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    "tensor", [torch.zeros(1).expand(10**12), torch.zeros(2).to_sparse(), torch.zeros(2, device="meta")]
)
def test_a_tensor_that_claims_more_than_the_file_holds_is_refused(tmp_path: Path, tensor: Tensor) -> None:
    torch.save({"deep": [{"weights": tensor}]}, tmp_path / "checkpoint.pt")
    with pytest.raises(CheckpointError, match="not what it claims to be"):
        read_checkpoint(tmp_path / "checkpoint.pt")


def test_what_would_unpack_to_more_than_itself_is_refused(tmp_path: Path) -> None:
    small = io.BytesIO()
    torch.save({"weights": torch.zeros(10**6)}, small)
    with zipfile.ZipFile(small) as source, zipfile.ZipFile(tmp_path / "c.pt", "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
    with pytest.raises(CheckpointError, match="it is compressed"):
        read_checkpoint(tmp_path / "c.pt")


@pytest.mark.parametrize("module", ["builtins", "__builtin__"])
def test_a_checkpoint_that_asks_for_bytes_is_refused_before_it_has_them(tmp_path: Path, module: str) -> None:
    small = io.BytesIO()
    torch.save({}, small)
    asking = f"c{module}\nbytearray\n".encode() + b"(J" + (2**30).to_bytes(4, "little") + b"tR."
    with zipfile.ZipFile(small) as source, zipfile.ZipFile(tmp_path / "c.pt", "w") as target:
        for name in source.namelist():
            target.writestr(name, b"\x80\x02" + asking if name.endswith("data.pkl") else source.read(name))
    with pytest.raises(CheckpointError, match="it asks for memory that no checkpoint needs"):
        read_checkpoint(tmp_path / "c.pt")


@pytest.mark.parametrize("content", [[], None, 1, "state"])
def test_what_is_no_table_is_refused(tmp_path: Path, content: Any) -> None:
    torch.save(content, tmp_path / "checkpoint.pt")
    with pytest.raises(CheckpointError, match=r"cannot be read: it holds .*, not a table"):
        read_checkpoint(tmp_path / "checkpoint.pt")


def test_a_nest_too_deep_to_look_through_is_refused(tmp_path: Path) -> None:
    small = io.BytesIO()
    torch.save({}, small)
    lists, depth = (
        b"]",
        100_000,
    )  # a pickle's opcodes for an empty list and for appending the last value to the one before
    with zipfile.ZipFile(small) as source, zipfile.ZipFile(tmp_path / "c.pt", "w") as target:
        for name in source.namelist():
            nest = b"\x80\x02" + lists * depth + b"a" * (depth - 1) + b"."
            target.writestr(name, nest if name.endswith("data.pkl") else source.read(name))
    with pytest.raises(CheckpointError, match="cannot be read .RecursionError"):
        read_checkpoint(tmp_path / "c.pt")


def state_of(where: str) -> dict[str, Any]:
    """The state of a run inside its second epoch, after it, or before its first."""
    if where == "begun":
        return built(model=with_dropout()).state_dict()
    return interrupted_after(13, built(model=with_dropout())) if where == "inside" else saved_after_an_epoch()


def saved_after_an_epoch() -> dict[str, Any]:
    trainer, saved = built(model=with_dropout()), []
    trainer.run(lambda: saved.append(copy.deepcopy(trainer.state_dict())), never, Watcher())
    return saved[1]


def everything_in(trainer: Trainer) -> str:
    return digest([trainer.state_dict(), [p.grad for p in trainer.model.parameters()], torch.get_rng_state()])


def changed_row(number: int, **change: Any) -> Callable[[dict[str, Any]], Any]:
    def change_row(state: dict[str, Any]) -> None:
        state["rows"][number].update(change)

    return change_row


def put(*path: Any) -> Callable[[dict[str, Any]], None]:
    *place, last, value = path

    def change(state: dict[str, Any]) -> None:
        for name in place:
            state = state[name]
        state[last] = value

    return change


def one_memory(entries: dict[int, dict[str, Tensor]]) -> None:
    """Let the second momentum lie inside the first."""
    first, second = (entries[number]["momentum_buffer"] for number in (0, 1))
    entries[1]["momentum_buffer"] = first.flatten()[: second.numel()].view(second.shape)


RANDOM = torch.Generator().get_state()
CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    **{f"no {name}": lambda state, name=name: state.pop(name) for name in Trainer.state_dict(built())},
    "no rows": put("rows", []),
    "50 rows": lambda state: state.update(rows=state["rows"][:1] * 50),
    "a row twice": lambda state: state.update(rows=state["rows"][:1] * 2),
    "rows of text": put("rows", ["row"]),
    "a row of another epoch": changed_row(0, epoch=2),
    "a row of text": changed_row(0, train_loss="low"),
    "a row of NaN": changed_row(0, test_loss=math.nan),
    "a row of another rate": changed_row(0, learning_rate=0.2),
    "a row with other evaluations": changed_row(0, gradient_evaluations=31),
    "a row of 101 %": changed_row(0, test_accuracy=101.0),
    "a row that ended before it began": changed_row(0, seconds=-1.0),
    "a row too short": lambda state: state["rows"][0].pop("seconds"),
    "losses of a list": put("losses", [1.0]),
    "losses of nothing": put("losses", None),
    "losses too few": lambda state: state.update(
        losses=state["losses"][:-1] if len(state["losses"]) else torch.ones(1)
    ),
    "losses of NaN": lambda state: state.update(losses=state["losses"] * math.nan if len(state["losses"]) else None),
    "losses of whole numbers": lambda state: state.update(losses=state["losses"].long()),
    "losses in a square": lambda state: state.update(losses=torch.ones(2, 2)),
    "seconds of NaN": put("seconds", math.nan),
    "seconds of text": put("seconds", "1"),
    "seconds without end": put("seconds", math.inf),
    "seconds before the beginning": put("seconds", -1.0),
    "rank states of nobody": put("rank_states", []),
    "rank states of text": put("rank_states", ["cpu"]),
    "rank states of two": put("rank_states", [{"cpu": RANDOM}, {"cpu": RANDOM}]),
    "a random state of another kind": put("rank_states", [{"cpu": RANDOM.float()}]),
    "a random state too short": put("rank_states", [{"cpu": RANDOM[:100]}]),
    "a random state of nonsense": put("rank_states", [{"cpu": torch.full_like(RANDOM, 255)}]),
    "a random state of another device": put("rank_states", [{"cuda": RANDOM}]),
    "buffers too many": put("rank_states", [{"cpu": RANDOM, "buffers": torch.ones(3)}] * 2),
    "a position far away": put("optimizer", "block_cyclic", "step", 10**9),
    "a position in another epoch": put("optimizer", "block_cyclic", "epoch", 10**9),
    "a position of text": put("optimizer", "block_cyclic", "step", "1"),
    "no position": put("optimizer", "block_cyclic", None),
    "another momentum": lambda state: state["optimizer"]["param_groups"][0].update(momentum=0.8),
    "another rate": lambda state: state["optimizer"]["param_groups"][0].update(lr=0.7),
    "another momentum in the same memory": lambda state: one_memory(state["optimizer"]["state"]),
    "no optimizer": put("optimizer", None),
    "no network": put("model", None),
    "a network of other names": put("model", {"weight": torch.ones(2)}),
    "a weight of another shape": put("model", "0.weight", torch.ones(5, 4, 1)),
    "a weight of another type": put("model", "0.weight", torch.ones(5, 4)),
    "a weight of text": put("model", "0.weight", "heavy"),
}
AT_THE_BEGINNING_TOO = {name for name in CHANGES if not name.startswith(("a row", "another"))} - {"no rows", "50 rows"}


@pytest.mark.parametrize("where", ["begun", "inside", "after an epoch"])
def test_a_state_that_does_not_fit_is_refused_before_anything_is_changed(where: str) -> None:
    saved, trainer = state_of(where), built(model=with_dropout())
    before = everything_in(trainer)
    for name, change in CHANGES.items():
        if where != "begun" or name in AT_THE_BEGINNING_TOO:
            state = copy.deepcopy(saved)
            change(state)
            with pytest.raises(StateMismatchError, match="saved state|is not of this"):
                trainer.load_state_dict(state)
            assert everything_in(trainer) == before, name
    trainer.load_state_dict(saved)
    assert digest(trainer.state_dict()) != before or where == "begun"


def test_ranks_that_do_not_divide_the_step_cannot_go_on_from_it() -> None:
    state, trainer = interrupted_after(13, built()), built()
    trainer.data.division = Division(0, 3, by="steps")
    with pytest.raises(StateMismatchError, match="3 ranks cannot go on after 4 inner steps of an epoch"):
        trainer.load_state_dict(state)


def test_the_version_of_a_module_is_not_taken_from_the_file() -> None:
    """A network is loaded by what it is now: nobody has to believe what a file says of it."""
    state, trainer = state_of("inside"), built(model=with_dropout())
    state["model"]._metadata = None
    trainer.load_state_dict(state)
    assert torch.equal(trainer.model.state_dict()["0.weight"], state["model"]["0.weight"])


def test_what_fits_is_gone_on_from_with_the_random_state_of_its_ranks() -> None:
    state = interrupted_after(4, built())
    saved = checked_progress(state, built())
    assert saved.rank_states is state["rank_states"] is not None
    assert (saved.rows, saved.seconds, len(saved.losses)) == ([], state["seconds"], 4)


@pytest.mark.parametrize("percent", [0.0, 100.0])
def test_an_epoch_may_have_had_all_right_or_nothing(percent: float) -> None:
    state = interrupted_after(10, built())
    changed_row(0, test_accuracy=percent)(state)
    assert checked_progress(state, built()).rows[0].test_accuracy == percent


def test_a_run_that_was_stopped_after_the_last_step_of_an_epoch_fits() -> None:
    state = interrupted_after(9, built())
    assert (state["optimizer"]["block_cyclic"]["step"], state["rows"]) == (9, [])
    assert len(checked_progress(state, built()).losses) == 9


def test_the_digest_of_a_set_does_not_depend_on_its_order() -> None:
    one, other = {0, 8}, {8, 0}
    assert repr(one) != repr(other), "two orders of one set"
    assert digest({"a": one}) == digest({"a": other}) != digest({"a": {0, 9}})
