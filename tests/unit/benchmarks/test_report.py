"""The benchmark runs and writes its record; what it measures is for ``make bench``."""

import json
from pathlib import Path

import pytest

from bcsc.cli import main
from benchmarks.__main__ import benchmark_parser
from benchmarks.clock import Ratio, interleaved, repeated
from benchmarks.goals.growth import Line
from benchmarks.page import newest_record, performance_page
from benchmarks.report import comparison, read

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")  # DataLoader workers
def test_the_tiny_benchmark_runs_and_writes_its_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--tiny", "--out", str(tmp_path)], benchmark_parser) == 0
    (path,) = tmp_path.glob("*.json")
    record = json.loads(path.read_text())
    assert {row["goal"] for row in record["ratios"]} == {1, 2, 3, 4, 5, 6}
    assert all(row["value"] >= 0 for row in record["ratios"])
    assert all(row["repeats"] == [row["value"]] for row in record["ratios"])
    assert record["machine"]["processor"]
    assert record["machine"]["cores"] >= 1
    assert record["tiny"]
    page = performance_page(record, path.stem)
    assert record["machine"]["processor"] in " ".join(page.split())
    assert all(row["name"] in page for row in record["ratios"])
    assert path.with_suffix(".png").stat().st_size > 1000
    assert f"in {path}; so tiny, the times mean nothing" in capsys.readouterr().out


def test_contestants_take_turns() -> None:
    calls: list[str] = []
    medians = interleaved({name: lambda name=name: calls.append(name) for name in "ab"}, rounds=2)
    assert calls == list("ababab")
    assert list(medians) == ["a", "b"]


def test_a_straight_line_is_straight_and_a_parabola_is_not() -> None:
    sizes = [1.0, 2.0, 4.0, 8.0]
    assert Line("x", sizes, [3 * x + 1 for x in sizes]).straightness == pytest.approx(1)
    assert Line("x", sizes, [x**3 for x in sizes]).straightness < 0.95


def test_a_comparison_has_the_change_of_every_measurement_that_both_have() -> None:
    old = {"ratios": [{"name": "step", "value": 2.0}, {"name": "gone", "value": 1.0}]}
    new = {"ratios": [{"name": "step", "value": 1.5}, {"name": "new", "value": 1.0}]}
    assert comparison(old, new) == ["step: 2.000 -> 1.500 (-25%)"]


def test_a_record_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "old.json").write_text("no json")
    assert main(["--tiny", "--compare", str(tmp_path / "old.json")], benchmark_parser) == 2
    assert "cannot be read as a benchmark's record" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("repeats", "most", "verdict"),
    [
        ((1.0, 1.02), 1.05, "met"),
        ((1.0, 1.02), 1.0, "neither"),
        ((1.1, 1.3), 1.05, "neither"),
        ((1.2, 1.3), 1.05, "missed"),
        ((30.0, 30.0), 30.0, "met"),
        ((31.0, 31.0), 30.0, "missed"),
        ((1.0, 1.0), None, ""),
    ],
)
def test_a_goal_within_the_noise_is_neither_met_nor_missed(repeats, most, verdict: str) -> None:
    both = [Ratio(1, "step", value, most, {"here": value, "there": 1.0}) for value in repeats]
    together = repeated(both)
    assert together.verdict == verdict
    assert together.value == together.seconds["here"] == pytest.approx(sum(repeats) / 2)
    assert together.plain()["repeats"] == repeats


def test_the_page_is_that_of_the_newest_record() -> None:
    path = newest_record()
    assert (ROOT / "docs" / "performance.md").read_text() == performance_page(read(path), path.stem)


def test_the_page_can_be_written_by_one_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--page", str(tmp_path / "page.md")], benchmark_parser) == 0
    assert (tmp_path / "page.md").read_text() == (ROOT / "docs" / "performance.md").read_text()
    assert "page.md from" in capsys.readouterr().out
