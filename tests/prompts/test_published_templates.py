"""Our formats write what the families' own templates write. The expected texts were rendered with jinja2 from the
templates in the files of smollm2-135m and qwen2.5-coder-0.5b.
"""

import pytest

from etude.messages import Chat, Message, Role, ToolCall, ToolSpec
from etude.prompts.chat_format import QWEN2_5, SMOLLM2, ChatFormat

READ = ToolSpec(
    name="read",
    description="Reads é.",
    parameters={"type": "object", "properties": {"path": {"type": "string"}}},
)
SYSTEM = Message(role=Role.SYSTEM, text="Be brief.")
LOOK, MORE = Message(role=Role.USER, text="Look"), Message(role=Role.USER, text="More")
DONE = Message(role=Role.ASSISTANT, text="Done.")


def calls(text: str, *arguments: str) -> Message:
    made = tuple(ToolCall(id="c", name="read", arguments=one) for one in arguments)
    return Message(role=Role.ASSISTANT, text=text, tool_calls=made)


def result(text: str) -> Message:
    return Message(role=Role.TOOL, text=text, tool_call_id="c")


TOOLS = (
    "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with "
    'function signatures within <tools></tools> XML tags:\n<tools>\n{"type": "function", "function": {"name": "read", '
    '"description": "Reads é.", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}}\n'
    "</tools>\n\nFor each function call, return a json object with function name and arguments within "
    "<tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call><|im_end|>\n'
)
QWEN_LINE = "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant."
SMOL_LINE = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
OPENED = "<|im_start|>user\nLook<|im_end|>\n<|im_start|>assistant\n"
PLAIN = OPENED + "Done.<|im_end|>\n<|im_start|>user\nMore<|im_end|>\n<|im_start|>assistant\n"
WORK = (
    OPENED + 'I look.\n<tool_call>\n{"name": "read", "arguments": {"path": "a\\n\\"é\\""}}\n</tool_call>\n<tool_call>\n'
    '{"name": "read", "arguments": {}}\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\nx = 1\n\n'
    "</tool_response>\n<tool_response>\né\n</tool_response><|im_end|>\n<|im_start|>assistant\nDone.<|im_end|>\n"
    '<|im_start|>user\nMore<|im_end|>\n<|im_start|>assistant\n<tool_call>\n{"name": "read", "arguments": {"path": "b"}}'
    "\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\n\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
)
WORKED = (
    SYSTEM,
    LOOK,
    calls("I look.", '{"path":"a\\n\\"é\\""}', "{}"),
    result("x = 1\n"),
    result("é"),
    DONE,
    MORE,
    calls("", '{"path": "b"}'),
    result(""),
)


@pytest.mark.parametrize(
    ("chat_format", "chat", "expected"),
    [
        (QWEN2_5, Chat(messages=WORKED, tools=(READ,)), "<|im_start|>system\nBe brief." + TOOLS + WORK),
        (QWEN2_5, Chat(messages=(LOOK, DONE, MORE)), QWEN_LINE + "<|im_end|>\n" + PLAIN),
        (QWEN2_5, Chat(messages=(LOOK,), tools=(READ,)), QWEN_LINE + TOOLS + OPENED),
        (SMOLLM2, Chat(messages=(LOOK, DONE, MORE)), SMOL_LINE + "<|im_end|>\n" + PLAIN),
        (SMOLLM2, Chat(messages=(SYSTEM, LOOK, DONE, MORE)), "<|im_start|>system\nBe brief.<|im_end|>\n" + PLAIN),
    ],
    ids=["tools", "plain", "tools without a system message", "smollm2", "smollm2 with a system message"],
)
def test_conversations_are_those_of_the_published_template(chat_format: ChatFormat, chat: Chat, expected: str):
    assert "".join(segment.text for segment in chat_format.segments(chat)) == expected
