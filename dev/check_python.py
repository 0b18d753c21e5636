"""Says in a sentence why this Python cannot run etude; written so that any Python can say it."""

import sys

PROBLEM = ""
if sys.version_info < (3, 11):  # noqa: UP036
    PROBLEM = "etude needs Python 3.11 or newer; " + sys.executable + " is " + sys.version.split()[0] + "."
    PROBLEM += " Install one, or name it: make PYTHON=python3.12"
else:
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        PROBLEM = "This Python has no venv module with pip."
        PROBLEM += " On Debian and Ubuntu: apt-get install python3-venv, then run make again."
if PROBLEM:
    sys.stderr.write(PROBLEM + "\n")
    sys.exit(2)
