"""``bcsc reproduce``: run what stands behind a table or figure of the paper, and report on it."""

import argparse

from bcsc.cli.compare import add_campaign_arguments, carry_out, cut_down_to, cuts_in
from bcsc.errors import InvalidArgumentError, check_choice
from bcsc.experiments.catalog import EXPERIMENTS, plan_text
from bcsc.experiments.experiment import Experiment


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The experiment, where it goes, and how to cut it down."""
    parser.add_argument("name", nargs="?", metavar="NAME", help=f"one of {', '.join(EXPERIMENTS)}")
    parser.add_argument(
        "--list", action="store_true", help="the experiments, their runs and their time on this machine"
    )
    parser.add_argument("--time", action="store_true", help="with --list: time every network first, for minutes")
    parser.add_argument("--show", action="store_true", help="print the plan, as a start for one of your own")
    add_campaign_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """List the experiments, show one, or reproduce it."""
    names = [check_choice("The experiment", arguments.name, EXPERIMENTS)] if arguments.name else list(EXPERIMENTS)
    if arguments.list:
        experiments = [cut_down_to(EXPERIMENTS[name], cuts_in(arguments)) for name in names]
        return list_experiments(experiments, time_each=arguments.time)
    if not arguments.name:
        raise InvalidArgumentError(
            f"Name an experiment, one of {', '.join(EXPERIMENTS)}; bcsc reproduce --list shows them."
        )
    if arguments.show:
        print(plan_text(arguments.name), end="")
        return 0
    return carry_out(arguments.name, arguments)


def list_experiments(experiments: list[Experiment], *, time_each: bool) -> int:
    """One line each, with what it would take here."""
    from bcsc.experiments.campaigns import estimate
    from bcsc.training.history import duration

    per_image = estimate.measured_seconds_per_image if time_each else estimate.tabled_seconds_per_image
    print(f"{'experiment':<14}{'runs':>5}{'time here':>14}  question", flush=True)
    for experiment in experiments:
        runs = experiment.runs()
        seconds = sum(estimate.estimate_seconds(planned.spec, per_image) for planned in runs)
        note = f" ({experiment.note})" if experiment.note else ""
        took = f"{experiment.name:<14}{len(runs):>5}{duration(seconds):>14}"
        print(f"{took}  {experiment.question}{note}", flush=True)
    how = (
        "from timing each network"
        if time_each
        else "from a table of networks and the speed of LeNet4 (--time times each)"
    )
    print(f"Times are of one run after the other, {how}. Smaller: --models lenet4 --epochs 20, which --list takes too.")
    return 0
