"""The command line as a person or script meets it: real processes, files, pipes and terminals."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from etude.models import catalog
from tests.command_line import Terminal, command, etude

MakeGguf = Callable[..., Path]

PAY = """\
def total(items):
    result = 0
    for item in items:
        result += item.price
    return result


def tax(amount):
    return amount * 0.2


def both(items):
    return total(items) + tax(total(items))
"""
SKETCH = """\
Here is the change:

```python
# ... existing code ...
def tax(amount):
    return amount * 0.19
# ... existing code ...
```
"""
TWO_HUNKS = """\
```python
def total(items):
    return sum(item.price for item in items)


def tax(amount):
    return amount * 0.19

# ... existing code ...
```
"""
# Nothing in pay.py looks like this.
FOREIGN = (
    "```python\n# ... existing code ...\n    engine.start(pedal)\n    wheel.turn(left)\n# ... existing code ...\n```\n"
)

# The verb with an engine that never ends, for interrupting it.
SLOW = """
import asyncio, functools, sys
from etude.assistant.apply.request import Progress
import etude.cli
from etude.cli import apply_command
async def engine(request, model):
    yield Progress(stage="thinking")
    print("begun", file=sys.stderr, flush=True)
    await asyncio.Event().wait()
apply_command.run_apply = functools.partial(apply_command.run_apply, engine=engine)
sys.exit(etude.cli.main(sys.argv[1:]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pay.py").write_text(PAY, "utf-8")
    return folder


# --- the whole


def test_help_loads_nothing_heavy_and_names_the_verbs() -> None:
    probe = "import sys, etude.cli\ntry: etude.cli.main(['--help'])\nexcept SystemExit: pass\n"
    probe += "print(sorted({'numpy','httpx','starlette','rich','gguf','msgspec','asyncio'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")
    for verb in ("apply", "models", "doctor", "serve", "agent", "acp"):
        assert f"\n    {verb} " in done.stdout


@pytest.mark.parametrize("arguments", [[], ["apply"], ["models"], ["serve"], ["acp"], ["agent"], ["agent", "run"]])
def test_help_fits_80_columns(arguments: list[str]) -> None:
    done = etude(*arguments, "--help")
    assert done.returncode == 0
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.parametrize("arguments", [[], ["frob"], ["apply", "--frob"], ["models", "frob"]])
def test_unknown_words_are_bad_input(arguments: list[str]) -> None:
    assert etude(*arguments).returncode == 2


def test_a_reader_that_leaves_early_gets_no_trace(folder: Path) -> None:
    process = subprocess.Popen(command("models"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout
    process.stdout.close()
    assert process.stderr
    assert "Traceback" not in process.stderr.read()
    process.wait()
    process.stderr.close()


# --- apply, in scripts


def test_diff_prints_what_git_applies_and_changes_nothing(folder: Path) -> None:
    done = etude("apply", "pay.py", "--diff", cwd=folder, stdin=SKETCH)
    assert (done.returncode, done.stderr) == (0, "")
    assert (folder / "pay.py").read_text("utf-8") == PAY
    subprocess.run(["git", "apply"], cwd=folder, input=done.stdout.encode(), check=True)
    assert (folder / "pay.py").read_text("utf-8") == PAY.replace("0.2", "0.19")


def test_diff_keeps_foreign_line_endings_for_git(folder: Path) -> None:
    (folder / "pay.py").write_bytes(PAY.replace("\n", "\r\n").encode())
    done = subprocess.run(
        command("apply", "pay.py", "--diff"), cwd=folder, input=SKETCH.encode(), capture_output=True, check=True
    )
    subprocess.run(["git", "apply"], cwd=folder, input=done.stdout, check=True)
    assert (folder / "pay.py").read_bytes() == PAY.replace("0.2", "0.19").replace("\n", "\r\n").encode()


def test_yes_saves_and_shows_the_hunk(folder: Path) -> None:
    (folder / "sketch.md").write_text(SKETCH, "utf-8")
    done = etude("apply", "pay.py", "--sketch", "sketch.md", "--yes", cwd=folder)
    assert done.returncode == 0
    assert "-    return amount * 0.2\n+    return amount * 0.19\n" in done.stdout
    assert done.stdout.endswith("saved pay.py\n")
    assert "\x1b" not in done.stdout
    assert (folder / "pay.py").read_text("utf-8") == PAY.replace("0.2", "0.19")


def test_a_second_time_there_is_nothing_to_do(folder: Path) -> None:
    etude("apply", "pay.py", "--yes", cwd=folder, stdin=SKETCH)
    done = etude("apply", "pay.py", "--yes", cwd=folder, stdin=SKETCH)
    assert done.returncode == 0
    assert "already says" in done.stderr
    assert done.stdout == ""
    assert "saved" not in done.stdout


def test_json_tells_everything_and_saves_only_with_yes(folder: Path) -> None:
    done = etude("apply", "pay.py", "--json", cwd=folder, stdin=SKETCH)
    report = json.loads(done.stdout)
    assert (done.returncode, report["exit_code"], done.stderr) == (0, 0, "")
    [file] = report["files"]
    assert (file["path"], file["outcome"], file["abstention"], file["engine"]) == ("pay.py", "merged", None, "merge")
    assert "+    return amount * 0.19" in file["diff"]
    assert (folder / "pay.py").read_text("utf-8") == PAY
    done = etude("apply", "pay.py", "--json", "--yes", cwd=folder, stdin=SKETCH)
    assert json.loads(done.stdout)["files"][0]["outcome"] == "saved"
    assert (folder / "pay.py").read_text("utf-8") == PAY.replace("0.2", "0.19")


def test_json_of_bad_input_is_still_json(folder: Path) -> None:
    done = etude("apply", "pay.py", "--json", cwd=folder)
    report = json.loads(done.stdout)
    assert (done.returncode, report["error"], report["files"]) == (2, "SketchUnusable", [])


def test_abstaining_is_exit_1_with_the_reason_and_no_change(folder: Path) -> None:
    done = etude("apply", "pay.py", "--yes", cwd=folder, stdin=FOREIGN)
    assert done.returncode == 1
    assert "pay.py" in done.stderr
    assert (folder / "pay.py").read_text("utf-8") == PAY
    report = json.loads(etude("apply", "pay.py", "--json", cwd=folder, stdin=FOREIGN).stdout)
    assert (report["exit_code"], report["files"][0]["outcome"]) == (1, "abstained")
    assert report["files"][0]["abstention"]["message"] in done.stderr


def test_a_chat_reply_on_two_files_is_resolved_here(folder: Path) -> None:
    (folder / "lib").mkdir()
    (folder / "lib" / "shop.py").write_text("def open_shop():\n    return False\n", "utf-8")
    reply = f"In `lib/shop.py`:\n\n```python\ndef open_shop():\n    return True\n```\n\nand in `pay.py`:\n{SKETCH}"
    reply = reply.replace("Here is the change:\n\n", "\n")
    done = etude("apply", "--yes", cwd=folder, stdin=reply)
    assert done.returncode == 0, done.stderr
    assert (folder / "lib" / "shop.py").read_text("utf-8") == "def open_shop():\n    return True\n"
    assert (folder / "pay.py").read_text("utf-8") == PAY.replace("0.2", "0.19")


def test_a_chat_reply_may_bring_a_new_file(folder: Path) -> None:
    reply = "Create `docs/new.py`:\n\n```python\ndef new():\n    return 1\n```\n"
    done = etude("apply", "--yes", cwd=folder, stdin=reply)
    assert done.returncode == 0, done.stderr
    assert "docs/new.py (new file)" in done.stdout
    assert (folder / "docs" / "new.py").read_text("utf-8") == "def new():\n    return 1\n"


def test_one_file_left_alone_does_not_keep_the_others_from_being_saved(folder: Path) -> None:
    (folder / "shop.py").write_text(PAY, "utf-8")
    reply = f"`shop.py`:\n\n{FOREIGN}\n`pay.py`:\n\n" + SKETCH.replace("Here is the change:\n\n", "")
    done = etude("apply", "--yes", cwd=folder, stdin=reply)
    assert done.returncode == 1
    assert (folder / "pay.py").read_text("utf-8") == PAY.replace("0.2", "0.19")
    assert (folder / "shop.py").read_text("utf-8") == PAY


@pytest.mark.parametrize(
    "named", ["```python ../outside.py\n", "```python\n# ../outside.py\n", "```py {}/outside.py\n"]
)
def test_a_reply_cannot_write_outside_the_folder(folder: Path, named: str) -> None:
    done = etude("apply", "--yes", cwd=folder, stdin=named.format(folder.parent) + "x = 1\n```\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert "is not inside" in done.stderr
    assert not list(folder.parent.rglob("outside.py"))


@pytest.mark.parametrize("named", [".git/config", ".git/hooks/post-checkout", "sub/.GIT/config", "alias/config"])
def test_a_reply_cannot_write_into_gits_own_folder(folder: Path, named: str) -> None:
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    (folder / "alias").symlink_to(".git")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    diff = f"```diff\n--- /dev/null\n+++ b/{named}\n@@ -0,0 +1 @@\n+[core]\n```\n"
    done = etude("apply", "--yes", cwd=folder, stdin=diff)
    assert (done.returncode, done.stdout) == (2, "")
    assert "git's own" in done.stderr
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("pay.py/new.py", "a file, not a folder"),
        ("loop/new.py", "not a path on this system"),
        ("n" * 300 + ".py", "too long"),
        ("d/" * 1500 + "new.py", "is not a path"),
    ],
)
def test_a_reply_with_an_impossible_path_is_refused_in_a_sentence(folder: Path, named: str, said: str) -> None:
    (folder / "loop").symlink_to("loop")
    done = etude("apply", "--yes", cwd=folder, stdin=f"```python:{named}\nx = 1\n```\n")
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert sorted(path.name for path in folder.iterdir()) == ["loop", "pay.py"]


def test_a_name_too_long_for_the_system_is_a_sentence(folder: Path) -> None:
    done = etude("apply", "n" * 300, "--yes", cwd=folder, stdin=SKETCH)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "There is no file nnn" in done.stderr


@pytest.mark.parametrize("action", ["--json", "--diff", "--yes"])
def test_a_file_whose_name_is_not_utf_8_is_merged_like_any_other(folder: Path, action: str) -> None:
    name = os.fsdecode(b"caf\xe9.py")
    (folder / name).write_text(PAY, "utf-8")
    done = etude("apply", name, action, cwd=folder, stdin=SKETCH)
    assert (done.returncode, done.stderr) == (0, "")
    assert r"caf\xe9.py" in done.stdout.replace("\\\\", "\\")
    assert ((folder / name).read_text("utf-8") == PAY) == (action != "--yes")


def test_a_terminal_without_utf_8_neither_stops_the_merge_nor_spoils_the_json(folder: Path) -> None:
    (folder / "pay.py").write_text(PAY.replace("0.2", "0.2  # 20 % für alle"), "utf-8")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    arguments = command("apply", "pay.py", "--json")
    done = subprocess.run(
        arguments, cwd=folder, input=SKETCH.encode(), capture_output=True, env=environment, check=True
    )
    assert "für alle" in json.loads(done.stdout)["files"][0]["diff"]
    arguments = command("apply", "pay.py", "--yes")
    done = subprocess.run(
        arguments, cwd=folder, input=SKETCH.encode(), capture_output=True, env=environment, check=True
    )
    assert b"f?r alle" in done.stdout
    assert done.stdout.endswith(b"saved pay.py\n")


def test_the_clipboard_is_read_with_what_is_there(folder: Path, tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (tmp_path / "copied.md").write_text(SKETCH, "utf-8")
    (programs / "pbpaste").write_text(f"#!/bin/sh\nexec cat '{tmp_path / 'copied.md'}'\n", "utf-8")
    (programs / "pbpaste").chmod(0o755)
    env = {"PATH": f"{programs}:{os.environ['PATH']}", "DISPLAY": "", "WAYLAND_DISPLAY": ""}
    done = etude("apply", "pay.py", "--clipboard", "--yes", cwd=folder, env=env)
    assert done.returncode == 0, done.stderr
    assert (folder / "pay.py").read_text("utf-8") == PAY.replace("0.2", "0.19")


@pytest.mark.usefixtures("empty_cache")
def test_a_sketch_that_leaves_nothing_open_needs_no_model(folder: Path) -> None:
    assert etude("apply", "pay.py", "--yes", cwd=folder, stdin=SKETCH).returncode == 0
    assert (folder / "pay.py").read_text("utf-8") == PAY.replace("0.2", "0.19")


# Fits in two places, so that a model must choose.
ENGINE = "".join(f"def {name}(engine):\n    check(engine)\n    engine.off()\n\n\n" for name in ("stop", "restart"))
DOUBT = """\
```python
# ... existing code ...
    check(engine)
    log("stopping")
    engine.off()
# ... existing code ...
```
"""


@pytest.mark.usefixtures("empty_cache")
def test_a_sketch_in_doubt_without_a_model_says_how_to_get_one(folder: Path) -> None:
    (folder / "engine.py").write_text(ENGINE, "utf-8")
    done = etude("apply", "engine.py", "--yes", cwd=folder, stdin=DOUBT, env={"ETUDE_CONFIG": os.devnull})
    assert done.returncode == 2
    assert "`etude models fetch smollm2-135m`" in done.stderr
    assert (folder / "engine.py").read_text("utf-8") == ENGINE


@pytest.mark.embedded
def test_a_sketch_in_doubt_is_decided_or_left_alone_by_the_embedded_model(folder: Path) -> None:
    (folder / "engine.py").write_text(ENGINE, "utf-8")
    done = etude("apply", "engine.py", "--yes", cwd=folder, stdin=DOUBT, env={"ETUDE_CONFIG": os.devnull})
    text = (folder / "engine.py").read_text("utf-8")
    assert (done.returncode, text.count("stopping")) in {(0, 1), (1, 0)}, done.stderr


# --- bad input


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"\x00\x01\x02" * 100, "pay.py"), (b"caf\xe9 = 1\n", "UTF-8"), (b"x = 1\n" * 9_000_000, "pay.py")],
    ids=["binary", "latin-1", "54 MB"],
)
def test_unusable_files_are_refused_in_a_sentence(folder: Path, content: bytes, said: str) -> None:
    (folder / "pay.py").write_bytes(content)
    done = etude("apply", "pay.py", "--yes", cwd=folder, stdin=SKETCH)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(rf"etude: .*{said}.*\n", done.stderr)
    assert (folder / "pay.py").read_bytes() == content


@pytest.mark.parametrize(
    ("sketch", "said"),
    [(b"", "stdin is empty"), (b" \n\n", "stdin is empty"), (b"\xff\xfe", "not UTF-8"), (b"a\0b", "is binary")],
)
def test_unusable_sketches_are_refused_in_a_sentence(folder: Path, sketch: bytes, said: str) -> None:
    done = etude("apply", "pay.py", "--yes", cwd=folder, stdin=sketch)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert (folder / "pay.py").read_text("utf-8") == PAY


def test_a_huge_sketch_is_refused(folder: Path) -> None:
    done = etude("apply", "pay.py", "--yes", cwd=folder, stdin=b"x" * 2_000_001)
    assert done.returncode == 2
    assert "more than 2 MB" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["apply", "nope.py", "--yes"], "There is no file nope.py"),
        (["apply", ".", "--yes"], "folder"),
        (["apply", "pay.py", "--yes", "--sketch", "nope.md"], "nope.md cannot be read"),
        (["apply", "pay.py", "--yes", "--model", "gpt-99"], "There is no model 'gpt-99'"),
        (["apply", "pay.py"], "--yes"),
        (["apply", "--yes"], "names no file"),
        (["serve", "nope"], "nope is not a folder"),
        (["serve", "--port", "99999"], "99999 is not a port"),
        (["models", "import", "nope.gguf"], "There is no file nope.gguf"),
        (["models", "import", "pay.py"], "neither a GGUF file nor a package"),
        (["models", "remove", "gpt-99"], "There is no model 'gpt-99'"),
    ],
)
@pytest.mark.usefixtures("empty_cache")
def test_what_cannot_be_used_is_said_in_one_sentence(folder: Path, arguments: list[str], said: str) -> None:
    done = etude(*arguments, cwd=folder, stdin=SKETCH)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_no_clipboard_program_is_a_clear_sentence(folder: Path, tmp_path: Path) -> None:
    env = {"PATH": str(tmp_path), "DISPLAY": "", "WAYLAND_DISPLAY": ""}
    done = etude("apply", "pay.py", "--clipboard", "--yes", cwd=folder, env=env)
    assert done.returncode == 2
    assert "Install one, or pipe the sketch in." in done.stderr


def test_broken_settings_are_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "etude.toml").write_text("[model]\nurll = 3\n", "utf-8")
    done = etude("apply", "pay.py", cwd=folder, stdin=SKETCH, env={"ETUDE_CONFIG": str(tmp_path / "etude.toml")})
    assert done.returncode == 2
    assert "etude.toml, [model] has urll = 3" in done.stderr


# --- apply, with a person


def test_the_person_is_asked_and_yes_saves(folder: Path) -> None:
    (folder / "sketch.md").write_text(SKETCH, "utf-8")
    terminal = Terminal(["apply", "pay.py", "--sketch", "sketch.md"], cwd=folder)
    shown = terminal.until("Save pay.py (1 hunk)? [yes/no]")
    assert "\x1b[32m+    return amount * 0.19" in shown
    assert "\x1b[31m-    return amount * 0.2" in shown
    assert (folder / "pay.py").read_text("utf-8") == PAY
    terminal.type("y\n")
    assert terminal.end() == 0
    assert (folder / "pay.py").read_text("utf-8") == PAY.replace("0.2", "0.19")


def test_only_the_16_colours_of_every_terminal_are_used(folder: Path) -> None:
    (folder / "sketch.md").write_text(SKETCH, "utf-8")
    terminal = Terminal(["apply", "pay.py", "--sketch", "sketch.md"], cwd=folder)
    terminal.until("[yes/no]")
    terminal.type("n\n")
    assert terminal.end() == 1
    colours = {code for codes in re.findall(r"\x1b\[([\d;]*)m", terminal.shown) for code in codes.split(";")}
    assert colours <= {"", "0", "1", "2", "31", "32", "33", "36"}


def test_no_color_is_honoured(folder: Path) -> None:
    (folder / "sketch.md").write_text(SKETCH, "utf-8")
    terminal = Terminal(["apply", "pay.py", "--sketch", "sketch.md", "--diff"], cwd=folder, env={"NO_COLOR": "1"})
    assert terminal.end() == 0
    assert "+    return amount * 0.19" in terminal.shown
    assert not re.search(r"\x1b\[3\dm", terminal.shown)


def test_no_leaves_the_file_alone(folder: Path) -> None:
    (folder / "sketch.md").write_text(SKETCH, "utf-8")
    terminal = Terminal(["apply", "pay.py", "--sketch", "sketch.md"], cwd=folder)
    terminal.until("[yes/no]")
    terminal.type("what\n")
    terminal.until("Please answer with one of")
    terminal.type("n\n")
    assert terminal.end() == 1
    assert "pay.py is not changed" in terminal.shown
    assert (folder / "pay.py").read_text("utf-8") == PAY


def test_hunks_can_be_taken_one_by_one(folder: Path) -> None:
    (folder / "sketch.md").write_text(TWO_HUNKS, "utf-8")
    terminal = Terminal(["apply", "pay.py", "--sketch", "sketch.md"], cwd=folder)
    terminal.until("Save pay.py (2 hunks)? [yes/no/each]")
    terminal.type("e\n")
    terminal.until("Take this hunk? [yes/no]")
    terminal.type("n\ny\n")
    assert terminal.end() == 0
    assert (folder / "pay.py").read_text("utf-8") == PAY.replace("0.2", "0.19")


def test_a_file_changed_meanwhile_is_not_overwritten(folder: Path) -> None:
    (folder / "sketch.md").write_text(SKETCH, "utf-8")
    terminal = Terminal(["apply", "pay.py", "--sketch", "sketch.md"], cwd=folder)
    terminal.until("[yes/no]")
    (folder / "pay.py").write_text("# mine\n" + PAY, "utf-8")
    terminal.type("y\n")
    assert terminal.end() == 2
    assert "etude: " in terminal.shown
    assert (folder / "pay.py").read_text("utf-8") == "# mine\n" + PAY


def test_ctrl_c_at_the_question_changes_nothing(folder: Path) -> None:
    (folder / "sketch.md").write_text(SKETCH, "utf-8")
    terminal = Terminal(["apply", "pay.py", "--sketch", "sketch.md"], cwd=folder)
    terminal.until("[yes/no]")
    terminal.type("\x03")
    assert terminal.end() == 130
    assert "nothing was changed" in terminal.shown
    assert "Traceback" not in terminal.shown
    assert (folder / "pay.py").read_text("utf-8") == PAY


def test_ctrl_c_while_the_model_thinks_changes_nothing(folder: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, "apply", "pay.py", "--yes"],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin
    assert process.stderr
    process.stdin.write(SKETCH)
    process.stdin.close()
    assert process.stderr.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    said = process.stderr.read()
    assert (process.wait(), said) == (130, "\netude: interrupted; nothing was changed.\n")
    assert (folder / "pay.py").read_text("utf-8") == PAY
    process.stderr.close()
    assert process.stdout
    process.stdout.close()


def test_control_characters_cannot_reach_the_terminal(folder: Path) -> None:
    (folder / "pay.py").write_text(PAY.replace("def tax", "# \x1b]0;owned\x07\ndef tax"), "utf-8")
    (folder / "sketch.md").write_text(SKETCH, "utf-8")
    terminal = Terminal(["apply", "pay.py", "--sketch", "sketch.md"], cwd=folder)
    terminal.until("[yes/no]")
    terminal.type("y\n")
    assert terminal.end() == 0
    assert "\x1b]0;" not in terminal.shown
    assert "␛]0;owned␇" in terminal.shown
    assert "\x1b]0;owned\x07" in (folder / "pay.py").read_text("utf-8")


def test_control_characters_in_a_name_cannot_reach_the_terminal_in_an_error(folder: Path) -> None:
    done = etude("apply", "no\x1b]0;owned\x07.py", "--yes", cwd=folder, stdin=SKETCH)
    assert done.returncode == 2
    assert "\x1b" not in done.stderr
    assert "no␛]0;owned␇.py" in done.stderr


# The verb with an engine that computes in a thread for half a minute, as a merge of two long files does.
BUSY = SLOW.replace("await asyncio.Event().wait()", "await asyncio.to_thread(threading.Event().wait, 30)").replace(
    "import asyncio", "import threading, asyncio"
)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_it_ends_at_once_though_a_thread_still_computes(folder: Path, number: signal.Signals, code: int) -> None:
    (folder / "sketch.md").write_text(SKETCH, "utf-8")
    command = [sys.executable, "-c", BUSY, "apply", "pay.py", "--yes", "--sketch", "sketch.md"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        assert process.stderr.readline() == "begun\n"
        process.send_signal(number)
        assert process.wait(timeout=20) == code
    assert (folder / "pay.py").read_text("utf-8") == PAY


def test_asked_to_end_from_outside_it_changes_nothing_and_leaves_nothing_behind(folder: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, "apply", "pay.py", "--yes"],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin
    assert process.stderr
    process.stdin.write(SKETCH)
    process.stdin.close()
    assert process.stderr.readline() == "begun\n"
    process.send_signal(signal.SIGTERM)
    assert (process.wait(), process.stderr.read()) == (143, "")
    assert [(path.name, path.read_text("utf-8")) for path in folder.iterdir()] == [("pay.py", PAY)]
    process.stderr.close()


# --- models, doctor, serve


def test_models_are_listed_imported_and_removed(empty_cache: Path, make_gguf: MakeGguf) -> None:
    done = etude("models")
    assert done.returncode == 0
    assert done.stdout.count("not here") == len(catalog.CATALOG)
    assert max(map(len, done.stdout.splitlines()[:-1])) <= 80
    done = etude("models", "import", str(make_gguf("mine.gguf")))
    assert done.returncode == 0
    assert done.stdout.startswith("mine is ready: ")
    assert "not in the catalog, so its licence" in done.stderr
    assert re.search(r"^mine .* unknown +ready", etude("models").stdout, re.MULTILINE)
    assert etude("models", "remove", "mine").returncode == 0
    assert "mine" not in etude("models").stdout


NO_NETWORK = {
    "PIP_CONFIG_FILE": os.devnull,
    "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
    "PIP_EXTRA_INDEX_URL": "",
    "PIP_FIND_LINKS": "",
    "PIP_RETRIES": "0",
    "ETUDE_CONFIG": os.devnull,
}


@pytest.mark.parametrize("arguments", [["models", "fetch"], ["serve", "--no-browser"]])
def test_a_first_run_without_network_says_how_to_go_on(empty_cache: Path, folder: Path, arguments: list[str]) -> None:
    done = etude(*arguments, cwd=folder, env=NO_NETWORK)
    assert (done.returncode, done.stdout) == (2, "")
    assert "smollm2-135m: downloading" in done.stderr
    assert "`etude models import FILE`" in done.stderr
    assert "Traceback" not in done.stderr


def test_doctor_names_the_missing_model_and_the_way_to_get_it(empty_cache: Path) -> None:
    done = etude("doctor", env={"ETUDE_CONFIG": os.devnull})
    assert done.returncode == 1
    assert "cannot be used yet: model." in done.stdout
    assert "etude models fetch smollm2-135m" in " ".join(done.stdout.split())
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.parametrize("lacking", ["bwrap", "unshare"])
def test_doctor_says_that_the_agent_does_not_start_without_isolation(tmp_path: Path, lacking: str) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in {"bwrap", "unshare", "mount", "cat", "cp", "sh", "nsenter", "git"} - {lacking}:
        if found := shutil.which(name):
            (programs / name).symlink_to(found)
    env = {"ETUDE_CONFIG": os.devnull, "PATH": str(programs), "ETUDE_STATE": str(tmp_path / "state")}
    done = etude("doctor", env=env | {"ETUDE_MODEL_URL": "http://127.0.0.1:9/v1"})
    assert done.returncode == 0, "the rest of etude can be used"
    assert re.search(r"can be used, without its agent: .*(isolation|shadow)\.", done.stdout)
    assert "no agent  " in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert list((tmp_path / "state").rglob("*trial*")) == []


def test_doctor_tells_which_mechanism_the_settings_want(tmp_path: Path) -> None:
    (tmp_path / "etude.toml").write_text('[shadow]\nmechanism = "magic"\n', "utf-8")
    env = {"ETUDE_CONFIG": str(tmp_path / "etude.toml"), "ETUDE_STATE": str(tmp_path / "state")}
    done = etude("doctor", env=env)
    assert "magic does not work here" in done.stdout
    (tmp_path / "etude.toml").write_text('[shadow]\nmechanism = "copy"\n', "utf-8")
    assert "by copy, as the settings say" in etude("doctor", env=env).stdout


@pytest.mark.embedded
def test_doctor_is_content_with_the_embedded_model() -> None:
    done = etude("doctor", env={"ETUDE_CONFIG": os.devnull})
    assert done.returncode == 0, done.stdout
    assert "smollm2-135m (embedded, in this process), hash checked" in done.stdout


def test_serve_opens_at_a_loopback_address_and_ends_with_ctrl_c(folder: Path) -> None:
    env = os.environ | {"ETUDE_MODEL_URL": "http://127.0.0.1:9/v1", "ETUDE_CONFIG": os.devnull}
    process = subprocess.Popen(
        command("serve", str(folder), "--no-browser"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
    )
    assert process.stdout
    address = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())
    assert address
    assert "etude" in httpx.get(address[0]).text
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert (process.returncode, "Traceback" in error) == (0, False), error
