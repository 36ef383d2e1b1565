"""``python -m bcsc``: the same as the ``bcsc`` command."""

from bcsc.cli.main import command

if __name__ == "__main__":
    command()
