"""A run's events as updates of the protocol, sent in their order: Updates."""

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import acp
from acp import schema

from etude.agent.events import (
    AgentEvent,
    CallFinished,
    CallStarted,
    Notice,
    OutputPrinted,
    PlanChanged,
    StepState,
    TextWritten,
)
from etude.traces import StopReason, Trace

# Of a result or an output an editor shows so much; the agent read what its tool gave it.
MAX_CHARACTERS = 20_000

_KINDS: dict[str, Any] = {
    "read": "read",
    "list": "read",
    "recall": "read",
    "search": "search",
    "definition": "search",
    "references": "search",
    "edit": "edit",
    "write": "edit",
    "run": "execute",
    "plan": "think",
}
_STATES: dict[StepState, Any] = {
    StepState.PENDING: "pending",
    StepState.ACTIVE: "in_progress",
    StepState.DONE: "completed",
}


class Updates:
    """`observe` takes events without waiting; they are sent by a task of their own until `close`."""

    def __init__(self, client: acp.Client, session_id: str, root: Path) -> None:
        self._client = client
        self._session_id = session_id
        self._root = root
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self._printed: dict[str, str] = {}
        self._task = asyncio.create_task(self._send_all())

    def observe(self, event: AgentEvent) -> None:
        update = self._update(event)
        if update is not None:
            self._queue.put_nowait(update)

    def say_end(self, trace: Trace) -> None:
        """What the agent says last, or why it ended without."""
        text = trace.answer if trace.stop_reason is StopReason.FINISHED else trace.stop_message
        if text:
            self._queue.put_nowait(acp.update_agent_message_text(f"\n{text}"))

    async def close(self) -> None:
        """Send what is left."""
        self._queue.put_nowait(None)
        with suppress(Exception):
            await self._task

    async def _send_all(self) -> None:
        while (update := await self._queue.get()) is not None:
            await self._client.session_update(self._session_id, update)

    def _update(self, event: AgentEvent) -> Any:
        if isinstance(event, TextWritten):
            return acp.update_agent_message_text(event.text)
        if isinstance(event, Notice):
            return acp.update_agent_thought_text(event.text)
        if isinstance(event, PlanChanged):
            entries = [acp.plan_entry(step.text, status=_STATES[step.state]) for step in event.steps]
            return acp.update_plan(entries)
        if isinstance(event, CallStarted):
            return self._started(event)
        if isinstance(event, OutputPrinted):
            printed = (self._printed.get(event.id, "") + event.text)[-MAX_CHARACTERS:]
            self._printed[event.id] = printed
            return acp.update_tool_call(event.id, content=[_text(printed)])
        if isinstance(event, CallFinished):
            return self._finished(event)
        return None

    def _started(self, event: CallStarted) -> Any:
        arguments = _arguments(event.arguments)
        path = arguments.get("path")
        where = [schema.ToolCallLocation(path=str(self._root / path))] if isinstance(path, str) else None
        kind = _KINDS.get(event.tool, "other")
        return acp.start_tool_call(
            event.id, event.summary, kind=kind, status="in_progress", locations=where, raw_input=arguments
        )

    def _finished(self, event: CallFinished) -> Any:
        self._printed.pop(event.id, None)
        status = "failed" if event.error else "completed"
        where = [schema.ToolCallLocation(path=str(self._root / path)) for path in event.changed[:50]]
        content = [_text(event.text[:MAX_CHARACTERS])] if event.text else None
        return acp.update_tool_call(event.id, status=status, content=content, locations=where or None)


def _text(text: str) -> Any:
    return acp.tool_content(acp.text_block(text))


def _arguments(text: str) -> dict[str, Any]:
    with suppress(ValueError, RecursionError):
        value = json.loads(text)
        if isinstance(value, dict):
            return value
    return {}
