"""``python -m bcsc``: the same as the ``bcsc`` command."""

from bcsc.cli import command

if __name__ == "__main__":
    command()
