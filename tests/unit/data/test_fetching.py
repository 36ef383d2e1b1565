"""Downloads, from a server on this machine."""

import gzip
import hashlib
import io
import sys
import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from bcsc.data import fetching
from bcsc.data.dataset import data_root, load
from bcsc.data.fetching import fetch, files_that_differ
from bcsc.data.registry import SOURCES
from bcsc.data.source import Download
from bcsc.errors import DataError, MissingExtraError

pytest.importorskip("pooch", reason="downloading needs pooch: pip install 'bcsc[data]'")

FILES = {"train": b"training", "test": b"testing", "meta": b"names"}
IDX = {"train-images-idx3-ubyte": b"images", "train-labels-idx1-ubyte": b"labels"}


def md5(content):
    return hashlib.md5(content).hexdigest()


def archive(files, prefix="cifar-100-python/"):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(prefix + name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


class Server:
    """Serves a folder on 127.0.0.1 and remembers what was asked for."""

    def __init__(self, folder):
        self.folder, self.asked = folder, []
        asked = self.asked

        class Handler(SimpleHTTPRequestHandler):
            def log_message(self, *_arguments):
                asked.append(self.path)

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def offer(self, name, content, known_md5=None):
        (self.folder / name).write_bytes(content)
        return Download(f"{self.url}/{name}", known_md5 or md5(content))


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    folder = tmp_path / "served"
    folder.mkdir()
    server = Server(folder)
    yield server
    server.http.shutdown()
    server.http.server_close()


def archived(server, content, known_md5=None):
    return replace(SOURCES["cifar100"], downloads=(server.offer("cifar.tar.gz", content, known_md5),))


def idx_source(server):
    downloads = tuple(server.offer(f"{name}.gz", gzip.compress(content)) for name, content in IDX.items())
    return replace(SOURCES["mnist"], downloads=downloads, files={name: (md5(raw),) for name, raw in IDX.items()})


def files_under(root):
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_an_archive_is_unpacked_to_its_folder_and_nothing_else_is_left(server, tmp_path):
    root = tmp_path / "data"
    fetch(archived(server, archive(FILES)), root)
    assert files_under(root) == [f"cifar-100-python/{name}" for name in ("meta", "test", "train")]
    assert (root / "cifar-100-python/train").read_bytes() == b"training"


def test_two_processes_may_fetch_an_archive_at_once(server, tmp_path, monkeypatch):
    """Both have it before either unpacks, so that each is there while the other removes its own."""
    source, root, both = archived(server, archive(FILES)), tmp_path / "data", threading.Barrier(2, timeout=60)
    unpack = fetching._unpack

    def unpack_together(*arguments):
        both.wait()
        unpack(*arguments)
        both.wait()

    monkeypatch.setattr(fetching, "_unpack", unpack_together)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: fetch(source, root), range(2)))
    assert files_under(root) == [f"cifar-100-python/{name}" for name in ("meta", "test", "train")]


def test_a_wrong_hash_is_an_error_and_nothing_is_left(server, tmp_path):
    root = tmp_path / "data"
    with pytest.raises(DataError, match=r"cifar\.tar\.gz does not have the known hash md5:0{32}; nothing was kept"):
        fetch(archived(server, archive(FILES), "0" * 32), root)
    assert files_under(root) == []


def test_files_are_kept_compressed_as_they_come(server, tmp_path):
    source, root = idx_source(server), tmp_path / "data"
    fetch(source, root)
    assert files_under(root) == [f"MNIST/raw/{name}.gz" for name in sorted(IDX)]
    assert source.missing(root) == []
    assert files_that_differ(source, root) == []


def test_running_again_fetches_only_what_is_missing(server, tmp_path):
    source, root = idx_source(server), tmp_path / "data"
    (root / "MNIST/raw").mkdir(parents=True)
    (root / "MNIST/raw/train-images-idx3-ubyte").write_bytes(b"mine")
    fetch(source, root)
    assert [path for path in server.asked if "images" in path] == []
    assert (root / "MNIST/raw/train-images-idx3-ubyte").read_bytes() == b"mine"
    assert files_that_differ(source, root) == ["train-images-idx3-ubyte"]


def test_a_folder_with_a_file_missing_is_completed(server, tmp_path):
    root = tmp_path / "data"
    (root / "cifar-100-python").mkdir(parents=True)
    (root / "cifar-100-python/test").write_bytes(b"old")
    fetch(archived(server, archive(FILES)), root)
    assert (root / "cifar-100-python/train").read_bytes() == b"training"


def test_an_archive_that_reaches_outside_is_refused(server, tmp_path):
    root = tmp_path / "data"
    with pytest.raises(DataError, match="cannot be unpacked"):
        fetch(archived(server, archive({"evil": b""}, prefix="../")), root)
    assert not (tmp_path / "evil").exists()
    assert not (root / "evil").exists()


def test_an_archive_without_the_files_is_refused(server, tmp_path):
    with pytest.raises(DataError, match=r"no train\. Get it with: bcsc data get cifar100"):
        fetch(archived(server, archive({"test": b""})), tmp_path / "data")


def test_a_missing_page_and_a_missing_network_are_one_clear_message(server, tmp_path):
    absent = replace(SOURCES["cifar100"], downloads=(Download(f"{server.url}/absent.tar.gz", "0" * 32),))
    expected = (
        r"could not be fetched \(\w+\)\. CIFAR-100 is not complete in .*cifar-100-python: no train, test\. "
        r"Get it with: bcsc data get cifar100 - or set BCSC_DATA"
    )
    with pytest.raises(DataError, match=expected):
        fetch(absent, tmp_path / "data")
    nowhere = replace(absent, downloads=(Download("http://127.0.0.1:1/absent.tar.gz", "0" * 32),))
    with pytest.raises(DataError, match=expected):
        fetch(nowhere, tmp_path / "data")


def test_loading_without_the_files_names_folder_files_and_command(tmp_path):
    expected = r"not complete in .*cifar-100-python: no train, test\. Get it with: bcsc data get cifar100"
    with pytest.raises(DataError, match=expected):
        load("cifar100", tmp_path, download=False)


def test_without_pooch_the_message_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(MissingExtraError, match=r"bcsc data get mnist .*pip install 'bcsc\[data\]'"):
        load("mnist", tmp_path)


def test_data_is_looked_for_where_one_says_then_in_the_environment_then_in_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("BCSC_DATA", "/from/environment")
    assert str(data_root("/given")) == "/given"
    assert str(data_root()) == "/from/environment"
    monkeypatch.delenv("BCSC_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert str(data_root()) == "/cache/bcsc"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_root() == tmp_path / ".cache/bcsc"
