"""What is remembered changes nothing but the work, and stays within its bound."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.messages import Chat, Message, Role
from etude.models import catalog
from etude.models.llama_cpp import EmbeddedModel
from etude.prompts.chat_format import Segment
from etude.prompts.tokenizer import RememberingTokenizer

SEGMENTS = st.builds(Segment, text=st.text(max_size=8), control=st.booleans())


class Counting:
    """Characters as tokens, below zero in control; counts how often it is asked."""

    def __init__(self) -> None:
        self.num_asked = 0

    def __call__(self, text: str, control: bool) -> list[int]:
        self.num_asked += 1
        return [-ord(character) if control else ord(character) for character in text]


@given(st.lists(SEGMENTS, max_size=30), st.integers(0, 500))
def test_ids_are_those_of_the_model_whatever_is_remembered(segments: list[Segment], room: int):
    model = Counting()
    tokenizer = RememberingTokenizer(model, remembered_characters=room)
    expected = [token for segment in segments for token in model(segment.text, segment.control)]
    assert tokenizer.encode(segments) == expected
    assert tokenizer.encode(segments) == expected
    assert tokenizer.num_remembered * 100 <= room


def test_a_text_is_encoded_once_and_apart_from_the_marker_of_its_name():
    model = Counting()
    tokenizer = RememberingTokenizer(model)
    assert tokenizer.count("ab") == 2
    assert tokenizer.encode([Segment(text="ab"), Segment(text="ab", control=True)]) == [97, 98, -97, -98]
    assert model.num_asked == 2


def test_what_was_used_last_is_remembered():
    model = Counting()
    tokenizer = RememberingTokenizer(model, remembered_characters=250)
    for text in ("a", "b", "a", "c", "a"):
        tokenizer.count(text)
    assert model.num_asked == 3
    tokenizer.count("b")
    assert model.num_asked == 4


def test_threads_may_share_it():
    tokenizer = RememberingTokenizer(Counting(), remembered_characters=500)
    texts = [str(number % 9) for number in range(2_000)]
    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(tokenizer.count, texts)) == len(texts)


@pytest.mark.embedded
@pytest.mark.parametrize("name", ["smollm2-135m", "qwen2.5-coder-0.5b"])
def test_pieces_give_the_ids_of_the_whole(name: str):
    """The whole is what the runtime makes of a prompt in which the markers are read as tokens."""
    if catalog.installed(name) is None:
        pytest.skip(f"{name} is not on this machine")
    model = EmbeddedModel.load(catalog.require(name), name=name, context_tokens=64)
    texts = ["  two\n\n\n", "\n", "", " é\u0301 ", "def f():\n\treturn '<|x|>'\n", "123 4567", "\r\n x", "日本語🙂"]
    messages = [Message(role=Role.SYSTEM, text="Be brief.")]
    for text in texts:
        messages += [Message(role=Role.USER, text=text), Message(role=Role.ASSISTANT, text="")]
    segments = model.read_chat_format().segments(Chat(messages=tuple(messages)))
    whole = "".join(segment.text for segment in segments)
    assert model.encode_segments(segments) == model.encode_segments([Segment(text=whole, control=True)])
