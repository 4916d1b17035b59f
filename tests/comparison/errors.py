"""Errors of a compiled program: eager's class, and eager's text at the beginning."""

from __future__ import annotations

from collections.abc import Callable


def is_a(error: BaseException | None, name: str) -> bool:
    """Return whether an error is of the class of this name, or of one derived from it."""
    return error is not None and name in (cls.__name__ for cls in type(error).__mro__)


def describe(error: BaseException | None) -> str:
    """Return class, message and innermost line of an error."""
    if error is None:
        return "nothing"
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    place = f" at {traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno}" if traceback else ""
    return f"{type(error).__name__}: {error}{place}"


def error_difference(
    expected: BaseException, found: BaseException, text_of: Callable[[BaseException], str] = str
) -> str | None:
    """Return how an error differs from eager's, or None if it has its class and begins with its text."""
    if is_a(found, type(expected).__name__) and text_of(found).startswith(text_of(expected)):
        return None
    return f"raised {describe(found)}, eager raises {describe(expected)}"


def assert_same_error(
    expected: BaseException, found: BaseException, text_of: Callable[[BaseException], str] = str
) -> None:
    """Assert that an error has the class of eager's and begins with its text, as `text_of` gives texts."""
    difference = error_difference(expected, found, text_of)
    assert difference is None, difference


def stripped(error: BaseException) -> str:
    """Return the text of an error without blanks at its ends."""
    return str(error).strip()


def without_marks(error: BaseException) -> str:
    """Return the text of an error without `!`, by which torch marks wrong arguments, and all proxies."""
    return stripped(error).replace("!", "")
