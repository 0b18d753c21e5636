"""What RewriteApply asks a model.

The bytes that serve are the bytes that train, so a changed wording gets a new function.
"""

from etude.messages import Chat, Message, Role

_SYSTEM = (
    "You merge a sketch of a change into code. Answer with the complete merged code in one fenced block. "
    "Copy every line that the sketch does not change, exactly, with its comments and indentation. "
    'Where the sketch says "..." or "existing code", write the code that stands there. Add nothing of your own.'
)


def rewrite_chat(window: str, sketch: str, instruction: str, language: str | None) -> Chat:
    """The chat whose answer is the merged window; the answer's opening fence is given."""
    tag = language or ""
    parts = [f"The code:\n```{tag}\n{_ended(window)}```", f"The sketch of the change:\n{_ended(sketch)}"]
    if instruction:
        parts.append(f"What the change is for: {instruction}\n")
    parts.append("Write the complete merged code.")
    messages = (Message(role=Role.SYSTEM, text=_SYSTEM), Message(role=Role.USER, text="\n".join(parts)))
    return Chat(messages=messages, prefill=f"```{tag}\n")


def _ended(text: str) -> str:
    return text if text.endswith("\n") else text + "\n"
