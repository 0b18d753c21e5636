"""The command line: one verb a command, no knobs."""

import argparse
import sys
from collections.abc import Sequence

from etude import __version__


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="etude", description="A self-hosted AI coding assistant.")
    parser.add_argument("--version", action="version", version=f"etude {__version__}")
    parser.parse_args(argv)
    parser.print_help()
    return 0


if __name__ == "__main__":
    sys.exit(main())
