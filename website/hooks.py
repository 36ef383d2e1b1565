"""Called by mkdocs: the navigation from what is there, pages from the package, and what links leave docs/ for.

A page may link to any file of the repository, as it is read there. On the site such a file is a page or a copy under
``files/``, and the link leads to it.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from website.reference import api_pages, command_line_page

ROOT = Path(__file__).parents[1]
READ_ELSEWHERE = {"index.md": "README.md", "contributing.md": "CONTRIBUTING.md", "changes.md": "CHANGELOG.md"}
LINK = re.compile(r"(\]\()(?!\w+:|#|/)([^)\s]+)(\))")
SHOWN = {".py": "python", ".toml": "toml", ".json": "json", ".jsonl": "json", ".md": "markdown"}
LONG = 4_000  # characters; a longer file of a folder is linked, not shown


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace ``folder/*`` in the navigation by the pages of the folder."""
    config.nav = [entry for entry in map(with_pages_of_folders, config.nav or []) if entry]
    return config


def with_pages_of_folders(entry: Any) -> Any:
    """A part of the navigation; nothing for a folder without pages."""
    if isinstance(entry, dict):
        ((title, below),) = entry.items()
        found = pages_of(below[:-2]) if isinstance(below, str) and below.endswith("/*") else below
        if isinstance(found, list):
            found = [each for each in map(with_pages_of_folders, found) if each]
        return {title: found} if found else None
    return entry


def pages_of(folder: str) -> list[str]:
    """The pages of a folder of docs/, or those that are made for it."""
    there = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs" / folder).glob("*.md")]
    return sorted({*there, *[name for name in api_pages() if posixpath.dirname(name) == folder]})


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/, and all that pages link to outside it."""
    made = {**api_pages(), "command-line.md": command_line_page()}
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    for name, source in READ_ELSEWHERE.items():
        files.append(File.generated(config, name, content=(ROOT / source).read_text()))
    todo = [name for file in files.documentation_pages() for name in outside(file.src_uri, file.content_string)]
    while todo:
        path = todo.pop()
        for name, content in as_files(path).items():
            if files.get_file_from_path(name) is None:
                files.append(File.generated(config, name, content=content, inclusion=InclusionLevel.NOT_IN_NAV))
                todo += outside(name, content) if isinstance(content, str) and name.endswith(".md") else []
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links that leave docs/ lead to where the site has the file."""
    here = page.file.src_uri

    def led(link: re.Match[str]) -> str:
        path, anchor = resolved(here, link[2])
        target = place_of(path)
        if target is None:
            return link[0]  # mkdocs says that there is no such page
        return f"{link[1]}{posixpath.relpath(target, posixpath.dirname(here))}{anchor}{link[3]}"

    return LINK.sub(led, markdown)


def source_of(page: str) -> str:
    """The path in the repository of which a page of the site is made, or that it would have there."""
    if page in READ_ELSEWHERE:
        return READ_ELSEWHERE[page]
    return page.removeprefix("files/") if page.startswith("files/") else f"docs/{page}"


def resolved(page: str, link: str) -> tuple[str, str]:
    """What a link of a page leads to in the repository, and the anchor there."""
    target, mark, anchor = link.partition("#")
    source = source_of(page)
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), target)), mark + anchor


def place_of(path: str) -> str | None:
    """The page or file of the site that stands for a path of the repository; None if there is no such path."""
    for page, source in READ_ELSEWHERE.items():
        if path == source:
            return page
    if path.startswith("docs/") and (ROOT / path).is_file():
        return path.removeprefix("docs/")
    if (ROOT / path).is_dir() or posixpath.basename(path) == "README.md":
        return f"files/{path.removesuffix('/README.md')}/index.md"
    if not (ROOT / path).is_file():
        return None
    return f"files/{path}.md" if Path(path).suffix in SHOWN else f"files/{path}"


def outside(page: str, text: str) -> Iterator[str]:
    """The paths outside docs/ that a page links to."""
    for link in LINK.finditer(text):
        path, _ = resolved(page, link[2])
        if (place_of(path) or "").startswith("files/"):
            yield path


def as_files(path: str) -> dict[str, str | bytes]:
    """What the site has of a file or folder of the repository: a page that shows it, or a copy."""
    name, source = place_of(path), ROOT / path.removesuffix("/README.md")
    if name is None:
        return {}
    if source.is_dir():
        return {name: folder_page(source)}
    return {name: HIDDEN + f"# {path}\n\n{fenced(source)}" if source.suffix in SHOWN else source.read_bytes()}


HIDDEN = "---\nsearch:\n  exclude: true\n---\n\n"  # from the search


def folder_page(folder: Path) -> str:
    """What a folder says of itself, its files, short ones shown unless they are pages, and the folders in it."""
    readme, path = folder / "README.md", folder.relative_to(ROOT).as_posix()
    parts = [HIDDEN + (readme.read_text() if readme.exists() else f"# {path}")]
    entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith((".", "__pycache__", "README")))
    short = [entry for entry in entries if entry.suffix in SHOWN and entry.stat().st_size <= LONG]
    shown = [] if path.startswith("docs/") else short
    parts.append("\n".join(f"- [{entry.name}]({entry.name})" for entry in entries if entry not in shown))
    parts += [f"## {entry.name}\n\n{fenced(entry)}" for entry in shown]
    return "\n\n".join(parts) + "\n"


def fenced(source: Path) -> str:
    """The text of a file as a block of code."""
    return f"````{SHOWN[source.suffix]}\n{source.read_text().rstrip()}\n````\n"
