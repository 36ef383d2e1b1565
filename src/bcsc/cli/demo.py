"""``bcsc demo``: a first look in under two minutes, without a network connection."""

import argparse
from pathlib import Path

from bcsc.cli import folder_name


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where the runs go."""
    parser.add_argument(
        "--out", type=folder_name, default=Path("demo"), metavar="DIR", help="folder of the runs (default: demo)"
    )
    parser.add_argument("--restart", action="store_true", help="train anew; old runs are kept aside")


def run(arguments: argparse.Namespace) -> int:
    """Train, then show the table and write the report."""
    from bcsc.experiments import first_look
    from bcsc.reports.write import require_extras, write_report
    from bcsc.runs.run import RunOptions
    from bcsc.runs.run import run as run_spec
    from bcsc.runs.watch import folded_watchers

    require_extras()
    print(first_look.QUESTION)
    results = {}
    with folded_watchers({name: spec.epochs for name, spec in first_look.RUNS.items()}) as watchers:
        for name, spec in first_look.RUNS.items():
            folder = arguments.out / name.lower().replace(", ", "-").replace(" ", "-")
            options = RunOptions(restart=arguments.restart, watcher=watchers[name])
            results[name] = run_spec(spec, folder, options)
    page = write_report(arguments.out)
    summaries = {name: result.summary for name, result in results.items()}
    print(f"\n{first_look.aligned(first_look.table(summaries))}\n")
    print(
        *first_look.conclusion({name: summary["test_accuracy"]["final"] for name, summary in summaries.items()}),
        sep="\n",
    )
    print(f"Curves: {page.parent / f'{first_look.NAME}-accuracy.png'} and beside it\nReport: {page}")
    return 0
