"""Does the page's bundle in etude/server/static belong to the sources in web/?

Without node the hashes that the build recorded are compared with the files; where web/node_modules is
installed the bundle is also built anew in a temporary folder and compared byte by byte.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WEB = ROOT / "web"
STATIC = ROOT / "etude" / "server" / "static"
BESIDE_SRC = (".npmrc", "build.mjs", "package-lock.json", "package.json", "tsconfig.json")
# The page opens at once from a loopback address; beyond this something was bundled that should load when used.
MAX_BUNDLE_BYTES = 1_500_000
WAY_OUT = "Run `make web` and commit etude/server/static."


def main() -> int:
    problems = [*recorded_problems(), *size_problems(), *(rebuild_problems() if can_rebuild() else ())]
    for problem in problems:
        print(f"web bundle: {problem}")
    if problems:
        print(WAY_OUT)
        return 1
    print(f"web bundle: up to date ({'rebuilt and ' if can_rebuild() else ''}hashes compared)")
    return 0


def recorded_problems() -> Iterator[str]:
    path = STATIC / "manifest.json"
    if not path.is_file():
        yield "etude/server/static/manifest.json is missing."
        return
    manifest = json.loads(path.read_text("utf-8"))
    sources = [*BESIDE_SRC, *(f"src/{source.name}" for source in (WEB / "src").iterdir())]
    yield from differences("web", manifest["sources"], hashes(WEB, sources))
    built = [file.name for file in STATIC.iterdir() if file.name != "manifest.json"]
    yield from differences("etude/server/static", manifest["built"], hashes(STATIC, built))


def size_problems() -> Iterator[str]:
    size = (STATIC / "app.js").stat().st_size if (STATIC / "app.js").is_file() else 0
    if size > MAX_BUNDLE_BYTES:
        yield f"app.js has {size} bytes; {MAX_BUNDLE_BYTES} are the most."


def can_rebuild() -> bool:
    return (WEB / "node_modules").is_dir() and shutil.which("node") is not None


def rebuild_problems() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(["node", "build.mjs", folder], cwd=WEB, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            yield f"it does not build: {run.stderr.strip()}"
            return
        fresh = hashes(Path(folder), [file.name for file in Path(folder).iterdir()])
    committed = hashes(STATIC, [file.name for file in STATIC.iterdir()])
    yield from differences("etude/server/static (built anew)", fresh, committed)


def hashes(folder: Path, names: list[str]) -> dict[str, str]:
    files = ((name, folder / name) for name in sorted(names))
    return {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files if file.is_file()}


def differences(place: str, wanted: dict[str, str], met: dict[str, str]) -> Iterator[str]:
    for name in sorted(wanted.keys() | met.keys()):
        if wanted.get(name) != met.get(name):
            state = "is missing" if name not in met else "is new" if name not in wanted else "differs"
            yield f"{place}/{name} {state}."


if __name__ == "__main__":
    sys.exit(main())
