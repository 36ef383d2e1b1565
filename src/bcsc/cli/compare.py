"""``bcsc compare``: carry out a plan of one's own, and report on it."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bcsc.cli import folder_name
from bcsc.errors import DamagedRunError, Interrupted, InvalidArgumentError, check_choice
from bcsc.experiments.catalog import EXPERIMENTS, cut_down, joined_cut
from bcsc.experiments.experiment import Cell, Experiment
from bcsc.experiments.planning.places import at, named_by_line
from bcsc.experiments.planning.plan_file import read_plan

if TYPE_CHECKING:
    from bcsc.experiments.campaigns.campaign import Engine, Outcome
    from bcsc.experiments.campaigns.progress import Board
    from bcsc.reports.claims import Verdict
    from bcsc.runs.spec import RunSpec

CUTS = ("epochs", "models", "seeds", "blocks", "subset", "conditions", "arms")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The plan, where it goes, and how to cut it down."""
    parser.add_argument("plan", type=Path, metavar="PLAN", help="a TOML file; bcsc reproduce --show NAME prints one")
    add_campaign_arguments(parser)


def add_campaign_arguments(parser: argparse.ArgumentParser) -> None:
    """How a plan is carried out, and how it is cut down."""
    parser.add_argument(
        "--out", type=folder_name, metavar="DIR", help="for the runs and the report (default: results/NAME)"
    )
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
    cuts = parser.add_argument_group("to cut a plan down, which its results then say")
    cuts.add_argument("--epochs", type=int, metavar="N", help="the staircase of learning rates scales with them")
    cuts.add_argument("--models", type=_words, metavar="A,B", help="these networks, planned or not")
    cuts.add_argument("--seeds", type=_numbers, metavar="0,1,2", help="these seeds")
    cuts.add_argument("--blocks", type=_numbers, metavar="2,8", help="these numbers of blocks M")
    cuts.add_argument("--subset", type=int, metavar="N", help="only the first N training samples")
    cuts.add_argument("--conditions", nargs="+", metavar="LABEL", help="only these conditions")
    cuts.add_argument("--arms", nargs="+", metavar="LABEL", help="only these arms, as in the table: SGD 'BCSC M=8'")


def _words(text: str) -> list[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise argparse.ArgumentTypeError(f"expected names such as lenet4,vgg19, got {text!r}")
    return words


def _numbers(text: str) -> list[int]:
    try:
        return [int(word) for word in _words(text)]
    except (ValueError, argparse.ArgumentTypeError) as error:
        raise argparse.ArgumentTypeError(f"expected whole numbers such as 0,1,2, got {text!r}") from error


def run(arguments: argparse.Namespace) -> int:
    """Carry out the plan."""
    return carry_out(arguments.plan, arguments)


def carry_out(plan: str | Path, arguments: argparse.Namespace) -> int:
    """Carry out a plan as the arguments say; 1 if a run failed, 130 if interrupted."""
    engine = build_engine(arguments.engine, arguments.jobs, arguments.address)
    comparison = compare(plan, arguments.out, engine=engine, **cuts_in(arguments))
    for verdict in comparison.verdicts:
        if verdict.cases:
            print(f"{verdict.claim.statement} {verdict.sentence[:1].upper()}{verdict.sentence[1:]}.")
    print(f"report: {comparison.page}")
    return int(any(outcome.state == "failed" for outcome in comparison.outcomes))


def cuts_in(arguments: argparse.Namespace) -> dict[str, Any]:
    """What is to be left out."""
    return {name: value for name in CUTS if (value := getattr(arguments, name)) is not None}


def build_engine(name: str, num_jobs: int | None, address: str | None) -> "Engine":
    """Where the runs are carried out."""
    if name == "ray":
        if num_jobs is not None:
            raise InvalidArgumentError("--jobs is for processes here: a Ray cluster runs as many as it has cores for.")
        from bcsc.experiments.campaigns.ray import RayTasks

        return RayTasks(address)
    if address is not None:
        raise InvalidArgumentError("--address is that of a Ray cluster: give --engine ray with it.")
    from bcsc.experiments.campaigns.local import LocalProcesses

    return LocalProcesses(num_jobs)


@dataclass(frozen=True)
class Comparison:
    """How every run ended, the verdicts on what was claimed, and the page of the report."""

    outcomes: "list[Outcome]"
    verdicts: "list[Verdict]"
    page: Path


def compare(
    plan: Path | str, out: Path | str | None = None, *, engine: "Engine | None" = None, **cut: Any
) -> Comparison:
    """Carry out what is left to do of a plan, then write the report.

    Args:
        plan: the path of a TOML file, or the name of an experiment of the paper.
        out: the folder for runs and report; by default ``results/NAME``.
        engine: where the runs are carried out; by default processes on this machine.
        cut: what to leave out, as in ``bcsc reproduce``: epochs, models, seeds, blocks, subset, conditions, arms.
    """
    from bcsc.experiments.campaigns.campaign import outcomes_in_words
    from bcsc.experiments.campaigns.local import sigterm_as_ctrl_c
    from bcsc.experiments.campaigns.progress import board
    from bcsc.experiments.study import read_studies, write_experiment
    from bcsc.reports.claims import CLAIMS, judge
    from bcsc.reports.write import require_extras, write_report
    from bcsc.runs.folder import RunFolder

    require_extras()
    whole, text = find_plan(plan)
    experiment = cut_down_to(whole, cut)
    out = Path(out) if out is not None else Path("results") / experiment.name
    check_subset(experiment)
    cut = joined_with_earlier(out, whole, cut)
    joined = cut_down(whole, **cut)
    check_goes_on(out, experiment, joined, is_own=text is not None)
    engine = engine or build_engine("local", None, None)
    with RunFolder(out).locked():
        write_experiment(out, experiment.name, cut, text)
        try:
            with sigterm_as_ctrl_c(), board() as shown:
                outcomes = carry_out_experiment(experiment, joined, out, engine, shown)
        except KeyboardInterrupt as interruption:
            raise Interrupted("interrupted; the same command continues where it stopped") from interruption
        print(outcomes_in_words(outcomes, engine))
        page = write_report(out)
    return Comparison(outcomes, judge(CLAIMS, read_studies(out)[0]), page)


def joined_with_earlier(out: Path, whole: Experiment, cut: Mapping[str, Any]) -> dict[str, Any]:
    """How the plan is cut down in a folder, with what was carried out there before; equal time is not had twice."""
    from bcsc.experiments.study import read_cut, read_experiment

    cut = {name: list(value) if isinstance(value, range | tuple) else value for name, value in cut.items()}
    try:
        if whole.budget == "seconds" or read_experiment(out) is None:
            return cut
        joined = joined_cut(whole, read_cut(out), cut)
        cut_down(whole, **joined)
    except (DamagedRunError, InvalidArgumentError):
        return cut  # what was there before is not in the plan any more, or cannot be read
    return joined


def carry_out_experiment(
    experiment: Experiment, joined: Experiment, out: Path, engine: "Engine", shown: "Board"
) -> "list[Outcome]":
    """Decide what the plan leaves open, then carry out the final runs; ``joined`` has those of before, too."""
    from bcsc.experiments.campaigns.campaign import CampaignError, Job, last_line, run_campaign, set_others_aside
    from bcsc.experiments.tuning import decide, earlier_decisions, with_decisions, write_decisions

    def carry_out_first(jobs: "Sequence[Job]") -> None:
        shown.say(f"{experiment.title}: {len(jobs)} runs in {jobs[0].root}, to decide what the plan leaves open")
        set_others_aside(jobs, shown)
        failed = [outcome.job for outcome in run_campaign(jobs, engine, shown) if outcome.state == "failed"]
        if failed:
            raise CampaignError(
                f"{len(failed)} runs that decide what the plan leaves open failed, the first of them {failed[0].name}: "
                f"{last_line(failed[0].log)} (log: {failed[0].log}). The same command tries again."
            )

    decisions = decide(experiment, out, carry_out_first)
    if decisions:
        write_decisions(out, {**earlier_decisions(out, joined), **decisions})
        for cell, decision in decisions.items():
            shown.say(f"{cell.place}, {cell.arm}: {decision.words}")
    experiment = with_decisions(experiment, decisions)
    jobs = [Job(planned.name, planned.spec, out) for planned in experiment.runs()]
    shown.say(f"{experiment.title}: {len(jobs)} runs{', ' + experiment.note if experiment.note else ''}")
    if decisions:
        set_others_aside(jobs, shown)
    return run_campaign(jobs, engine, shown)


def cut_down_to(experiment: Experiment, cut: Mapping[str, Any]) -> Experiment:
    """What is left of an experiment; networks that it does not plan must at least be there."""
    from bcsc.models import MODELS

    for name, value in cut.items():
        check_choice("What a plan is cut down by", name, CUTS)
        if name not in ("epochs", "subset") and not isinstance(value, list | tuple | range | None):
            raise InvalidArgumentError(f"{name} must be a list, got {value!r}.")
    for model in cut.get("models") or ():
        check_choice("A network", model, MODELS)
    return cut_down(experiment, **cut)


def find_plan(plan: Path | str) -> tuple[Experiment, str | None]:
    """The experiment of that name, or the one in that file and the file's text."""
    if isinstance(plan, str) and not plan.endswith(".toml"):
        return EXPERIMENTS[check_choice("The experiment, if it is no TOML file,", plan, EXPERIMENTS)], None
    from bcsc.runs.build import check_setting

    experiment, text = read_plan(Path(plan), check_setting)
    with named_by_line(text, str(plan)):
        check_together(experiment)
    return experiment, text


def check_together(experiment: Experiment) -> None:
    """Refuse settings that do not fit each other: options, optimizer, method and mask; numbers of samples and data."""
    from bcsc.data.registry import find_source
    from bcsc.runs.build import check_method, checked_optimizer

    labels = [arm.label for arm in experiment.arms]
    for cell, spec in specs_of(experiment).items():
        arm, source = labels.index(experiment.arm_labels()[cell.arm]), find_source(spec.data)
        with at("arm", arm, "optimizer_options"):
            checked_optimizer(spec)
        with at("arm", arm, "method"):
            check_method(spec)
        if spec.subset is not None:
            with at("arm", arm, "subset") if "subset" in experiment.arms[arm].settings else at("recipe", "subset"):
                source.check_subset(spec.subset)
        if experiment.tuning is not None:
            with at("tuning", "validation"):
                source.check_held_out(experiment.tuning.validation, spec.subset)


def check_subset(experiment: Experiment) -> None:
    """Refuse more samples than a data set of the experiment has, before the first run starts."""
    from bcsc.data.registry import find_source

    for spec in specs_of(experiment).values():
        if spec.subset is not None:
            find_source(spec.data).check_subset(spec.subset)


def specs_of(experiment: Experiment) -> "dict[Cell, RunSpec]":
    """A run of every cell, with the recipe's own value where one is still to be found."""
    from bcsc.experiments.tuning import tuned_in

    found = {cell: (settings, tuned_in(settings)) for cell, settings in experiment.cells().items()}
    return {
        cell: replace(experiment.recipe, **{name: value for name, value in settings.items() if name not in open_ones})
        for cell, (settings, open_ones) in found.items()
    }


def check_goes_on(out: Path, wanted: Experiment, joined: Experiment, *, is_own: bool) -> None:
    """Refuse a folder of other runs than the wanted ones, alone or with what was there; more of them are welcome."""
    from bcsc.experiments.study import PLAN_FILE, read_experiment
    from bcsc.experiments.tuning import tuned_otherwise
    from bcsc.runs.folder import SPEC

    what = "a file" if out.is_file() else "the folder of one run" if (out / SPEC).exists() else None
    if what:
        raise InvalidArgumentError(f"{out} is {what}. Give --out another folder.")
    try:
        earlier = read_experiment(out)
    except DamagedRunError:
        return  # it is written anew
    if earlier is None:
        return
    changed = changes(replace(earlier, decided={}), joined) or changes(wanted, joined)
    changed = changed or tuned_otherwise(earlier, joined, wanted)[:1]
    if is_own != (out / PLAN_FILE).exists():
        changed = [f"they are of {'a plan of the package' if is_own else 'a plan of your own'}"]
    if earlier.name != wanted.name:
        changed = [f"the experiment was {earlier.name}, is {wanted.name}"]
    if changed:
        raise InvalidArgumentError(f"{out} holds other runs: {'; '.join(changed)}. Give another --out.")


def changes(before: Experiment, after: Experiment) -> list[str]:
    """Where two experiments have other recipes, or one of them another setting of the same cell."""
    from bcsc.runs.spec import differences

    changed, specs = differences(before.recipe, after.recipe), specs_of(after)
    for cell, spec in specs_of(before).items():
        if not changed and cell in specs:
            changed = [f"{cell.name}: {text}" for text in differences(spec, specs[cell])]
    return changed
