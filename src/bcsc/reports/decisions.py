"""What was decided before the final runs of a study, as a table: the choice, what was tried, and doubts."""

from collections.abc import Mapping

from bcsc.experiments.study import Study
from bcsc.experiments.tuning import Decision
from bcsc.reports.tables import Column, Table, columns_of_places

HOW = "Chosen by accuracy on held-out training samples, {seeds} that no final run has; the test set was not used."


def decisions_of(study: Study) -> Table | None:
    """A row per network, condition and method that was tuned or timed; nothing where the plan left nothing open."""
    if not study.decisions:
        return None
    decisions = study.decisions.values()
    num_seeds = max((len(one.accuracies) for decision in decisions for one in decision.candidates), default=0)
    columns = {
        "Chosen": [decision.choice for decision in decisions],
        "On held-out samples": ["; ".join(decision.tried) for decision in decisions] if num_seeds else [],
        "Seconds per epoch": [_seconds(decision) for decision in decisions],
        "Note": ["; ".join(decision.warnings) for decision in decisions],
    }
    return Table(
        title="What was decided before the final runs",
        notes=(HOW.format(seeds="at one seed" if num_seeds == 1 else f"in the mean of {num_seeds} seeds"),)
        if num_seeds
        else (),
        columns=(*columns_of_places(list(study.decisions))[0], *_filled(columns)),
    )


def _seconds(decision: Decision) -> str:
    return "" if decision.seconds_per_epoch is None else f"{decision.seconds_per_epoch:.2f}"


def _filled(columns: Mapping[str, list[str]]) -> list[Column]:
    """The columns with anything in them."""
    return [Column(head, "word", tuple(cells)) for head, cells in columns.items() if any(cells)]
