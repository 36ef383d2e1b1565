"""``bcsc reproduce``: run what stands behind a table or figure of the paper, and report on it."""

import argparse

from bcsc.cli.compare import add_campaign_arguments, carry_out, cuts_in
from bcsc.errors import InvalidArgumentError, check_choice
from bcsc.experiments.catalog import EXPERIMENTS, cut_down, plan_text
from bcsc.experiments.experiment import Experiment


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The experiment, where it goes, and how to cut it down."""
    parser.add_argument("name", nargs="?", metavar="NAME", help=f"one of {', '.join(EXPERIMENTS)}")
    parser.add_argument(
        "--list", action="store_true", help="the experiments, their runs and their time on this machine"
    )
    parser.add_argument("--show", action="store_true", help="print the plan, as a start for one of your own")
    add_campaign_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """List the experiments, show one, or reproduce it."""
    names = [check_choice("The experiment", arguments.name, EXPERIMENTS)] if arguments.name else list(EXPERIMENTS)
    if arguments.list:
        return list_experiments([cut_down(EXPERIMENTS[name], **cuts_in(arguments)) for name in names])
    if not arguments.name:
        raise InvalidArgumentError(
            f"Name an experiment, one of {', '.join(EXPERIMENTS)}; bcsc reproduce --list shows them."
        )
    if arguments.show:
        print(plan_text(arguments.name), end="")
        return 0
    return carry_out(arguments.name, arguments)


def list_experiments(experiments: list[Experiment]) -> int:
    """One line each, as soon as its networks are timed."""
    from bcsc.experiments.campaigns.estimate import estimate_seconds
    from bcsc.runs.watch import duration

    print(f"{'experiment':<14}{'runs':>5}{'time here':>16}  question", flush=True)
    for experiment in experiments:
        runs = experiment.runs()
        seconds = sum(estimate_seconds(planned.spec) for planned in runs)
        note = f" ({experiment.note})" if experiment.note else ""
        print(f"{experiment.name:<14}{len(runs):>5}{duration(seconds):>16}  {experiment.question}{note}", flush=True)
    return 0
