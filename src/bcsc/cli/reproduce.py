"""``bcsc reproduce``: run what stands behind a table or figure of the paper, and report on it."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bcsc.errors import DamagedRunError, InvalidArgumentError, check_choice
from bcsc.experiments.catalog import EXPERIMENTS, Experiment, cut_down

if TYPE_CHECKING:
    from bcsc.experiments.campaign import Engine

CUTS = ("epochs", "models", "seeds", "blocks", "subset")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The experiment, where it goes, and how to cut it down."""
    parser.add_argument("name", nargs="?", metavar="NAME", help=f"one of {', '.join(EXPERIMENTS)}")
    parser.add_argument(
        "--list", action="store_true", help="the experiments, their runs and their time on this machine"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="for the runs and the report (default: results/NAME)")
    parser.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="runs at a time, which share the cores (default: one per core for lenet4 alone, else one)",
    )
    parser.add_argument(
        "--engine", choices=("local", "ray"), default="local", help="processes here, or tasks of a Ray cluster"
    )
    parser.add_argument("--address", metavar="HOST:PORT", help="of the Ray cluster; without it one is started here")
    cuts = parser.add_argument_group("to cut an experiment down, which its results then say")
    cuts.add_argument("--epochs", type=int, metavar="N", help="the staircase of learning rates scales with them")
    cuts.add_argument("--models", type=_words, metavar="A,B", help="only these networks")
    cuts.add_argument("--seeds", type=_numbers, metavar="0,1,2", help="these seeds")
    cuts.add_argument("--blocks", type=_numbers, metavar="2,8", help="these numbers of blocks M")
    cuts.add_argument("--subset", type=int, metavar="N", help="only the first N training samples")


def _words(text: str) -> list[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise argparse.ArgumentTypeError(f"expected names such as lenet4,vgg19, got {text!r}")
    return words


def _numbers(text: str) -> list[int]:
    try:
        return [int(word) for word in _words(text)]
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected whole numbers such as 0,1,2, got {text!r}") from error


def run(arguments: argparse.Namespace) -> int:
    """List the experiments, or reproduce one."""
    cut = {name: value for name in CUTS if (value := getattr(arguments, name)) is not None}
    names = [check_choice("The experiment", arguments.name, EXPERIMENTS)] if arguments.name else list(EXPERIMENTS)
    if arguments.list:
        return list_experiments([cut_down(EXPERIMENTS[name], **cut) for name in names])
    if not arguments.name:
        raise InvalidArgumentError(
            f"Name an experiment, one of {', '.join(EXPERIMENTS)}; bcsc reproduce --list shows them."
        )
    out = arguments.out or Path("results") / arguments.name
    return reproduce(arguments.name, cut, out, build_engine(arguments))


def build_engine(arguments: argparse.Namespace) -> "Engine":
    """Where the runs are carried out."""
    if arguments.engine == "ray":
        from bcsc.experiments.ray_engine import RayTasks

        return RayTasks(arguments.address)
    if arguments.address is not None:
        raise InvalidArgumentError("--address is that of a Ray cluster: give --engine ray with it.")
    from bcsc.experiments.local_engine import LocalProcesses

    return LocalProcesses(arguments.jobs)


def list_experiments(experiments: list[Experiment]) -> int:
    """One line each, as soon as its networks are timed."""
    from bcsc.experiments.estimate import estimate_seconds
    from bcsc.runs.watch import duration

    print(f"{'experiment':<14}{'runs':>5}{'time here':>16}  question", flush=True)
    for experiment in experiments:
        runs = experiment.runs()
        seconds = sum(estimate_seconds(planned.spec) for planned in runs)
        note = f" ({experiment.note})" if experiment.note else ""
        print(f"{experiment.name:<14}{len(runs):>5}{duration(seconds):>16}  {experiment.question}{note}", flush=True)
    return 0


def reproduce(name: str, cut: dict[str, Any], out: Path, engine: "Engine") -> int:
    """Run what is not done yet, then write the report; 1 if a run failed, 130 if interrupted."""
    from bcsc.experiments.campaign import Job, run_campaign, summary_of
    from bcsc.experiments.local_engine import sigterm_as_ctrl_c
    from bcsc.experiments.progress import board
    from bcsc.experiments.study import write_experiment
    from bcsc.reports.write import require_extras, write_report

    require_extras()
    experiment = cut_down(EXPERIMENTS[name], **cut)
    check_subset(experiment)
    check_goes_on(out, experiment)
    write_experiment(out, name, cut)
    jobs = [Job(planned.name, planned.spec, out) for planned in experiment.runs()]
    print(f"{experiment.title}: {len(jobs)} runs{', ' + experiment.note if experiment.note else ''}", flush=True)
    try:
        with sigterm_as_ctrl_c(), board() as shown:
            outcomes = run_campaign(jobs, engine, shown)
    except KeyboardInterrupt:
        print("bcsc: interrupted; the same command continues where it stopped", file=sys.stderr)
        return 130
    print(summary_of(outcomes, engine))
    print(f"report: {write_report(out)}")
    return int(any(outcome.state == "failed" for outcome in outcomes))


def check_subset(experiment: Experiment) -> None:
    """Refuse more samples than a data set of the experiment has, before the first run starts."""
    from bcsc.data.registry import SOURCES

    for planned in experiment.runs():
        if planned.spec.subset is not None:
            SOURCES[planned.spec.data].check_subset(planned.spec.subset)


def check_goes_on(out: Path, wanted: Experiment) -> None:
    """Refuse a folder that holds other runs than the wanted ones; more seeds, networks or blocks are welcome."""
    if out.exists() and not out.is_dir():
        raise InvalidArgumentError(f"{out} is a file. Give --out a folder.")
    from bcsc.experiments.study import read_experiment
    from bcsc.runs.spec import differences

    try:
        earlier = read_experiment(out)
    except DamagedRunError:
        return  # it is written anew
    if earlier is None:
        return
    changed = differences(earlier.recipe, wanted.recipe)
    if earlier.name != wanted.name:
        changed = [f"the experiment was {earlier.name}, is {wanted.name}"]
    if changed:
        raise InvalidArgumentError(f"{out} holds other runs: {'; '.join(changed)}. Give another --out.")
