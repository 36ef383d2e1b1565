"""``bcsc models``: the networks, what they cost and where they come from."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command takes none."""


def run(arguments: argparse.Namespace) -> int:
    """Print one row per network, for 10 classes of 3 x 32 x 32 images."""
    import torch

    from bcsc.models import MODELS, build, count_multiply_adds, count_parameters

    print(f"{'network':<16} {'parameters':>11} {'multiply-adds':>14}  paper")
    with torch.device("meta"):
        for name, entry in MODELS.items():
            model = build(name)
            print(f"{name:<16} {count_parameters(model):>11,} {count_multiply_adds(model):>14,}  {entry.paper}")
    return 0
