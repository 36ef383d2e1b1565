"""The parser and the exit codes.

0 done, 1 a part of it failed, 2 a mistake (one line), 3 diverged, 4 a process lost, 130 interrupted, 141 whoever read
its output has left.
"""

import argparse
import importlib
import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from bcsc.errors import BcscError, InvalidArgumentError, in_one_line
from bcsc.version import __version__

# name -> what it does; bcsc.cli.NAME has add_arguments(parser) and run(arguments) -> exit code
COMMANDS: Mapping[str, str] = {
    "demo": "a first look: SGD and BCSC on handwritten digits, in under two minutes",
    "train": "train one network, or continue where it stopped",
    "runs": "list runs and how they stand",
    "reproduce": "run what stands behind a table or figure of the paper, and report on it",
    "compare": "run a plan of your own: arms, conditions, seeds, claims; and report on it",
    "report": "turn run folders into tables, figures, verdicts and one HTML page",
    "models": "list the networks: parameters, multiply-adds per image, source paper",
    "data": "list, fetch, check and look at the data sets",
}


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        """Leave it to ``main`` to print and to exit."""
        raise InvalidArgumentError(f"{message} (try: {self.prog} --help)")


def folder_name(text: str) -> Path:
    """A folder or file to write, which has a name."""
    if not text:
        raise argparse.ArgumentTypeError("the name of the folder is empty")
    return Path(text)


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = Parser(prog="bcsc", description="Block-cyclic stochastic coordinate descent, put to the test.")
    top.add_argument("--version", action="version", version=f"bcsc {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        module = importlib.import_module(f"bcsc.cli.{name}")
        command = commands.add_parser(name, help=summary, description=summary)
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return top


def command() -> NoReturn:
    """The ``bcsc`` command: the process ends with the exit code."""
    code = main()
    if os.environ.get("WORLD_SIZE", "1") != "1":
        # Threads of the process group may still hold tensors, or wait for a lost rank: Python's own end would abort in
        # the first case and hang in the second.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def main(arguments: Sequence[str] | None = None, parser: Callable[[], argparse.ArgumentParser] = parser) -> int:
    """Run one command and return its exit code; ``parser`` sets ``run`` to what carries it out."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal without the letters of a path
    try:
        parsed = parser().parse_args(arguments)
        code: int = parsed.run(parsed)
    except BcscError as error:
        print(f"bcsc: {in_one_line(error)}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("bcsc: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever read our output has left, as `bcsc runs DIR | head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:  # a file that cannot be read or written
        print(f"bcsc: {in_one_line(error)}", file=sys.stderr)
        return BcscError.exit_code
    return code
