"""The editor as the agent needs it: whoever can be asked, whose unsaved text counts, and who writes files."""

import asyncio
import secrets
from collections.abc import Callable, Sequence

import acp
from acp import schema

from etude.workspace.shadow import ShadowWorkspace
from etude.workspace.three_way import merge
from etude.workspace.workspace import FileChange

# Buffers an editor holds are files a person has open.
MAX_BUFFER_CHARACTERS = 2_000_000

# An editor that does not say what a file holds must not hold up the run.
READ_SECONDS = 5.0


class Editor:
    """A Person (`agent/events.py`) behind the protocol."""

    def __init__(
        self,
        client: acp.Client,
        session_id: str,
        shadow: ShadowWorkspace,
        files: schema.FileSystemCapabilities | None,
    ) -> None:
        self._client = client
        self._session_id = session_id
        self._shadow = shadow
        self._reads = bool(files and files.read_text_file)
        self._writes = bool(files and files.write_text_file)
        self.open_question = ""
        """What the run was left for; the next prompt answers it."""
        self.leave: Callable[[], object] = lambda: None
        """Ends the run as it stands; set by whoever runs it."""

    async def answer(self, question: str, choices: Sequence[str]) -> str | None:
        """By a permission's options, the only question every editor can show.

        Without choices the run is left, and what the person writes next is the answer.
        """
        await self._client.session_update(self._session_id, acp.update_agent_message_text(question))
        if not choices:
            self.open_question = question
            self.leave()
            return None
        options = [
            schema.PermissionOption(option_id=str(number), name=choice, kind="allow_once")
            for number, choice in enumerate(choices)
        ]
        asked = schema.ToolCallUpdate(tool_call_id=_new_id("ask"), title=question, kind="other", status="pending")
        answer = await self._client.request_permission(self._session_id, asked, options)
        chosen = getattr(answer.outcome, "option_id", None)
        return next((choice for number, choice in enumerate(choices) if str(number) == chosen), None)

    async def consents(self, action: str, detail: str) -> bool:
        options = [
            schema.PermissionOption(option_id="yes", name="Allow", kind="allow_once"),
            schema.PermissionOption(option_id="no", name="Refuse", kind="reject_once"),
        ]
        content = [acp.tool_content(acp.text_block(detail))]
        asked = schema.ToolCallUpdate(tool_call_id=_new_id("consent"), title=action, status="pending", content=content)
        answer = await self._client.request_permission(self._session_id, asked, options)
        return getattr(answer.outcome, "option_id", None) == "yes"

    async def hand_over(self, path: str) -> None:
        """Have the shadow show the editor's text of a file, where the editor has one that is not saved."""
        if not self._reads:
            return
        # First, since it refuses a path that leads out, which is none of the editor's business.
        saved = await self._shadow.saved(path)
        text = await self._text_of(path)
        if text is None or len(text) > MAX_BUFFER_CHARACTERS:
            return
        await self._shadow.set_buffer(path, None if saved == text.encode("utf-8", "replace") else text)

    async def write_all(self, changes: Sequence[FileChange]) -> tuple[list[FileChange], list[str]]:
        """Have the editor write what is text; returns what it cannot, and what it changed meanwhile itself."""
        rest: list[FileChange] = []
        problems: list[str] = []
        for change in changes:
            if not self._writes or not _is_text(change):
                rest.append(change)
                continue
            problem = await self._write(change)
            if problem:
                problems.append(problem)
        return rest, problems

    async def _write(self, change: FileChange) -> str:
        text = await self._text_of(change.path) if self._reads else None
        theirs = await self._shadow.saved(change.path) if text is None else text.encode("utf-8", "replace")
        merged = merge(change.before, change.after, theirs)
        if merged.conflict or merged.content is None:
            return f"{change.path}: both changed the same lines"
        path = str(self._shadow.root / change.path)
        try:
            await self._client.write_text_file(self._session_id, path, merged.content.decode("utf-8"))
        except acp.RequestError as error:
            return f"{change.path}: the editor did not write it: {error}"
        await self._shadow.set_buffer(change.path, None)
        return ""

    async def _text_of(self, path: str) -> str | None:
        """None where the editor cannot say, as for files that are not there."""
        try:
            async with asyncio.timeout(READ_SECONDS):
                answer = await self._client.read_text_file(self._session_id, str(self._shadow.root / path))
        except (acp.RequestError, TimeoutError):
            return None
        return answer.content


def _new_id(what: str) -> str:
    return f"{what}-{secrets.token_hex(4)}"


def _is_text(change: FileChange) -> bool:
    """A change of a text file's content only."""
    if change.after is None or b"\0" in change.after or (change.before is not None and b"\0" in change.before):
        return False
    if change.mode_before is not None and change.mode_before != change.mode:
        return False
    try:
        change.after.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
