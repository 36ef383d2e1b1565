"""A report is written beside the runs, whole, and refuses early what it cannot do."""

import errno
import os
import re
from pathlib import Path

import pytest

from bcsc.errors import InvalidArgumentError, MissingExtraError
from bcsc.experiments import first_look
from bcsc.experiments.study import read_studies
from bcsc.files import WriteError
from bcsc.reports import write
from bcsc.runs.spec import RunSpec
from tests.run_folders import write_run, write_study


@pytest.mark.slow
def test_a_report_holds_tables_figures_claims_and_the_page(tmp_path: Path) -> None:
    pytest.importorskip("plotly", reason="the page needs plotly: pip install 'bcsc[report]'")
    write_study(tmp_path, "cifar10-deep", epochs=3, seeds=[0], models=["googlenet"])
    page = write.write_report(tmp_path)
    assert page == tmp_path / "report" / "index.html"
    assert {path.suffix for path in page.parent.iterdir()} == {".md", ".csv", ".tex", ".png", ".pdf", ".html"}
    claims = (page.parent / "claims.md").read_text()
    assert "**not decided in 1 of 2 networks, at 3 of 200 epochs, with 1 of 3 seeds of cifar10-deep" in claims
    assert "cifar10-deep, GoogLeNet: BCSC M=8 over SGD, all: +" in claims
    assert "cut down: 3 of 200 epochs, 1 of 2 networks, 1 of 3 seeds" in claims


def test_a_folder_without_runs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "require_extras", lambda: None)
    with pytest.raises(InvalidArgumentError, match="There are no runs in"):
        write.write_report(tmp_path)


def test_a_missing_library_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "find_spec", lambda name: None if name == "plotly" else object())
    with pytest.raises(MissingExtraError, match=r"A report needs plotly: pip install 'bcsc\[report\]'"):
        write.require_extras()


def test_every_file_is_written_whole_and_a_full_disk_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced = []

    def replace(source: Path, target: Path) -> None:
        if full and target.name == "index.html":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replaced.append(target)
        os.rename(source, target)

    monkeypatch.setattr("bcsc.files.os.replace", replace)
    monkeypatch.setattr("bcsc.reports.page.plotly_js", lambda: "")
    full = False
    write_run(tmp_path / "run", RunSpec(epochs=2))
    page = write.write_report(tmp_path)
    good = page.read_bytes()
    assert set(page.parent.iterdir()) == {path for path in replaced if path.parent == page.parent}

    full = True
    write_run(tmp_path / "run", RunSpec(epochs=2), accuracy=lambda *_: 50.0)
    with pytest.raises(WriteError, match="Cannot write .*index.html: No space left on device"):
        write.write_report(tmp_path)
    assert page.read_bytes() == good
    assert set(page.parent.iterdir()) == {path for path in replaced if path.parent == page.parent}, (
        "nothing half-written is left behind"
    )


def test_the_same_runs_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bcsc.reports.page.plotly_js", lambda: "")
    write_run(tmp_path / "run", RunSpec(epochs=2))
    pages = [write.write_report(tmp_path, out=tmp_path / name) for name in ("first", "second")]
    first, second = ({path.name: path.read_bytes() for path in page.parent.iterdir()} for page in pages)
    assert first == second
    assert "other-runs-accuracy.png" in first


def test_one_page_reports_on_several_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bcsc.reports.page.plotly_js", lambda: "")
    monkeypatch.setattr(write, "write_figures", lambda *_: [])
    monkeypatch.chdir(tmp_path)
    for name, epochs in (("short", 2), ("long", 3)):
        write_study(tmp_path / "studies" / name, "cifar10-deep", epochs=epochs, seeds=[0], models=["googlenet"])
    write_study(tmp_path / "blocks", "blocks", epochs=2, seeds=[0], models=["lenet4"])
    write_run(tmp_path / "a", RunSpec(epochs=2))
    write_run(tmp_path / "b", RunSpec(epochs=2, method="sgd"))
    roots = [Path(name) for name in ("studies", "studies/short", "blocks", "a", "b", "./a")]
    page = write.write_report(*roots)
    assert page == Path("report/index.html")
    assert {path.stem for path in page.parent.glob("*.csv")} == {"short", "long", "blocks", "other-runs"}
    text = page.read_text()
    assert [text.count(f'data-run="{index}"') for index in range(12)] == [1] * 11 + [0], "5 + 2 x 2 + 2 runs, each once"
    other = (page.parent / "other-runs.md").read_text()
    assert "| BCSC M=8 |" in other
    assert "| SGD |" in other


def test_the_demo_concludes_only_on_a_page_of_its_own(tmp_path: Path) -> None:
    for name, spec in first_look.RUNS.items():
        write_run(tmp_path / "demo" / name, spec)
    assert len(write.conclusion_of(read_studies(tmp_path)[0])) == 3
    write_study(tmp_path / "study", "blocks", epochs=2, seeds=[0], models=["lenet4"])
    assert write.conclusion_of(read_studies(tmp_path)[0]) == []


def test_a_damaged_folder_is_a_line_on_the_page_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bcsc.reports.page.plotly_js", lambda: "")
    monkeypatch.setattr(write, "write_figures", lambda *_: [])
    write_study(tmp_path / "good", "cifar10-deep", epochs=2, seeds=[0])
    damage = {
        "run.toml": ["", "epochs =", 'epochs = "two"', "a = " + "[" * 5000, "epochs = 1e999"],
        "summary.json": ["", "[]", "{}", "[" * 100_000, '{"state": 1}', '{"state": "finished", "epochs": "x"}'],
        "metrics.jsonl": ["x\n", "[]\n", '{"epoch": "one"}\n', "[" * 100_000 + "\n"],
        "origin.json": ["[]", "1", "[" * 100_000, "\x00"],
    }
    bad = [(name, text) for name, texts in damage.items() for text in texts]
    for index, (name, text) in enumerate(bad):
        (write_run(tmp_path / "bad" / str(index), RunSpec(epochs=2, seed=index)) / name).write_text(text)
    text = write.write_report(tmp_path).read_text()
    lines = re.findall("<li>(.*?)</li>", text[text.index('id="damaged"') :])
    for index, (name, _) in enumerate(bad):
        assert [line for line in lines if f"/bad/{index}/" in line or f"/bad/{index} " in line], (name, index)
    assert len(lines) == len(bad)
    assert 'id="cifar10-deep"' in text
