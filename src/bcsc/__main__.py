"""``python -m bcsc``: the same as the ``bcsc`` command."""

import sys

from bcsc.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
