"""Reading, saving, undoing and listing over HTTP."""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from etude.server import tree


def _open(client, path: str) -> dict:
    answer = client.get("/api/file", params={"path": path})
    assert answer.status_code == 200, answer.text
    return answer.json()


def _save(client, path: str, text: str, base: str | None):
    return client.post("/api/save", json={"path": path, "text": text, "baseSha256": base})


def test_a_save_changes_the_file_and_keeps_bytes_that_nobody_touched(start_server):
    server = start_server()
    file = server.root / "mixed.py"
    file.write_bytes(b"\xef\xbb\xbfone = 1\r\ntwo = 2\nthree = 3\r\n# tail without end")
    with server.client() as client:
        opened = _open(client, "mixed.py")
        assert opened["text"] == "one = 1\ntwo = 2\nthree = 3\n# tail without end"
        text = opened["text"].replace("three = 3\n", "three = 3\nfour = 4\n")
        saved = _save(client, "mixed.py", text, opened["sha256"])
    assert saved.status_code == 200
    assert file.read_bytes() == b"\xef\xbb\xbfone = 1\r\ntwo = 2\nthree = 3\r\nfour = 4\r\n# tail without end"


def test_a_stale_save_is_a_conflict_and_writes_nothing(start_server):
    server = start_server()
    file = server.root / "a.py"
    file.write_text("x = 1\n")
    with server.client() as client:
        opened = _open(client, "a.py")
        file.write_text("x = 'someone else'\n")
        answer = _save(client, "a.py", "x = 2\n", opened["sha256"])
    assert answer.status_code == 409
    assert answer.json()["error"] == "FileChanged"
    assert "a.py was changed on disk" in answer.json()["message"]
    assert file.read_text() == "x = 'someone else'\n"


# Two requests that save the same state; each waits, just before its rename, for the other to come as far.
SAVES_AT_ONCE = """
import contextlib, sys, threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from etude.errors import FileChanged
from etude.server.saves import Saves

saves, both = Saves(Path(sys.argv[1])), threading.Barrier(2)
base = saves.open("a.py").sha256

def meet(name, args):
    if name == "os.rename":
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(timeout=1)

def save(text):
    try:
        saves.save("a.py", text, base)
    except FileChanged:
        return "refused"
    return "saved"

sys.addaudithook(meet)
with ThreadPoolExecutor(2) as pool:
    print(*sorted(pool.map(save, ["one", "two"])))
"""


def test_of_two_saves_at_once_from_one_state_only_one_is_done(tmp_path):
    (tmp_path / "a.py").write_text("zero")
    command = [sys.executable, "-c", SAVES_AT_ONCE, str(tmp_path)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "refused saved\n"


@pytest.mark.parametrize("path", ["a.py/new.py", "loop/new.py", "n" * 300, "d/" * 1500 + "x.py"])
def test_an_impossible_path_is_refused_and_no_failure_of_etude(start_server, path):
    server = start_server()
    (server.root / "a.py").write_text("x = 1\n")
    (server.root / "loop").symlink_to("loop")
    with server.client() as client:
        answers = [client.get("/api/file", params={"path": path}), _save(client, path, "x", None)]
        answers += [client.get("/api/folder", params={"path": path})]
        answers += [client.post("/api/split", json={"reply": f"```py:{path}\nx = 1\n```\n"})]
    assert {answer.status_code for answer in answers[:3]} <= {403, 422}
    assert answers[3].status_code in (200, 403)
    assert sorted(path.name for path in server.root.iterdir()) == ["a.py", "loop"]


def test_a_folder_is_listed_without_names_that_cannot_travel(start_server):
    server = start_server()
    _write(server.root, "a.py", os.fsdecode(b"caf\xe9.py"))
    (server.root / "loop").symlink_to("loop")
    with server.client() as client:
        answer = client.get("/api/folder")
        assert client.get("/api/files").json()["files"] == ["a.py"]
    assert [entry["name"] for entry in answer.json()["entries"]] == ["a.py"]


def test_undo_takes_saves_back_one_by_one_to_the_very_bytes(start_server):
    server = start_server()
    file = server.root / "a.py"
    file.write_bytes(b"x = 1\r\n")
    with server.client() as client:
        assert _open(client, "a.py")["canUndo"] is False
        first = _save(client, "a.py", "x = 2\n", _open(client, "a.py")["sha256"]).json()
        assert first["canUndo"] is True
        _save(client, "a.py", "x = 3\n", first["sha256"])
        undone = client.post("/api/undo", json={"path": "a.py"}).json()["file"]
        assert (undone["text"], undone["canUndo"], file.read_bytes()) == ("x = 2\n", True, b"x = 2\r\n")
        client.post("/api/undo", json={"path": "a.py"})
        assert file.read_bytes() == b"x = 1\r\n"
        again = client.post("/api/undo", json={"path": "a.py"})
    assert again.status_code == 400
    assert "nothing to undo" in again.json()["message"]


def test_undo_refuses_when_someone_else_changed_the_file_since(start_server):
    server = start_server()
    file = server.root / "a.py"
    file.write_text("x = 1\n")
    with server.client() as client:
        _save(client, "a.py", "x = 2\n", _open(client, "a.py")["sha256"])
        file.write_text("x = 'someone else'\n")
        answer = client.post("/api/undo", json={"path": "a.py"})
    assert answer.status_code == 409
    assert file.read_text() == "x = 'someone else'\n"


def test_a_new_file_is_created_with_its_folders_and_undo_removes_it(start_server):
    server = start_server()
    with server.client() as client:
        assert _save(client, "pay/api/new.py", "x = 1\n", None).status_code == 200
        assert (server.root / "pay/api/new.py").read_text() == "x = 1\n"
        taken = _save(client, "pay/api/new.py", "x = 2\n", None)
        assert taken.status_code == 422
        assert "exists already" in taken.json()["message"]
        assert client.post("/api/undo", json={"path": "pay/api/new.py"}).json() == {"file": None}
    assert not (server.root / "pay/api/new.py").exists()


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"\0\1\2", "binary"), (b"caf\xe9\n", "not UTF-8"), (b"x" * 10_000_001, "MB"), (None, "does not exist")],
)
def test_a_file_that_cannot_be_edited_says_why(start_server, content, says):
    server = start_server()
    if content is not None:
        (server.root / "a.bin").write_bytes(content)
    with server.client() as client:
        answer = client.get("/api/file", params={"path": "a.bin"})
    assert answer.status_code == 422
    assert says in answer.json()["message"]


@pytest.mark.parametrize("body", [b"", b"nonsense", b'{"path": 3}', b"\xff\xfe", b"[]"])
def test_a_body_that_is_not_understood_is_a_clear_refusal(start_server, body):
    server = start_server()
    with server.client() as client:
        for path in ("/api/save", "/api/undo", "/api/split"):
            answer = client.post(path, content=body)
            assert answer.status_code == 400
            assert "not understood" in answer.json()["message"]


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_repository_lists_what_git_would(start_server):
    server = start_server()
    _write(server.root, "kept.py", "new.py", "deleted.py", "made/out.js", "src/ä.py")
    (server.root / ".gitignore").write_text("made/\n")
    subprocess.run(["git", "init", "-q"], cwd=server.root, check=True)
    subprocess.run(["git", "add", "kept.py", "deleted.py"], cwd=server.root, check=True)
    (server.root / "deleted.py").unlink()
    with server.client() as client:
        listing = client.get("/api/files").json()
    assert listing == {"files": [".gitignore", "kept.py", "new.py", "src/ä.py"], "tooMany": False, "git": True}


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_listing_runs_no_program_that_the_repository_names(start_server):
    server = start_server()
    subprocess.run(["git", "init", "-q"], cwd=server.root, check=True)
    trap = server.root / "trap.sh"
    trap.write_text(f"#!/bin/sh\ntouch {server.root}/sprung\n")
    trap.chmod(0o755)
    subprocess.run(["git", "config", "core.fsmonitor", str(trap)], cwd=server.root, check=True)
    subprocess.run(["git", "ls-files", "-o"], cwd=server.root, check=True, capture_output=True)
    assert (server.root / "sprung").exists(), "the trap does not work, so this test shows nothing"
    (server.root / "sprung").unlink()
    with server.client() as client:
        assert "trap.sh" in client.get("/api/files").json()["files"]
    assert not (server.root / "sprung").exists()


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_listing_fetches_nothing_from_where_the_repository_says(start_server):
    """A repository that lacks a folder's object can name a program that is to bring it."""
    server = start_server()
    git = ["git", "-C", str(server.root), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    sprung, lacking = server.root.parent / "sprung", server.root / "lacking"
    _write(server.root, "folder/a.py", "top.py")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], check=True)
    subprocess.run([*git, "clone", "-q", "--no-hardlinks", ".", str(lacking)], check=True)
    git[2] = str(lacking)
    subprocess.run([*git, "sparse-checkout", "set", "--cone", "--sparse-index", "none"], check=True)
    found = subprocess.run(
        [*git, "rev-parse", "HEAD:folder"], check=True, capture_output=True, text=True
    ).stdout.strip()
    evil = {"promisor": "true", "url": str(server.root), "uploadpack": f"touch '{sprung}'; git-upload-pack"}
    settings = {"core.repositoryformatversion": "1", "extensions.partialClone": "evil", "protocol.file.allow": "always"}
    for key, value in (settings | {f"remote.evil.{key}": value for key, value in evil.items()}).items():
        subprocess.run([*git, "config", key, value], check=True)
    packs = lacking / ".git" / "objects" / "pack"
    for attempt in ("git itself", "etude"):
        (lacking / ".git" / "objects" / found[:2] / found[2:]).unlink(missing_ok=True)
        shutil.rmtree(packs, ignore_errors=True)
        if attempt == "etude":
            assert "top.py" in asyncio.run(tree.list_files(lacking)).files
        else:
            subprocess.run([*git, "ls-files"], capture_output=True, check=False)
            assert sprung.exists(), "the trap does not work, so this test shows nothing"
            sprung.unlink()
    assert not sprung.exists()


def test_a_plain_folder_is_walked_without_what_tools_made(start_server):
    server = start_server()
    _write(server.root, "a.py", "b/c.py", "node_modules/x/y.js", "__pycache__/a.pyc")
    with server.client() as client:
        listing = client.get("/api/files").json()
        folder = client.get("/api/folder", params={"path": "b"}).json()
        outside = client.get("/api/folder", params={"path": ".."})
        no_folder = client.get("/api/folder", params={"path": "a.py"})
    assert listing == {"files": ["a.py", "b/c.py"], "tooMany": False, "git": False}
    assert folder == {"path": "b", "entries": [{"name": "c.py", "isFolder": False}], "truncated": False}
    assert (outside.status_code, no_folder.status_code) == (403, 422)


async def _listing(root: Path, max_files: int):
    return await tree.list_files(root, max_files=max_files)


def test_a_folder_with_too_many_files_is_listed_folder_by_folder(tmp_path):
    _write(tmp_path, *(f"many/{number}.txt" for number in range(12)), "z.py")
    listing = asyncio.run(_listing(tmp_path, 10))
    assert (listing.files, listing.too_many) == ([], True)
    assert [entry.name for entry in tree.list_folder(tmp_path, "").entries] == ["many", "z.py"]
    assert not asyncio.run(_listing(tmp_path, 13)).too_many


def test_a_reply_is_taken_apart_by_file(start_server):
    server = start_server()
    _write(server.root, "shop/cart.py")
    reply = "Two files:\n\n```python\n# shop/cart.py\nx = 1\n```\n\n```python\n# shop/new.py\ny = 2\n```\n"
    with server.client() as client:
        named = client.post("/api/split", json={"reply": reply}).json()["files"]
        bare = client.post("/api/split", json={"reply": "x = 2\n", "path": "shop/cart.py"}).json()["files"]
        homeless = client.post("/api/split", json={"reply": "x = 2\n"}).json()["files"]
    assert [(file["path"], file["exists"]) for file in named] == [("shop/cart.py", True), ("shop/new.py", False)]
    assert [file["path"] for file in bare] == ["shop/cart.py"]
    assert homeless == []


def _write(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("x\n")
