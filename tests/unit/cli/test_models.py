"""``bcsc models``."""

from bcsc.cli import main
from bcsc.models import MODELS


def test_it_lists_every_network_with_its_cost_and_paper(capsys):
    assert main(["models"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["network", "parameters", "multiply-adds", "paper"]
    assert [row.split()[0] for row in rows] == list(MODELS)
    assert rows[0].split()[:3] == ["lenet4", "52,202", "642,000"]
    assert all(row.endswith(model.paper) for row, model in zip(rows, MODELS.values(), strict=True))


def test_its_columns_are_aligned(capsys):
    main(["models"])
    header, *rows = capsys.readouterr().out.splitlines()
    start = header.index("paper")
    assert all(row[start:] == model.paper for row, model in zip(rows, MODELS.values(), strict=True))
