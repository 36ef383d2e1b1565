"""Campaigns that take no time."""

import pytest

from bcsc.experiments.campaigns import local
from bcsc.reports import write
from tests.fake_trainer import InThisProcess


@pytest.fixture
def quick_campaigns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake trainer, and a report that draws no figures."""
    monkeypatch.setattr(local, "LocalProcesses", lambda _num_jobs: InThisProcess())
    monkeypatch.setattr(write, "write_figures", lambda *_: [])
    monkeypatch.setattr("bcsc.reports.page.plotly_js", lambda: "")
    monkeypatch.setattr(write, "require_extras", lambda: None)
