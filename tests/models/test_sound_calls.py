"""Calls that a model got wrong are sent in a form that no server chokes on."""

import json

import pytest

from etude.messages import Chat, Message, Role, ToolCall
from etude.models.openai_wire import wire_messages


def sent(*messages: Message) -> list[dict]:
    return wire_messages(Chat(messages=messages))


def asks(*calls: ToolCall) -> Message:
    return Message(role=Role.ASSISTANT, text="", tool_calls=calls)


@pytest.mark.parametrize("arguments", ['{"path": ', "", "[1]", '"x"', "NaN", '{"a": NaN}', "[" * 100_000])
def test_arguments_that_are_no_object_are_quoted(arguments: str):
    (message,) = sent(asks(ToolCall(id="c", name="read", arguments=arguments)))
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"malformed": arguments}


def test_sound_arguments_are_sent_as_the_model_wrote_them():
    (message,) = sent(asks(ToolCall(id="c", name="read", arguments='{ "path":"é" }')))
    assert message["tool_calls"][0]["function"]["arguments"] == '{ "path":"é" }'


def test_a_call_without_a_usable_name_gets_one():
    (message,) = sent(asks(ToolCall(id="a", name="", arguments="{}"), ToolCall(id="b", name="r m/é", arguments="{}")))
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["malformed", "r_m__"]


def test_missing_and_repeated_ids_become_own_ones_and_results_follow():
    call = ToolCall(id="", name="read", arguments="{}")
    results = [Message(role=Role.TOOL, text=text, tool_call_id="") for text in ("one", "two")]
    first, *rest = sent(asks(call, call), *results, asks(call), results[0])
    ids = [one["id"] for one in first["tool_calls"]] + [rest[2]["tool_calls"][0]["id"]]
    assert len(set(ids)) == 3
    assert "" not in ids
    assert [rest[0]["tool_call_id"], rest[1]["tool_call_id"], rest[3]["tool_call_id"]] == ids
