"""The tools that run commands, ask language servers, keep checkpoints and plan; and what all tools have in common."""

import asyncio
import json
from collections.abc import Callable, Sequence

import msgspec
import pytest

from etude.agent.events import AgentEvent, OutputPrinted, PlanChanged, QuestionAnswered, QuestionAsked
from etude.agent.records import Records
from etude.agent.tool_choice import tools_for
from etude.agent.toolbox import (
    Answer,
    StructTool,
    Tool,
    Toolbox,
    ToolContext,
    ToolKind,
    WrongArguments,
    kind_of,
    signature,
)
from etude.agent.tools.ask import ASK
from etude.agent.tools.checkpoint import CHECKPOINT, RESTORE
from etude.agent.tools.diagnostics import DIAGNOSTICS, report_lines
from etude.agent.tools.navigate import DEFINITION, REFERENCES
from etude.agent.tools.plan import PLAN, last_plan
from etude.agent.tools.run import RUN
from etude.edits import Patch
from etude.messages import ToolCall
from etude.traces import ToolResult, Turn, TurnError
from etude.workspace.memory import MemoryWorkspace
from etude.workspace.workspace import (
    Command,
    CommandResult,
    Diagnostic,
    DiagnosticsReport,
    Ending,
    Entry,
    OpenedPath,
    Place,
    Severity,
    Symbol,
)

FILES = {"pay.py": "def total(prices):\n    return sum(prices)\n", "use.py": "from pay import total\ntotal([])\n"}


def use(tool: Tool, workspace: MemoryWorkspace, events: list[AgentEvent] | None = None, **arguments: object) -> Answer:
    observer = (events if events is not None else []).append
    context = ToolContext(workspace=workspace, records=Records(None), observer=observer, call_id="c1", seconds_left=50)
    return asyncio.run(tool.call(tool.read(json.dumps(arguments)), context))


# Commands.


def test_a_command_answers_with_output_exit_code_and_changes() -> None:
    def shell(command: Command, files: dict[str, str]) -> tuple[int, str]:
        files["out.txt"] = "made"
        del files["use.py"]
        return 3, "some output\n"

    events: list[AgentEvent] = []
    result = use(RUN, MemoryWorkspace(FILES, commands=shell), events, command="make")
    assert result.text == "some output\nExit code 3.\nIt changed out.txt, use.py."
    assert (result.error, result.exit_code, result.changed) == (TurnError.COMMAND_FAILED, 3, ("out.txt", "use.py"))
    assert events == [OutputPrinted(id="c1", text="some output\n")]


def test_a_command_that_changes_a_changed_file_again_is_seen() -> None:
    workspace = MemoryWorkspace(FILES, commands=lambda command, files: files.update(a=files.get("a", "") + "x") or "")
    assert [use(RUN, workspace, command="x").changed for _ in range(2)] == [("a",), ("a",)]


def test_a_command_is_given_its_folder_and_no_more_time_than_there_is() -> None:
    workspace = MemoryWorkspace(FILES, commands={"ls": ""})
    use(RUN, workspace, command="ls", folder="/memory/src", seconds=3_000)
    assert (workspace.ran[0].folder, workspace.ran[0].limits.seconds) == ("src", 50)
    assert "printed nothing" in use(RUN, workspace, command="ls").text


@pytest.mark.parametrize("ending", [Ending.TIMED_OUT, Ending.OUT_OF_MEMORY, Ending.OUT_OF_DISK, Ending.STOPPED])
def test_a_command_that_was_ended_says_why_and_what_it_had_printed(ending: Ending) -> None:
    ended = CommandResult(ending=ending, exit_code=None, output="half", num_output_bytes=4, seconds=1.0)
    result = use(RUN, MemoryWorkspace(commands={"x": ended}), command="x", seconds=7)
    assert result.text.startswith("half\nIt was ")
    assert (result.error, result.exit_code) == (TurnError.COMMAND_FAILED, None)
    assert ("7 seconds" in result.text) == (ending is Ending.TIMED_OUT)


def test_what_a_command_read_is_kept_for_the_record() -> None:
    opened = (OpenedPath(path="/memory/b", written=False), OpenedPath(path="/memory/a", written=True))
    ended = CommandResult(
        ending=Ending.EXITED, exit_code=0, output="", num_output_bytes=0, seconds=0.1, opened=opened, opened_known=True
    )
    result = use(RUN, MemoryWorkspace(commands={"x": ended}), command="x")
    assert result.opened == ("/memory/b",)


# Language servers.


def diagnostic(line: int, severity: Severity = Severity.ERROR, path: str = "pay.py") -> Diagnostic:
    place = Place(path=path, line=line, column=1, end_line=line, end_column=2)
    return Diagnostic(place=place, severity=severity, message=f"bad\n line {line}", server="ty", code="x1")


def test_diagnostics_are_told_worst_first_and_on_one_line() -> None:
    workspace = MemoryWorkspace({}, check=lambda files: [diagnostic(1, Severity.HINT), diagnostic(2)] if files else [])
    assert "Nothing has changed" in use(DIAGNOSTICS, workspace).text
    workspace.files["pay.py"] = ""
    assert use(DIAGNOSTICS, workspace, paths=["/memory/pay.py"]).text.split("\n") == [
        "New (2):",
        "  pay.py:2:1 error: bad line 2 [ty x1]",
        "  pay.py:1:1 hint: bad line 1 [ty x1]",
    ]


def test_many_diagnostics_are_cut_but_both_kinds_are_seen() -> None:
    report = DiagnosticsReport(
        appeared=tuple(map(diagnostic, range(1, 500))), gone=tuple(map(diagnostic, range(500, 900)))
    )
    lines = report_lines(report, 20)
    assert len(lines) <= 20
    assert "New (499):" in lines
    assert "Gone (400):" in lines


class Navigated(MemoryWorkspace):
    """Finds names by looking for them."""

    def _places(self, name: str) -> list[Place]:
        return [
            Place(path=path, line=number, column=line.index(name) + 1, end_line=number, end_column=line.index(name) + 2)
            for path, text in self.files.items()
            for number, line in enumerate(text.split("\n"), 1)
            if name in line
        ]

    async def definition(self, path: str, line: int, column: int) -> list[Place]:
        return self._places("def total")

    async def references(self, path: str, line: int, column: int) -> list[Place]:
        return self._places("total")

    async def hover(self, path: str, line: int, column: int) -> str:
        return ""

    async def symbols(self, query: str = "", path: str = "") -> list[Symbol]:
        return [Symbol(name="total", kind="function", place=place) for place in self._places(f"def {query}")]

    async def rename(self, path: str, line: int, column: int, name: str) -> list[Patch]:
        return []


def test_code_is_found_by_name_and_by_place() -> None:
    workspace = Navigated(FILES)
    assert use(DEFINITION, workspace, name="total").text == "pay.py:1:1 def total(prices):"
    assert use(DEFINITION, workspace, path="use.py", line=2).text == "pay.py:1:1 def total(prices):"
    assert use(REFERENCES, workspace, name="total").text.split("\n") == [
        "pay.py:1:5 def total(prices):",
        "use.py:1:17 from pay import total",
        "use.py:2:1 total([])",
    ]
    assert use(REFERENCES, workspace, path="pay.py", line=1, column=5).text.count("\n") == 2


def test_what_is_not_found_or_not_asked_is_told() -> None:
    workspace = Navigated(FILES)
    for tool in (DEFINITION, REFERENCES):
        assert use(tool, workspace, name="nope").error is TurnError.TOOL_FAILED
        assert "Give the name" in use(tool, workspace).text


# Checkpoints, plans, questions.


def test_a_checkpoint_is_gone_back_to_and_that_is_undone() -> None:
    workspace = MemoryWorkspace(FILES)
    assert "Checkpoint 1-before" in use(CHECKPOINT, workspace, label="before").text
    workspace.files["pay.py"] = "broken"
    back = use(RESTORE, workspace, checkpoint="1-before")
    assert back.changed == ("pay.py",)
    assert workspace.files == FILES
    undo = back.text.rpartition("restore ")[2].rstrip(".")
    use(RESTORE, workspace, checkpoint=undo)
    assert workspace.files["pay.py"] == "broken"


def test_a_plan_is_shown_and_found_again_in_the_turns() -> None:
    events: list[AgentEvent] = []
    steps = [{"text": "look", "state": "done"}, {"text": "fix"}]
    text = use(PLAN, MemoryWorkspace(), events, steps=steps).text
    assert text == "The plan is:\n[x] look\n[ ] fix"
    (event,) = events
    assert isinstance(event, PlanChanged)
    call = ToolCall(id="1", name="plan", arguments=json.dumps({"steps": steps}))
    turn = Turn(number=1, sent=(), text="", tool_calls=(call,), results=(ToolResult(call=call, text=text),))
    assert list(last_plan([turn])) == event.steps
    assert last_plan([]) == ()


def test_a_question_without_a_person_is_told_apart() -> None:
    events: list[AgentEvent] = []
    result = use(ASK, MemoryWorkspace(), events, question="Which?", choices=["a", "b"])
    assert result.text.startswith("No answer: nobody is there")
    assert events == [QuestionAsked(id="c1", text="Which?", choices=["a", "b"]), QuestionAnswered(id="c1", text=None)]


# What all have in common.


class Bare:
    """Only what every workspace has."""

    def __init__(self) -> None:
        self._inner = MemoryWorkspace(FILES)
        self.root = self._inner.root

    async def read(self, path: str) -> str:
        return await self._inner.read(path)

    async def write(self, path: str, text: str | None) -> None:
        await self._inner.write(path, text)

    async def run(self, command: Command, *, on_output: Callable[[str], None] | None = None) -> CommandResult:
        return await self._inner.run(command, on_output=on_output)

    async def diagnostics(self, paths: Sequence[str] = ()) -> DiagnosticsReport:
        return await self._inner.diagnostics(paths)

    async def list(self, path: str = ".", *, depth: int = 1) -> list[Entry]:
        return await self._inner.list(path, depth=depth)


def test_tools_are_offered_for_what_the_workspace_can_do() -> None:
    bare = {tool.spec.name for tool in tools_for(Bare())}
    memory = {tool.spec.name for tool in tools_for(MemoryWorkspace())}
    navigated = {tool.spec.name for tool in tools_for(Navigated())}
    assert memory - bare == {"checkpoint", "restore"}
    assert navigated - memory == {"definition", "references"}
    assert bare == {"read", "list", "search", "edit", "write", "run", "diagnostics", "recall", "plan", "ask", "finish"}


@pytest.mark.parametrize("tool", tools_for(Navigated()), ids=lambda tool: tool.spec.name)
def test_every_tool_has_a_whole_schema_and_words(tool: Tool) -> None:
    spec = tool.spec
    assert spec.description
    text = json.dumps(spec.parameters)
    assert "$ref" not in text
    assert spec.parameters["type"] == "object"
    assert spec.parameters["additionalProperties"] is False
    assert signature(spec).startswith(f"{spec.name}(")
    with pytest.raises(WrongArguments, match="unknown field"):
        tool.read('{"no_such_argument": 1}')


def test_only_what_changes_files_is_marked_so() -> None:
    tools = tools_for(Navigated())
    assert {tool.spec.name for tool in tools if kind_of(tool) is ToolKind.CHANGES} == {
        "edit",
        "write",
        "run",
        "restore",
    }
    assert {tool.spec.name for tool in tools if kind_of(tool) is ToolKind.ASKS} == {"ask"}


class Several(msgspec.Struct, forbid_unknown_fields=True):
    path: str
    lines: list[int] = []
    mode: str | None = None


async def _nothing(arguments: Several, context: ToolContext) -> Answer:
    return Answer(text="")


def test_a_signature_is_readable() -> None:
    tool = StructTool(name="several", description="", arguments=Several, action=_nothing)
    assert signature(tool.spec) == "several(path: string, lines?: [integer], mode?: string | null)"
    assert "active" in signature(PLAN.spec)


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        ("", TurnError.WRONG_ARGUMENTS, "path"),
        ("null", TurnError.WRONG_ARGUMENTS, "object"),
        ('{"path": 1}', TurnError.WRONG_ARGUMENTS, "$.path"),
        ('{"path": "a"', TurnError.MALFORMED_CALL, "not JSON"),
        ('{"path": "\\ud800"}', TurnError.MALFORMED_CALL, "not JSON"),
        ("[" * 100_000, TurnError.WRONG_ARGUMENTS, "object"),
        ('{"lines": ' * 100_000, TurnError.WRONG_ARGUMENTS, "lines"),
        ("x" * 5_000_000, TurnError.WRONG_ARGUMENTS, "5000000"),
    ],
)
def test_wrong_arguments_are_explained_briefly(arguments: str, error: TurnError, told: str) -> None:
    tool = StructTool(name="several", description="", arguments=Several, action=_nothing)
    with pytest.raises(WrongArguments) as caught:
        tool.read(arguments)
    assert caught.value.error is error
    assert told in str(caught.value)
    assert len(str(caught.value)) < 500


def test_an_unknown_name_is_answered_with_the_nearest_and_all() -> None:
    toolbox = Toolbox(tools_for(MemoryWorkspace()))
    assert "Did you mean search?" in toolbox.unknown("serach")
    assert "Did you mean" not in toolbox.unknown("qqqq")
    assert "The tools are: read, list, search" in toolbox.unknown("x" * 100_000)
    assert len(toolbox.unknown("x" * 100_000)) < 1_000
    with pytest.raises(ValueError, match="two tools"):
        Toolbox([RUN, RUN])
