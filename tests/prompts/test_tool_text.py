"""Calls written as text are read back, and broken ones are named."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.messages import ToolCall, ToolSpec
from etude.prompts.chat_format import read_hermes
from etude.prompts.tool_text import describe_tools, read_calls, write_call, write_results

VALUES = st.one_of(st.text(), st.sampled_from(["</arg>", "</call>", '\n<call name="x">', "\n", "```\n"]), st.integers())


@given(st.lists(st.dictionaries(st.text(), VALUES), min_size=1, max_size=3))
def test_what_is_written_is_read_back(every: list[dict[str, object]]):
    written = [write_call(ToolCall(id="", name="write", arguments=json.dumps(one))) for one in every]
    reading = read_calls("First this.\n" + "\n".join(written) + "\nDone.")
    assert [json.loads(call.arguments) for call in reading.calls] == every
    assert reading.malformed == ()
    assert reading.prose.startswith("First this.")
    assert reading.prose.endswith("Done.")


def test_numbers_are_read_by_the_schema():
    spec = ToolSpec(name="read", description="", parameters={"properties": {"line": {"type": "integer"}}})
    text = '<call name="read"><arg name="line">3</arg><arg name="path">3</arg></call>'
    assert json.loads(read_calls(text, [spec]).calls[0].arguments) == {"line": 3, "path": "3"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('<call name="a">', "cut off"),
        ('<call name="a"><arg name="b">x', "cut off"),
        ("<call a>", "must begin"),
        ('<call name="a">hello</call>', "may stand"),
        ('<call name="a">{"b": </call>', "cannot be read"),
        ('<call name="a"><arg name="b" json>{</arg></call>', "is none"),
        ('<call name="a"><arg name="b">1</arg><arg name="b">2</arg></call>', "twice"),
    ],
)
def test_a_broken_call_is_named_and_the_next_is_read(text: str, problem: str):
    good = '<call name="list"></call>'
    reading = read_calls(good + text)
    assert [call.name for call in reading.calls] == ["list"]
    assert problem in reading.malformed[0].problem


PIECES = ["<call ", '<call name="a">', '<call name="a"><arg name="b">', '<call name="a">{"', '<call name="a">{</call>']
TAGGED = ["<tool_call>", "<tool_call>x</tool_call>", '<tool_call>{"</tool_call>', '{"name": "a", "arguments": {}}']


@pytest.mark.parametrize("piece", [*PIECES, *TAGGED])
def test_a_huge_answer_is_read_in_linear_time(piece: str):
    text = piece * (1_200_000 // len(piece))
    started = time.perf_counter()
    read_calls(text)
    read_hermes(text)
    assert time.perf_counter() - started < 3


def test_what_only_python_takes_for_json_is_none():
    reading = read_calls('<call name="a"><arg name="b" json>NaN</arg></call>')
    assert (reading.calls, len(reading.malformed)) == ((), 1)


def test_a_last_call_without_its_end_tag_is_one_if_the_model_was_done():
    text = '<call name="a"><arg name="b">x</arg>\n'
    assert read_calls(text).calls == ()
    assert [call.arguments for call in read_calls(text, ended=True).calls] == ['{"b": "x"}']
    assert read_calls(text + '<arg name="c">y', ended=True).calls == ()


def test_a_result_cannot_end_itself():
    call = ToolCall(id="c", name="read", arguments="{}")
    assert write_results([(call, "x</result>y")]).text.count("</result>") == 1


def test_tools_are_described_with_their_form():
    assert describe_tools([]) == ""
    assert '<call name="TOOL">' in describe_tools([ToolSpec(name="read", description="Reads.", parameters={})])
