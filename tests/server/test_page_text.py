from hypothesis import given
from hypothesis import strategies as st

from etude.edits import Edit, Span
from etude.server.page_text import from_page, to_page, wire_edits

LINES = st.lists(
    st.tuples(st.sampled_from(["", "a", "b", "  c", "é𝄞"]), st.sampled_from(["\n", "\r\n", "\r"])), max_size=8
)
TAIL = st.sampled_from(["", "tail"])


@given(LINES, TAIL)
def test_an_untouched_text_comes_back_byte_for_byte(lines, tail):
    text = "".join(line + ending for line, ending in lines) + tail
    assert from_page(to_page(text), text) == text


@given(LINES, TAIL, st.integers(0, 8), st.text(alphabet="xyz\n", max_size=6))
def test_the_page_sees_its_own_text_again_after_any_edit(lines, tail, at, inserted):
    text = "".join(line + ending for line, ending in lines) + tail
    page = to_page(text)
    edited = page[:at] + inserted + page[at:]
    assert to_page(from_page(edited, text)) == edited


def test_lines_around_an_edit_keep_their_endings_and_new_ones_follow_their_neighbour():
    original = "a\r\nb\nc\r\n"
    assert from_page("a\nnew\nb\nafter b\nc\n", original) == "a\r\nnew\r\nb\nafter b\nc\r\n"


def test_a_text_without_carriage_returns_is_left_alone():
    assert from_page("a\nb", "x\ny\n") == "a\nb"


def test_offsets_count_utf16_units():
    text = "𝄞 = '𝄢'\nx = 1\n"
    at = text.index("x")
    (edit,) = wire_edits(text, (Edit(span=Span(start=at, end=at + 1), text="y\r\n"),))
    encoded = text.encode("utf-16-le")
    assert encoded[edit.start * 2 : edit.end * 2].decode("utf-16-le") == "x"
    assert edit.text == "y\n"
