"""The group is the one that is there, the one that the environment describes, or this process alone."""

import socket
import sys

import pytest
import torch.distributed as dist

from bcsc.distributed.collectives import RankLostError
from bcsc.distributed.process_group import is_first, process_group, started_group


def test_without_torchrun_there_is_one_process(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with process_group() as ranks:
        assert (ranks.rank, ranks.size) == (0, 1)


def test_an_environment_without_an_address_is_reported(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(RankLostError, match="did not find each other"), process_group():
        pass


def test_a_group_that_is_there_is_used_and_left(tmp_path):
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    try:
        with process_group() as ranks:
            assert (ranks.rank, ranks.size) == (0, 1)
        assert dist.is_initialized()
    finally:
        dist.destroy_process_group()


def test_no_group_finds_what_another_one_has_left_in_the_store(monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    store = dist.TCPStore("127.0.0.1", port, 1, is_master=True)
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": f"{port}"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")  # torchrun's, which outlives the groups
    keys = []
    for _ in range(3):
        for ranks in started_group():
            assert (ranks.rank, ranks.size) == (0, 1)
        keys.append(store.num_keys())
    assert keys[0] < keys[1] < keys[2]


@pytest.mark.parametrize(("rank", "first"), [(None, True), ("0", True), ("1", False)])
def test_the_first_rank_speaks(monkeypatch, rank, first):
    monkeypatch.delenv("RANK", raising=False)
    if rank is not None:
        monkeypatch.setenv("RANK", rank)
    assert is_first() is first


def test_ranks_wait_for_each_other_for_a_minute(monkeypatch):
    given = {}
    monkeypatch.setattr(
        sys.modules[started_group.__module__],
        "rendezvous",
        lambda _place, timeout: iter([(given.update(a=timeout), 0, 2)]),
    )
    monkeypatch.setattr(dist, "PrefixStore", lambda *_: None)
    monkeypatch.setattr(dist, "init_process_group", lambda *_, timeout, **__: given.update(b=timeout))
    monkeypatch.setattr(dist, "get_rank", lambda: 0)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(dist, "destroy_process_group", lambda: None)
    assert [ranks.size for ranks in started_group()] == [2]
    assert {patience.total_seconds() for patience in given.values()} == {60}
    assert len(given) == 2
