"""The layout that docs/architecture.md promises."""

import ast
from collections import Counter
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGE = REPOSITORY / "src" / "bcsc"
ROOTS = (PACKAGE, REPOSITORY / "benchmarks", REPOSITORY / "studies")
MODULES = sorted(path for root in ROOTS for path in root.rglob("*.py"))
FOLDERS = sorted({path.parent for path in MODULES if path.parent.name != "models"})


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_no_module_is_longer_than_a_person_can_hold(module: Path) -> None:
    assert len(module.read_text().splitlines()) <= 300


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_no_folder_is_crowded(folder: Path) -> None:
    assert len([path for path in folder.iterdir() if path.is_file()]) <= 9


def definitions(module: Path) -> list[str]:
    """The public functions and classes at the top of a module."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    return [
        node.name
        for node in ast.parse(module.read_text()).body
        if isinstance(node, kinds) and not node.name.startswith("_")
    ]


def test_no_public_name_is_defined_twice() -> None:
    modules = [path for path in PACKAGE.rglob("*.py") if path.parent.name != "cli"]
    counts = Counter(name for module in modules for name in definitions(module))
    assert [name for name, count in counts.items() if count > 1] == []


def test_no_module_name_stands_for_two_things() -> None:
    counts = Counter(path.stem for path in PACKAGE.rglob("*.py") if path.stem not in ("__init__", "__main__"))
    assert [name for name, count in counts.items() if count > 1] == []


def test_the_page_on_architecture_names_every_package_and_every_layer() -> None:
    page = (REPOSITORY / "docs" / "architecture.md").read_text()
    packages = [path.parent.name for path in PACKAGE.glob("*/__init__.py")]
    assert packages
    assert [name for name in packages if f"  {name}/" not in page or f"`{name}`" not in page] == []


def test_the_life_of_a_step_takes_six_hops_through_files_that_are_there() -> None:
    page = (REPOSITORY / "docs" / "architecture.md").read_text().split("## The life of a step")[1].split("##")[0]
    hops = [line.split("`")[1] for line in page.splitlines() if line[:2] in ("1.", "2.", "3.", "4.", "5.", "6.", "7.")]
    assert len(hops) <= 6
    assert all((PACKAGE / hop).is_file() for hop in hops)
