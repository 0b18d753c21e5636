"""How a conversation becomes the text a model was trained to answer; one class a model family.

A format yields segments rather than one string, because only the format's own markers may become control
tokens: what a person or a file says stays text, even when it spells a marker.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from etude.errors import Unsupported
from etude.messages import Chat, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A piece of a prompt: Segment(text="<|im_start|>", control=True), then Segment(text="user\\nHello")."""

    text: str
    control: bool = False
    """A marker of the format, to be read as one control token."""


class ChatFormat(Protocol):
    """How one model family writes a conversation."""

    def segments(self, chat: Chat) -> tuple[Segment, ...]:
        """The prompt whose continuation is the answer. Raises Unsupported for what the format cannot say."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatML:
    """<|im_start|>role, newline, text, <|im_end|>: SmolLM2 and Qwen2.5."""

    default_system: str = ""
    """What the family's own template puts first when the conversation has no system message."""

    def segments(self, chat: Chat) -> tuple[Segment, ...]:
        if chat.tools or any(message.tool_calls or message.role is Role.TOOL for message in chat.messages):
            raise Unsupported("This model's chat format has no tool calls yet; send a conversation without tools.")
        turns = [(message.role.value, message.text) for message in chat.messages]
        if self.default_system and (not turns or turns[0][0] != Role.SYSTEM):
            turns.insert(0, (Role.SYSTEM.value, self.default_system))
        closed = [segment for role, text in turns for segment in _closed_turn(role, text)]
        return (*closed, *_open_turn(Role.ASSISTANT.value, chat.prefill))


def _open_turn(role: str, text: str) -> tuple[Segment, ...]:
    return Segment(text="<|im_start|>", control=True), Segment(text=f"{role}\n{text}")


def _closed_turn(role: str, text: str) -> tuple[Segment, ...]:
    return *_open_turn(role, text), Segment(text="<|im_end|>", control=True), Segment(text="\n")


# The default system lines are those of the families' published templates: the models were tuned with them.
SMOLLM2 = ChatML(default_system="You are a helpful AI assistant named SmolLM, trained by Hugging Face")
QWEN2_5 = ChatML(default_system="You are Qwen, created by Alibaba Cloud. You are a helpful assistant.")
PLAIN_CHATML = ChatML()

TEMPLATE_KEY = "tokenizer.chat_template"
_KNOWN_TEMPLATES: tuple[tuple[str, ChatFormat], ...] = (
    ("named SmolLM", SMOLLM2),
    ("You are Qwen", QWEN2_5),
    ("<|im_start|>", PLAIN_CHATML),
)
"""What a template says of itself → its format; the first that fits."""


def chat_format_for(metadata: Mapping[str, str]) -> ChatFormat:
    """The format of a model by its GGUF metadata. Raises Unsupported for a family without one here."""
    template = metadata.get(TEMPLATE_KEY, "")
    for sign, chat_format in _KNOWN_TEMPLATES:
        if sign in template:
            return chat_format
    reason = "a chat template that etude does not know" if template else "no chat template"
    name = metadata.get("general.name", "this model")
    raise Unsupported(f"{name} has {reason}; give it text instead of a conversation, or choose another model.")
