"""Public functions, classes and their methods have docstrings, which name the errors that they raise."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tools import public_names

#: raised by what is not there, or by an object that a subclass completes: nobody expects them in a docstring
UNSAID = {"AttributeError", "NotImplementedError", "AssertionError"}


def public_objects() -> Iterator[tuple[str, Any]]:
    """Yield the classes and functions of thunder that are public, once each, with a name."""
    seen: set[int] = set()
    for path in public_names.public_modules():
        module = importlib.import_module(path)
        for name in public_names.names_of(module):
            value = getattr(module, name)
            ours = str(getattr(value, "__module__", "")).startswith("thunder")
            if ours and (inspect.isclass(value) or inspect.isroutine(value)) and id(value) not in seen:
                seen.add(id(value))
                yield f"{path}.{name}", value


def documented_functions() -> Iterator[tuple[str, Callable[..., Any], str]]:
    """Yield public functions, and public methods that a public class defines, with their docstrings.

    The docstring of an override is that of what it overrides; a method made by a function may have none.
    """
    for name, value in public_objects():
        if not inspect.isclass(value):
            yield name, value, inspect.getdoc(value) or ""
            continue
        for attribute, method in vars(value).items():
            docstring = inspect.getdoc(getattr(value, attribute)) if inspect.isfunction(method) else None
            if docstring is not None and not attribute.startswith("_"):
                yield f"{name}.{attribute}", method, docstring


def raised(function: Callable[..., Any]) -> Iterator[type[BaseException]]:
    """Yield the classes of the errors that `raise` statements of a function construct.

    Those of the interpreter are what CPython raises in its place, and those with a private name are caught.
    """
    if str(function.__module__).startswith("thunder.interpreter"):
        return
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):  # generated, or in C
        return
    scope = getattr(inspect.unwrap(function), "__globals__", {})
    for statement in ast.walk(tree):
        if isinstance(statement, ast.Raise) and statement.exc is not None:
            constructed = next((n for n in ast.walk(statement.exc) if isinstance(n, ast.Name)), None)
            error = constructed and scope.get(constructed.id, getattr(builtins, constructed.id, None))
            is_error = isinstance(error, type) and issubclass(error, BaseException)
            if is_error and not error.__name__.startswith("_"):
                yield error


def named(error: type[BaseException], docstring: str) -> bool:
    """Return whether a docstring names the class of an error or one that it is a kind of."""
    return any(kind.__name__ in docstring for kind in error.__mro__ if kind not in (BaseException, object))


@pytest.fixture(scope="module")
def functions() -> list[tuple[str, Callable[..., Any], str]]:
    return list(documented_functions())


def test_every_public_class_and_function_has_a_docstring() -> None:
    assert [name for name, value in public_objects() if not (value.__doc__ or "").strip()] == []


def test_docstrings_name_the_errors_that_are_raised(
    functions: list[tuple[str, Callable[..., Any], str]],
) -> None:
    unsaid = [
        f"{name}: {error.__name__}"
        for name, function, docstring in functions
        for error in dict.fromkeys(raised(function))
        if error.__name__ not in UNSAID and not named(error, docstring)
    ]
    assert len(functions) > 500
    assert unsaid == []


def raising(x: int) -> None:
    """Return nothing."""
    if x:
        raise KeyError(x)
    raise NotedError(x).with_note("a note")


class NotedError(LookupError):
    def with_note(self, note: str) -> NotedError:
        return self


def test_an_error_that_is_not_named_is_found() -> None:
    assert {*raised(raising)} == {KeyError, NotedError}
    assert not named(KeyError, raising.__doc__ or "")
    assert named(NotedError, "Raises LookupError.")
    assert not named(KeyError, "Raises ValueError.")
