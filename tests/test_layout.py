"""The layout that docs/architecture.md promises."""

import ast
import re
import tomllib
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


def test_the_page_on_architecture_has_the_layers_that_are_checked() -> None:
    contracts = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [re.findall(r"bcsc\.(\w+)", layer) for layer in contracts[0]["layers"]]
    page = (
        (REPOSITORY / "docs" / "architecture.md").read_text().partition("## Who may import whom")[2].partition("##")[0]
    )
    assert [re.findall(r"`(\w+)`", row) for row in re.findall(r"^\| \d.*$", page, re.MULTILINE)] == layers


def test_the_contract_without_torch_covers_all_of_the_evidence_half_but_what_trains() -> None:
    contracts = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    covered = set(contracts[1]["source_modules"])
    evidence = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for path in (PACKAGE / "experiments").rglob("*.py")
        if path.stem != "__init__"
    }
    assert evidence - covered == {"bcsc.experiments.campaigns.ray", "bcsc.experiments.campaigns.estimate"}
    assert "bcsc.reports" in covered


def test_the_life_of_a_step_takes_six_hops_through_files_that_are_there() -> None:
    page = (REPOSITORY / "docs" / "architecture.md").read_text().split("## The life of a step")[1].split("##")[0]
    hops = [line.split("`")[1] for line in page.splitlines() if line[:2] in ("1.", "2.", "3.", "4.", "5.", "6.", "7.")]
    assert len(hops) <= 6
    assert all((PACKAGE / hop).is_file() for hop in hops)


# A module has its tests in the file of tests/unit that mirrors it, or is tested with another: that file is named here.
TESTED_WITH = {
    "bcsc/choices": "unit/runs/test_spec.py",
    "bcsc/data/decoders/arrays": "unit/data/decoders/test_decoders.py",
    "bcsc/data/decoders/cifar": "unit/data/decoders/test_decoders.py",
    "bcsc/data/decoders/mnist": "unit/data/decoders/test_decoders.py",
    "bcsc/data/registry": "unit/data/test_real_data.py",
    "bcsc/data/source": "unit/data/test_fetching.py",
    "bcsc/errors": "unit/cli/test_train.py",
    "bcsc/experiments/campaigns/local": "unit/experiments/campaigns/test_campaign.py",
    "bcsc/experiments/campaigns/progress": "unit/experiments/campaigns/test_campaign.py",
    "bcsc/experiments/campaigns/ray": "distributed/test_ray.py",
    "bcsc/experiments/experiment": "unit/experiments/test_catalog.py",
    "bcsc/experiments/first_look": "unit/cli/test_demo.py",
    "bcsc/experiments/planning/arms": "unit/experiments/planning/test_plan_file.py",
    "bcsc/experiments/planning/places": "unit/experiments/planning/test_plan_file.py",
    "bcsc/experiments/planning/sayings": "unit/reports/test_claims.py",
    "bcsc/integrations/distributed_state": "integrations/test_fsdp.py",
    "bcsc/kernels/loops": "unit/kernels/test_passes.py",
    "bcsc/optim/updates/active_block": "unit/optim/test_masking.py",
    "bcsc/optim/updates/alignment": "unit/optim/updates/test_moves.py",
    "bcsc/optim/updates/settings": "unit/optim/updates/test_moves.py",
    "bcsc/origin": "unit/runs/test_run.py",
    "bcsc/reports/judging/cases": "unit/reports/test_claims.py",
    "bcsc/seeding": "unit/optim/test_partition.py",
    "bcsc/training/watcher": "unit/runs/test_watch.py",
    "bcsc/version": "unit/test_public_names.py",
}
TESTS = REPOSITORY / "tests"
UNITS = [path for path in MODULES if PACKAGE in path.parents and path.stem not in ("__init__", "__main__")]


def test_the_tests_mirror_the_package() -> None:
    homes = {str(path.relative_to(PACKAGE.parent).with_suffix("")): path.relative_to(PACKAGE) for path in UNITS}
    homes = {name: home for name, home in homes.items() if home.parent.name != "models"}  # the contracts try each
    mirrored = {name: f"unit/{home.parent}/test_{home.stem}.py" for name, home in homes.items()}
    alone = {name for name, test in mirrored.items() if not (TESTS / test).exists()}
    assert alone == set(TESTED_WITH), "give a module a file of tests, or say with which it is tested"
    assert [name for name, test in TESTED_WITH.items() if not (TESTS / test).exists()] == []


def test_every_folder_of_unit_tests_is_one_of_the_package_or_beside_it() -> None:
    tested = {path.parent.relative_to(TESTS / "unit") for path in (TESTS / "unit").rglob("test_*.py")}
    beside = tested - {path.parent.relative_to(PACKAGE) for path in UNITS}
    assert [folder for folder in beside if not list((REPOSITORY / folder).glob("*.py"))] == []
