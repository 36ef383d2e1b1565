"""Fetch a data set from its official place, check it by its hash and put it where it belongs."""

import gzip
import hashlib
import os
import sys
import tarfile
import tempfile
from pathlib import Path
from types import ModuleType

from bcsc.data.decoders.arrays import find_file
from bcsc.data.source import Download, Source
from bcsc.errors import DataError, MissingExtraError


def missing_message(source: Source, root: Path) -> str:
    """Where the files are looked for, which of them are not there, and how to get them."""
    return (
        f"{source.title} is not complete in {root / source.folder}: no {', '.join(source.missing(root))}. "
        f"Get it with: bcsc data get {source.name} - or set BCSC_DATA to the folder that holds {source.folder}."
    )


def fetch(source: Source, root: Path) -> None:
    """Download what is missing. A file appears whole and checked or not at all; run it again after an interruption."""
    pooch = _import_pooch(source, root)
    for download in source.downloads:
        if download.is_archive:
            root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=root) as own:  # another process may be fetching it, too
                _unpack(_retrieve(pooch, source, download, root, Path(own)), source.folder, root)
        elif find_file(root / source.folder, download.name.removesuffix(".gz")) is None:
            _retrieve(pooch, source, download, root, root / source.folder)
    if source.missing(root):
        raise DataError(f"The download is not what it was. {missing_message(source, root)}")


def files_that_differ(source: Source, root: Path) -> list[str]:
    """The files whose bytes, as stored and as unpacked, are not the official ones."""
    paths = {name: find_file(root / source.folder, name) for name in source.files}
    return [name for name, path in paths.items() if path and not set(source.files[name]) & _hashes(path)]


def _hashes(path: Path) -> set[str]:
    stored = path.read_bytes()
    forms = [stored, gzip.decompress(stored)] if path.suffix == ".gz" else [stored]
    return {hashlib.md5(form, usedforsecurity=False).hexdigest() for form in forms}


def _import_pooch(source: Source, root: Path) -> ModuleType:
    try:
        import pooch
    except ImportError as error:
        raise MissingExtraError(
            f"{missing_message(source, root)} Downloading needs pooch: pip install 'bcsc[data]'"
        ) from error
    module: ModuleType = pooch
    module.get_logger().setLevel("WARNING")
    return module


def _retrieve(pooch: ModuleType, source: Source, download: Download, root: Path, folder: Path) -> Path:
    try:
        return Path(
            pooch.retrieve(
                download.url,
                known_hash=f"md5:{download.md5}",
                fname=download.name,
                path=folder,
                progressbar=sys.stderr.isatty(),
            )
        )
    except OSError as error:
        reason = f"{download.url} could not be fetched ({type(error).__name__})."
        raise DataError(f"{reason} {missing_message(source, root)}") from error
    except ValueError as error:
        reason = f"{download.url} does not have the known hash md5:{download.md5}; nothing was kept."
        raise DataError(f"{reason} {missing_message(source, root)}") from error


def _unpack(archive: Path, folder: str, root: Path) -> None:
    """Move the archive's files of that folder to their place, each of them whole."""
    (root / folder).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root) as unpacked:
        try:
            with tarfile.open(archive) as tar:
                tar.extractall(unpacked, filter="data")
        except tarfile.TarError as error:
            raise DataError(f"{archive} cannot be unpacked ({error}). Remove it and try again.") from error
        for path in Path(unpacked, folder).iterdir():
            os.replace(path, root / folder / path.name)
