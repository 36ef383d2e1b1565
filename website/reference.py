"""The pages on the API and on the command line, made from the package itself."""

import argparse
from functools import cache, partial
from importlib import import_module
from typing import Any

import bcsc.cli
from bcsc.cli import COMMANDS, parser

PACKAGES = {
    "bcsc": "The names that programs use most.",
    "bcsc.optim": "The method: the optimizer, the sampler, the methods of the paper.",
    "bcsc.data": "Data sets, feeding, outliers.",
    "bcsc.models": "The paper's networks.",
    "bcsc.distributed": "Several processes.",
    "bcsc.integrations": "For trainers that are not bcsc's own.",
    "bcsc.errors": "What can go wrong; all of them are `BcscError`s.",
}


@cache
def api_pages() -> dict[str, str]:
    """A page for every package, with all its public names."""
    return {f"api/{name.removeprefix('bcsc.')}.md": api_page(name, about) for name, about in PACKAGES.items()}


def api_page(package: str, about: str) -> str:
    """The public names of a package: those at home there as mkdocstrings shows them, the others as links."""
    module = import_module(package)
    names = getattr(module, "__all__", None) or own_names(module)
    at_home, elsewhere = [], []
    for name in sorted(names, key=lambda name: (not name[0].isupper(), name)):
        value = getattr(module, name)
        identity = f"{getattr(value, '__module__', '')}.{getattr(value, '__name__', '')}"
        if not callable(value) or not identity.startswith("bcsc."):
            elsewhere.append(f"`{name}`")
        elif package == "bcsc" and name in names_of_packages():
            elsewhere.append(f"[`{name}`][{identity}]")
        else:
            at_home.append(f"::: {identity}")
    also = [f"Also here: {', '.join(elsewhere)}."] if elsewhere else []
    return "\n\n".join([f"# {package}", about, *also, *at_home]) + "\n"


def names_of_packages() -> set[str]:
    """The public names of the packages below bcsc."""
    modules = [import_module(package) for package in PACKAGES if package != "bcsc"]
    return {name for module in modules for name in getattr(module, "__all__", None) or own_names(module)}


def own_names(module: Any) -> list[str]:
    """The classes that a module defines."""
    return [
        name for name, value in vars(module).items() if isinstance(value, type) and value.__module__ == module.__name__
    ]


def command_line_page() -> str:
    """Every command and option, from the parser."""
    top, exit_codes = parser(), (bcsc.cli.__doc__ or "").strip().splitlines()[-1]
    (commands,) = (action for action in top._actions if isinstance(action, argparse._SubParsersAction))
    parts = [
        "# Command line",
        "\n".join(f"- [`bcsc {name}`](#bcsc-{name}): {summary}" for name, summary in COMMANDS.items()),
        f"Exit codes: {exit_codes}",
    ]
    for name, command in commands.choices.items():
        parts += command_section(f"bcsc {name}", command)
    return "\n\n".join(parts) + "\n"


def command_section(name: str, command: argparse.ArgumentParser, level: int = 2) -> list[str]:
    """The usage of a command and its options, and those of the commands below it."""
    parts = [f"{'#' * level} {name}", command.description or "", f"```text\n{usage(command)}\n```"]
    rows = []
    for action in command._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below, each in action.choices.items():
                parts += command_section(f"{name} {below}", each, level + 1)
        elif not isinstance(action, argparse._HelpAction):
            rows.append(f"| {option(action)} | {meaning(command, action)} |")
    if rows:
        parts.insert(3, "\n".join(["| option | what it does |", "| --- | --- |", *rows]))
    return [part for part in parts if part]


def usage(command: argparse.ArgumentParser) -> str:
    """How to call it, without the word usage, as wide whatever the terminal."""
    command.formatter_class = partial(argparse.HelpFormatter, width=80)
    lines = command.format_usage().strip().removeprefix("usage: ").splitlines()
    return "\n".join(line.removeprefix("       ") for line in lines)


def option(action: argparse.Action) -> str:
    """An option as it is written."""
    value = "" if action.nargs == 0 else str(action.metavar or action.dest.upper())
    if not action.option_strings:
        return f"`{action.metavar or action.dest}`"
    if action.choices is not None and action.metavar is None:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    return "<br>".join(f"`{string} {value}`".replace(" `", "`") for string in action.option_strings)


def meaning(command: argparse.ArgumentParser, action: argparse.Action) -> str:
    """The help of an option, with its default filled in."""
    formatter = command._get_formatter()
    text = formatter._expand_help(action) if action.help else ""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
