"""`python -m etude.cli`, where the etude script is not on the path."""

import sys

from etude.cli import main

if __name__ == "__main__":
    sys.exit(main())
