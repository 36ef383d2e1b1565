"""``bcsc train``: every setting of a RunSpec is an option; a TOML file gives others, options win."""

import argparse
import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from types import UnionType
from typing import Any, get_args

from bcsc.cli import folder_name
from bcsc.errors import Diverged, Interrupted, InvalidArgumentError
from bcsc.runs.spec import CHOICES, RunSpec, settings_from_toml


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One option per setting, and how to carry the run out."""
    parser.add_argument(
        "--out", required=True, type=folder_name, metavar="DIR", help="the run's folder, made or continued"
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="settings from a TOML file, such as a run's run.toml"
    )
    parser.add_argument("--restart", action="store_true", help="begin anew; an old folder is kept aside")
    parser.add_argument("--checkpoint-every", type=int, metavar="N", help="also save after every N inner steps")
    parser.add_argument("--tensorboard", action="store_true", help="write TensorBoard events too")
    for f in fields(RunSpec):
        option = f"--{f.name.replace('_', '-')}"
        default = (
            ""
            if f.default is None or f.default is False or f.name == "optimizer_options"
            else f" (default {f.default})"
        )
        text = (f.metadata["help"] + default).replace("%", "%%")
        if f.type is bool:
            parser.add_argument(option, action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS, help=text)
        elif f.name == "optimizer_options":
            parser.add_argument(
                option,
                nargs="+",
                type=key_and_value,
                action="extend",
                default=argparse.SUPPRESS,
                metavar="K=V",
                help=text,
            )
        else:
            kind = number_or_text(f.type)
            parser.add_argument(
                option, type=kind, choices=CHOICES.get(f.name), default=argparse.SUPPRESS, metavar=None, help=text
            )


def number_or_text(annotation: Any) -> type:
    """The type an option's text is converted to."""
    parts = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
    return next((part for part in parts if part in (int, float)), str)


def key_and_value(text: str) -> tuple[str, Any]:
    """``nesterov=true``: the value is read as JSON where it is JSON."""
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, got {text!r}")
    if value in ("True", "False", "None"):  # texts, which an optimizer would take for true
        raise argparse.ArgumentTypeError(f"expected true, false or null for {key}, got {value}")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value
    except RecursionError as error:
        raise argparse.ArgumentTypeError(f"{key} is nested too deep") from error


def run(arguments: argparse.Namespace) -> int:
    """Train, and say how it went."""
    spec = RunSpec(**settings(arguments))
    if spec.precision == "bf16" and spec.device.startswith("cpu"):
        from bcsc.training.precision import make_bfloat16_work

        make_bfloat16_work()  # before torch is loaded
    with interrupts_held():
        import torch._dynamo  # noqa: F401 -- which the first step would load

        from bcsc.distributed.process_group import is_first
        from bcsc.kernels.passes import compiled_loops
        from bcsc.runs.run import RunOptions
        from bcsc.runs.run import run as run_spec
        from bcsc.runs.watch import watcher_for
        from bcsc.training.memory import keep_freed_memory
        from bcsc.training.watcher import Watcher

        compiled_loops()
    keep_freed_memory()
    try:
        with watcher_for(spec.epochs) if is_first() else Watcher() as watcher:
            options = RunOptions(arguments.restart, arguments.checkpoint_every, arguments.tensorboard, watcher)
            summary = run_spec(spec, arguments.out, options).summary
    except (Diverged, Interrupted) as ending:
        if is_first():
            raise
        return ending.exit_code  # the first rank says it for all
    if is_first():
        accuracy = summary["test_accuracy"]
        where = "test accuracy" if spec.validation is None else f"accuracy on {spec.validation} held-out samples"
        print(f"{where}: final {accuracy['final']:.2f} %, all epochs {accuracy['all']:.2f} %; in {arguments.out}")
    return 0


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Let a Ctrl-C wait: amid an import it may come out as another error, which somebody takes for a missing module."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: asked.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.default_int_handler)
    if asked:
        raise KeyboardInterrupt


def settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """The file's settings, overridden by the options that were given."""
    given = {f.name: getattr(arguments, f.name) for f in fields(RunSpec) if hasattr(arguments, f.name)}
    if "optimizer_options" in given:
        keys = [key for key, _ in given["optimizer_options"]]
        if twice := [key for key in keys if keys.count(key) > 1]:
            raise InvalidArgumentError(f"--optimizer-options has {twice[0]} more than once. Give it once.")
        given["optimizer_options"] = dict(given["optimizer_options"])
    if arguments.config is None:
        return given
    try:
        text = arguments.config.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"--config {arguments.config} cannot be read: {error}") from error
    return {**settings_from_toml(text, str(arguments.config)), **given}
