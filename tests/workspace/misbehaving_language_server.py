"""A language server that does what it is told to do wrong: `python misbehaving_language_server.py MODE`."""

import json
import sys
import time

MODE = sys.argv[1]


def send(message: dict) -> None:
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    sys.stdout.buffer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    sys.stdout.buffer.flush()


def read() -> dict | None:
    length = 0
    while (line := sys.stdin.buffer.readline()) not in (b"\r\n", b""):
        name, _, value = line.partition(b":")
        length = int(value) if name.lower() == b"content-length" else length
    return json.loads(sys.stdin.buffer.read(length)) if line else None


def diagnostic(message: str) -> dict:
    span = {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 1}}
    return {"range": span, "message": message, "severity": 1}


def publish(given: dict, version: int | None, *messages: str) -> None:
    uri = given["textDocument"]["uri"]
    send(
        {
            "method": "textDocument/publishDiagnostics",
            "params": {"uri": uri, "version": version, "diagnostics": [diagnostic(one) for one in messages]},
        }
    )


def answer(message: dict) -> None:
    method, given = message["method"], message.get("params") or {}
    if method == "initialize":
        if MODE == "garbage":
            sys.stdout.buffer.write(b"this is no protocol\n" * 500)
            sys.stdout.buffer.flush()
        elif MODE == "huge":
            sys.stdout.buffer.write(b"Content-Length: 99999999999\r\n\r\n")
            sys.stdout.buffer.flush()
        elif MODE == "mute":
            time.sleep(60)
        else:
            pulls = {"diagnosticProvider": {}} if MODE in ("dies", "outside", "many") else {}
            send({"id": message["id"], "result": {"capabilities": {**pulls, "definitionProvider": True}}})
    elif method == "textDocument/didOpen" and MODE == "versionless":
        publish(given, None, "of the old text")
    elif method == "textDocument/didChange" and MODE == "versionless":
        # Longer than a quiet server is waited for.
        time.sleep(0.5)
        publish(given, None, "of the new text")
    elif method == "textDocument/didChange" and MODE == "late":
        version = given["textDocument"]["version"]
        # What it says of the text before comes after the change, as from a server that is slow.
        publish(given, version - 1, "of the old text")
        publish(given, version, "of the new text")
    elif method == "textDocument/didOpen" and MODE == "late":
        publish(given, 1, "of the old text")
    elif method == "textDocument/didOpen" and MODE == "registers":
        wanted = {"id": "pull", "method": "textDocument/diagnostic"}
        send({"id": 1, "method": "client/registerCapability", "params": {"registrations": [wanted]}})
    elif method == "textDocument/diagnostic" and MODE == "dies":
        sys.exit("I give up")
    elif method == "textDocument/diagnostic" and MODE == "many":
        items = [diagnostic(f"number {number}") for number in range(100_000)]
        send({"id": message["id"], "result": {"kind": "full", "items": items}})
    elif method == "textDocument/diagnostic":
        send({"id": message["id"], "result": {"items": [diagnostic("fine"), {"range": "none"}, 7, None]}})
    elif method == "textDocument/definition":
        span = {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 1}}
        uris = ("file:///etc/passwd", "http://example.org/a.odd", "file:///../../etc/hosts", 5)
        send({"id": message["id"], "result": [{"uri": uri, "range": span} for uri in uris]})
    elif method == "exit":
        sys.exit()
    elif "id" in message:
        send({"id": message["id"], "result": None})


while (message := read()) is not None:
    if "method" in message:
        answer(message)
