"""``bcsc demo``: a first look in under two minutes, without a network connection."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where the runs go."""
    parser.add_argument(
        "--out", type=Path, default=Path("demo"), metavar="DIR", help="folder of the runs (default: demo)"
    )
    parser.add_argument("--restart", action="store_true", help="train anew; old runs are kept aside")


def run(arguments: argparse.Namespace) -> int:
    """Train, then show the table and write the report."""
    from bcsc.experiments import demo
    from bcsc.reports.write import require_extras, write_report
    from bcsc.runs.run import RunOptions
    from bcsc.runs.run import run as run_spec
    from bcsc.runs.watch import watcher_for

    require_extras()
    print("LeNet4 on 1,437 real handwritten digits (UCI), of which 15 % carry a wrong label; tested on 360 clean ones.")
    results = {}
    for name, spec in demo.RUNS.items():
        print(f"\n{name}: {spec.epochs} epochs at rate {spec.lr or 0.1:g}")
        with watcher_for(spec.epochs) as watcher:
            folder = arguments.out / name.lower().replace(", ", "-").replace(" ", "-")
            results[name] = run_spec(spec, folder, RunOptions(restart=arguments.restart, watcher=watcher))
    page = write_report(arguments.out)
    print(f"\n{demo.aligned(demo.table(results))}\n")
    print(
        f"An epoch of BCSC with M = {demo.BLOCKS} blocks computes {demo.BLOCKS} times the gradients of an SGD epoch.\n"
        f"The last row gives SGD as many gradients, at 1/{demo.BLOCKS} of the rate. "
        "One seed: a first look, not a result."
    )
    print(f"Curves: {page.parent / 'other-runs-epochs.png'} and beside it\nReport: {page}")
    return 0
