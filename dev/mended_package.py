"""A real package with its own tests, into which a bug is put for an agent to mend."""

import hashlib
import zipfile
from pathlib import Path

import platformdirs

REQUIREMENT = "toolz==1.2.0"
SHA256 = "890f820b1cb8152785aaf9386d8707770110809035800985ca65cb24ce1120ef"
WHEEL = Path(platformdirs.user_cache_dir("etude")) / "test-packages" / "toolz-1.2.0-py3-none-any.whl"

BROKEN_FILE = "toolz/itertoolz.py"
TEST_FILE = "toolz/tests/test_itertoolz.py"
RIGHT = """\
            predicate = partial(operator.is_not, itr)
            iters = itertools.cycle(itertools.takewhile(predicate, iters))
"""
WRONG = """\
            return
"""


def is_here() -> bool:
    return WHEEL.exists() and hashlib.sha256(WHEEL.read_bytes()).hexdigest() == SHA256


def right_text() -> str:
    """The file as it is published."""
    with zipfile.ZipFile(WHEEL) as wheel:
        return wheel.read(BROKEN_FILE).decode("utf-8")


def unpack_broken(folder: Path) -> None:
    """The package's sources, with a test that fails."""
    with zipfile.ZipFile(WHEEL) as wheel:
        wheel.extractall(folder, [name for name in wheel.namelist() if ".dist-info/" not in name])
    text = right_text()
    assert text.count(RIGHT) == 1
    (folder / BROKEN_FILE).write_text(text.replace(RIGHT, WRONG), "utf-8")
