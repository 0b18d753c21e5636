"""The tree of errors, and the boundary to foreign code."""

import inspect
import json
import pickle
import re

import pytest

from etude import errors
from etude.errors import EtudeError, FetchFailed, ForeignError, ServerError, ServerRefused, SketchUnusable, boundary


def drawn_tree(docstring: str) -> dict[str, str]:
    """Each class in the drawing and the one it hangs from, read by how far it is indented."""
    parents, above = {}, {}
    for line in docstring.splitlines():
        found = re.match(r"^(    (?:[│ ]   )*(?:[├└]── )?)([A-Z]\w+)(?: .*)?$", line)
        if found:
            depth = len(found[1])
            above = {other: name for other, name in above.items() if other < depth}
            parents[found[2]] = above[max(above)] if above else "Exception"
            above[depth] = found[2]
    return parents


def real_tree() -> dict[str, str]:
    classes = inspect.getmembers(errors, lambda value: isinstance(value, type) and issubclass(value, EtudeError))
    return {name: found.__bases__[0].__name__ for name, found in classes}


def test_the_tree_in_the_docstring_is_the_tree_of_classes() -> None:
    assert drawn_tree(errors.__doc__ or "") == real_tree()
    assert len(real_tree()) > 10


def test_a_class_that_hangs_elsewhere_is_found() -> None:
    docstring = (errors.__doc__ or "").replace("│   ├── FileUnusable ", "├── FileUnusable ")
    assert {name for name, parent in real_tree().items() if drawn_tree(docstring)[name] != parent} >= {"FileUnusable"}


def test_every_class_says_what_it_means_in_one_line() -> None:
    for name in real_tree():
        docstring = getattr(errors, name).__doc__
        assert docstring and "\n" not in docstring and docstring.endswith("."), name


def test_a_server_error_knows_its_url() -> None:
    error = ServerRefused("http://h answered 500", url="http://h", status=500)
    assert (str(error), error.url, error.status) == ("http://h answered 500", "http://h", 500)
    assert ServerError("silent", url="http://h").status is None


# The boundary.


def test_foreign_errors_are_named_and_keep_their_cause() -> None:
    with pytest.raises(ForeignError) as caught, boundary("the JSON reader"):
        json.loads("{")
    assert re.fullmatch(r"the JSON reader failed: Expecting .*\.", str(caught.value))
    assert isinstance(caught.value.__cause__, json.JSONDecodeError)


def test_the_boundary_says_the_way_out_in_the_class_asked_for() -> None:
    with pytest.raises(FetchFailed) as caught, boundary("pip", raises=FetchFailed, way_out="Try later."):
        raise OSError("no network")
    assert str(caught.value) == "pip failed: no network. Try later."


def test_an_error_without_words_is_named_by_its_class() -> None:
    with pytest.raises(ForeignError, match=r"^the parser failed: KeyError\.$"), boundary("the parser"):
        raise KeyError


def test_our_own_errors_pass_unchanged() -> None:
    ours = SketchUnusable("no edit in it")
    with pytest.raises(SketchUnusable) as caught, boundary("the parser"):
        raise ours
    assert caught.value is ours


@pytest.mark.parametrize("leaving", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_ends_the_program_passes_unchanged(leaving: type[BaseException]) -> None:
    with pytest.raises(leaving), boundary("the parser"):
        raise leaving


def test_nothing_happens_when_nothing_fails() -> None:
    with boundary("the parser"):
        value = 1
    assert value == 1


def test_errors_cross_processes() -> None:
    """A process pool pickles what its workers raise; an error that cannot come back hangs the pool."""
    error = pickle.loads(pickle.dumps(ServerRefused("no", url="http://h", status=500)))
    assert (str(error), error.url, error.status) == ("no", "http://h", 500)
