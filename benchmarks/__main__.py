"""``python -m benchmarks``: measure the six goals of docs/performance.md, and compare with an earlier measurement."""

import argparse
import sys
from functools import partial
from pathlib import Path

from bcsc.cli import Parser, main
from bcsc.errors import check_at_least


def benchmark_parser() -> argparse.ArgumentParser:
    """Where the record goes and what it is compared with."""
    parser = Parser(prog="python -m benchmarks", description="Measure what the library costs.")
    parser.add_argument(
        "--out", type=Path, default=Path("benchmarks/results"), metavar="DIR", help="folder of the dated records"
    )
    parser.add_argument("--compare", type=Path, metavar="FILE", help="an earlier record to compare the new one with")
    parser.add_argument(
        "--threads",
        type=int,
        metavar="N",
        help="CPU threads of torch; with one, CPU time is measured where only this process works",
    )
    parser.add_argument(
        "--page", type=Path, metavar="FILE", help="measure nothing; write the page of the newest record to this file"
    )
    parser.add_argument("--tiny", action="store_true", help="see in seconds that it all runs; the times mean nothing")
    parser.set_defaults(run=run)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Measure, print, write; a missed goal is no failure."""
    if arguments.page is not None:
        return write_page(arguments.page)
    import torch

    from bcsc.training.memory import keep_freed_memory
    from benchmarks import report
    from benchmarks.clock import Size

    old = report.read(arguments.compare) if arguments.compare else None
    keep_freed_memory()  # as bcsc train does
    if arguments.threads is not None:
        torch.set_num_threads(check_at_least("--threads", arguments.threads, 1))
    path = report.measure(Size(arguments.tiny), arguments.out, partial(print, flush=True))
    print(f"\nin {path}{'; so tiny, the times mean nothing' if arguments.tiny else ''}")
    if old is not None:
        print(f"\nagainst {arguments.compare}:", *report.comparison(old, report.read(path)), sep="\n")
    return 0


def write_page(path: Path) -> int:
    """The page of the newest record."""
    from bcsc.files import write_whole
    from benchmarks.page import newest_record, performance_page
    from benchmarks.report import read

    record = newest_record()
    write_whole(path, performance_page(read(record), record.stem).encode())
    print(f"{path} from {record}")
    return 0


if __name__ == "__main__":
    sys.exit(main(parser=benchmark_parser))
