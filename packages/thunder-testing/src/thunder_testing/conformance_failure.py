"""The outcomes of a conformance case other than success, and the texts in them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any
from unittest import SkipTest

import torch

from thunder.core.devices import to_device
from thunder.core.dtypes import to_dtype
from thunder.core.errors import Location, PluginError
from thunder.core.proxies import Proxy, TensorProxy
from thunder.core.pytree import tree_iter

__all__ = [
    "ConformanceFailure",
    "NothingToTest",
    "definition_of",
    "described",
    "described_call",
    "error_text",
    "tensors_in",
]


class ConformanceFailure(PluginError, AssertionError):
    """An executor breaks its contract. The text has the property, the values, the place and a hint."""


class NothingToTest(SkipTest):
    """A case has no call to test; the text says why. Test runners count it as skipped."""


def described(value: Any) -> str:
    """Return the text of a value in failures: for a tensor its type, and strides if not contiguous."""
    if isinstance(value, TensorProxy):
        return f'"{value.type_string()}"'
    if isinstance(value, Proxy):
        return f"{value.name}: {type(value).__name__}"
    if isinstance(value, torch.Tensor):
        text = f"{to_device(value.device)} {to_dtype(value.dtype).shortname()}{list(value.shape)}"
        return f'"{text}"' if value.is_contiguous() else f'"{text}" with strides {tuple(value.stride())}'
    if isinstance(value, tuple | list):
        inner = ", ".join(described(x) for x in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {described(v)}" for k, v in value.items()) + "}"
    return repr(value)


def described_call(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """Return the text of a call, with each argument as :func:`described` shows it."""
    parts = [*(described(a) for a in args), *(f"{k}={described(v)}" for k, v in kwargs.items())]
    return f"{name}({', '.join(parts)})"


def error_text(error: BaseException) -> str:
    """Return the class and the message of an exception."""
    return f"{type(error).__name__}: {error}"


def definition_of(*functions: Callable[..., Any] | None) -> list[Location]:
    """Return the first line of the first function that is written in Python; empty if there is none."""
    for fn in functions:
        code = getattr(inspect.unwrap(fn), "__code__", None) if fn is not None else None
        if code is not None:
            return [Location.of(code.co_filename, code.co_firstlineno)]
    return []


def tensors_in(tree: Any) -> list[torch.Tensor]:
    """Return the tensors of a pytree, in order."""
    return [x for x in tree_iter(tree) if isinstance(x, torch.Tensor)]
