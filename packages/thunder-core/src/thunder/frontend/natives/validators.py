"""Validators of pydantic: native code that checks and converts values by a schema, and calls functions of it.

    m = Model(a="3", x=x)   →   the schema is read; its functions are interpreted where native code calls them

A validator is known by its identity, and its schema is fixed. What it computes depends on the data alone, as
long as these hold no object into which native code would look unseen.
"""

from __future__ import annotations

import enum
import types
from typing import Any

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.natives.libraries import is_of_pydantic
from thunder.frontend.objects.class_kinds import LEAVES
from thunder.frontend.session import SessionState, TracingSession
from thunder.ir.proxies import NumberProxy, Proxy, TensorProxy

__all__ = ["ValidatorFunctions", "call", "is_validation"]

_METHODS = frozenset({"validate_python"})
#: parts of a schema that a validator does not use
_UNUSED = frozenset({"serialization", "metadata", "ref", "computed_fields"})
_COLLECTIONS = (dict, list, tuple, set, frozenset)


def is_validation(fn: Any) -> bool:
    """Return whether a callable is a method of a validator that has a rule."""
    return is_of_pydantic(getattr(fn, "__self__", None)) and getattr(fn, "__name__", "") in _METHODS


class ValidatorFunctions(SessionState):
    """The validators of one acquisition, made of schemas whose functions are interpreted."""

    def __init__(self, session: TracingSession) -> None:
        self._made: dict[int, tuple[Any, Any]] = {}  # by id: the validator of the user, held, and its copy

    def of(self, validator: Any) -> Any:
        """Return a validator with the same schema, whose functions re-enter the interpreter."""
        made = self._made.get(id(validator))
        if made is None:
            cls, (schema, config, *_) = validator.__reduce__()
            copy = cls(self._interpreted(schema), config, _use_prebuilt=False)
            made = self._made[id(validator)] = validator, copy
        return made[1]

    def _interpreted(self, part: Any) -> Any:
        if isinstance(part, dict):
            if part.get("custom_init") or part.get("post_init"):
                raise UnsupportedProgram(
                    f"a validator of pydantic creates an object of the class {part['cls'].__qualname__}, "
                    "whose __init__ or model_post_init native code would call unseen",
                    hint="Create it before the call, or mark the function around it by thunder.opaque.",
                )
            return {k: v if k in _UNUSED else self._interpreted(v) for k, v in part.items()}
        if isinstance(part, list | tuple):
            return type(part)(self._interpreted(v) for v in part)
        is_function = callable(part) and not isinstance(part, type)
        return self._session.machine.shim(part) if is_function else part

    def end(self) -> None:
        self._made.clear()


def call(session: TracingSession, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a method of a validator on data that the program has.

    Raises UnsupportedProgram for data into which native code would look unseen.
    """
    instance = kwargs.get("self_instance")
    if session.entry_of(instance) is not None:
        raise UnsupportedProgram(
            "a validator of pydantic writes to an object of the user's",
            hint="Validate it before the call, or mark the function around it by thunder.opaque.",
        )
    for value in (*args, *(v for name, v in kwargs.items() if name != "self_instance")):
        _check(session, value)
    validator = session.state(ValidatorFunctions).of(fn.__self__)
    return getattr(validator, fn.__name__)(*args, **kwargs)


def _check(session: TracingSession, data: Any) -> None:
    """Refuse data that a validator would read without a fact."""
    pending, seen = [data], set()
    while pending:
        value = pending.pop()
        cls = type(value)
        if cls in LEAVES or id(value) in seen or isinstance(value, (TensorProxy, torch.nn.Module, enum.Enum)):
            continue
        seen.add(id(value))
        if cls in _COLLECTIONS:
            pending += value
            pending += value.values() if cls is dict else ()
        elif is_of_pydantic(cls):  # arguments
            pending += [value.args, value.kwargs]
        elif not _is_passed_on(cls):
            raise UnsupportedProgram(
                f"a validator of pydantic is passed {_described(value)}, into which it may look unseen",
                hint="Pass tensors, numbers, strings, plain containers or models, or mark the function "
                "around the call by thunder.opaque.",
            )


def _is_passed_on(cls: type) -> bool:
    """Return whether a validator only tests the class of an object: a model's, or one without items."""
    if hasattr(cls, "__pydantic_validator__") or issubclass(cls, type | types.FunctionType):
        return True
    own = ("__iter__", "keys", "__index__", "__float__", "__int__", "__str__", "__fspath__", "__len__")
    return not issubclass(cls, Proxy) and all(getattr(cls, n, None) is getattr(object, n, None) for n in own)


def _described(value: Any) -> str:
    is_number = isinstance(value, NumberProxy)
    return "a number out of a tensor" if is_number else f"an object of type {type(value).__qualname__}"
