"""The documentation site: built without a warning, whole, and with nothing fetched from elsewhere."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

from bcsc.cli import COMMANDS

pytest.importorskip("mkdocs")

from website.pictures import FOLDER, pictures
from website.reference import PACKAGES, api_pages, command_line_page

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", pictures())
def test_the_pictures_are_what_the_library_draws(name: str) -> None:
    assert (FOLDER / name).read_text() == pictures()[name], "make pictures"


def test_every_public_name_is_in_the_reference() -> None:
    for package in PACKAGES:
        page = api_pages()[f"api/{package.removeprefix('bcsc.')}.md"]
        names = getattr(import_module(package), "__all__", [])
        assert [name for name in names if not re.search(rf"[.`]{name}[`\n]", page)] == []


def test_every_command_and_option_is_on_the_page_on_the_command_line() -> None:
    page = command_line_page()
    assert all(f"\n## bcsc {name}\n" in page for name in COMMANDS)
    assert "| `--blocks BLOCKS` |" in page or "| `--blocks M` |" in page


class Links(HTMLParser):
    """What a page links to and loads, and where one can link to in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attributes if value is not None}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag in ("link", "script", "img", "iframe"):
            self.loaded += [
                given[name] for name in ("href", "src") if name in given and given.get("rel") != "canonical"
            ]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Links]:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert built.returncode == 0, built.stderr + built.stdout
    return {page: Links(page.read_text()) for page in folder.rglob("*.html")}


@pytest.mark.slow
def test_the_site_is_built_and_all_its_links_lead_somewhere(site: dict[Path, Links]) -> None:
    assert len(site) > 100
    for page, found in site.items():
        if page.name == "404.html":  # whose links are from the root, as it may stand for any page
            continue
        for link in [*found.links, *found.loaded]:
            target, anchor = urldefrag(link)
            if "://" in link or link.startswith(("mailto:", "data:")):
                continue
            path = (page.parent / unquote(target)).resolve() if target else page
            assert path.exists(), f"{page}: {link}"
            if anchor and path in site:
                assert unquote(anchor) in site[path].anchors, f"{page}: {link}"


@pytest.mark.slow
def test_what_pages_link_to_outside_docs_is_in_the_site(site: dict[Path, Links]) -> None:
    names = {str(page).partition("/files/")[2] for page in site}
    assert {"examples/fsdp2.py.html", "records/index.html", "docs/decisions/index.html"} <= names
    assert not [name for name in names if name.endswith("README.md.html")]  # it is what its folder says of itself


@pytest.mark.slow
def test_the_examples_of_docstrings_are_shown_as_code(site: dict[Path, Links]) -> None:
    """A section of any name but "Examples" would be a box of run-on text."""
    (page,) = (page for page in site if page.match("api/integrations.html"))
    assert "Examples:" in page.read_text()
    assert "<details" not in page.read_text()


@pytest.mark.slow
def test_nothing_is_fetched_from_elsewhere(site: dict[Path, Links]) -> None:
    assert {link for found in site.values() for link in found.loaded if "//" in link} == set()
