"""The command ``reseed``."""

import sys

from ._reseed import run_command


def main() -> int:
    """Runs the command with the arguments of this process."""
    return run_command(["reseed", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
