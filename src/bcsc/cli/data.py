"""``bcsc data``: list, fetch, check and look at the data sets."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One subcommand for each thing to do with data."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("list", help="the data sets, and which of them are here").set_defaults(act=_list)
    get = actions.add_parser("get", help="download a data set")
    get.add_argument("name", metavar="NAME")
    get.set_defaults(act=_get)
    check = actions.add_parser("check", help="verify the data sets that are here, or some of them")
    check.add_argument("names", nargs="*", metavar="NAME")
    check.set_defaults(act=_check)
    show = actions.add_parser("show", help="draw augmented training images with their labels")
    show.add_argument("name", metavar="NAME")
    show.add_argument(
        "--outliers",
        default="none",
        metavar="KIND:RATE",
        help="mark these outliers; human labels are human:FILE:COLUMN (default: none)",
    )
    show.add_argument("--seed", type=int, default=0, help="of the outliers, the augmentation and the choice of images")
    show.add_argument("--out", type=Path, default=Path("sheet.png"), metavar="FILE")
    show.set_defaults(act=_show)


def run(arguments: argparse.Namespace) -> int:
    """Do it and return the exit code."""
    code: int = arguments.act(arguments)
    return code


def _list(_arguments: argparse.Namespace) -> int:
    from bcsc.data.dataset import data_root
    from bcsc.data.registry import SOURCES

    root = data_root()
    print(f"data folder: {root}")
    for source in SOURCES.values():
        place = "here" if not source.missing(root) else f"bcsc data get {source.name}"
        shape = f"{source.channels}x{source.size}x{source.size}"
        counts = f"{sum(source.train_counts):>6,} + {sum(source.test_counts):>6,}"
        print(f"{source.name:<16}{counts} images {shape}, {source.num_classes:>3} classes   {place}")
    return 0


def _get(arguments: argparse.Namespace) -> int:
    from bcsc.data.dataset import data_root
    from bcsc.data.fetching import fetch
    from bcsc.data.registry import find_source

    source, root = find_source(arguments.name), data_root()
    if source.missing(root):
        fetch(source, root)
        print(f"{source.name}: now in {root / source.folder}")
    elif source.files:
        print(
            f"{source.name}: already in {root / source.folder} (bcsc data check verifies it; remove it to get it anew)"
        )
    else:
        print(f"{source.name}: comes with bcsc")
    return 0


def _check(arguments: argparse.Namespace) -> int:
    from bcsc.data.registry import SOURCES, find_source

    outcomes = [_check_one(name) for name in [find_source(name).name for name in arguments.names] or SOURCES]
    return 0 if all(outcomes) else 1


def _check_one(name: str) -> bool:
    """Print what the files of one data set turned out to be; false if they are wrong."""
    from bcsc.data.dataset import check_content, data_root, load
    from bcsc.data.fetching import files_that_differ
    from bcsc.data.registry import find_source
    from bcsc.errors import DataError, in_one_line

    source, root = find_source(name), data_root()
    missing = source.missing(root)
    if missing:
        complete_absence = len(missing) == len(source.files)
        print(f"{name:<16}not here" if complete_absence else f"{name:<16}WRONG: no {', '.join(missing)}")
        return complete_absence
    try:
        check_content(load(name, root, download=False))
        official = "not the official bytes" if files_that_differ(source, root) else "official files"
        origin = official if source.files else "comes with bcsc"
    except (DataError, OSError) as error:
        print(f"{name:<16}WRONG: {in_one_line(error)}")
        return False
    print(f"{name:<16}{origin}, content checks passed")
    return True


def _show(arguments: argparse.Namespace) -> int:
    from bcsc.data.dataset import load
    from bcsc.data.outliers import outliers_asked_for
    from bcsc.data.sheet import draw_sheet

    outliers = outliers_asked_for(arguments.outliers, arguments.seed)
    clean = load(arguments.name)
    dataset = clean.with_outliers(outliers) if outliers else clean
    draw_sheet(dataset, clean.train_labels, arguments.out, arguments.seed)
    corruption = dataset.corruption
    if corruption:
        requested = "as found" if corruption.requested is None else f"{corruption.requested:.2%} requested"
        count, total = len(corruption.indices), len(dataset.train_labels)
        print(f"outliers {outliers}: {requested}, {corruption.realised:.2%} realised ({count:,} of {total:,} samples)")
    print(f"wrote {arguments.out}")
    return 0
