"""The short program in a failure, which makes the call again outside of the tests."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from thunder.extend import Executor, OperatorExecutor
from thunder.plugins import get_manager
from thunder_testing.conformance_failure import NothingToTest
from thunder_testing.tensor_layouts import has_storage

if TYPE_CHECKING:
    from thunder_testing.sample_call import SampleCall
    from thunder_testing.subjects import Subject

__all__ = [
    "call_text",
    "callee_text",
    "elements",
    "executor_lines",
    "function_of",
    "operator_lines",
    "program_of",
]

#: the largest tensor whose elements are written out
MAX_WRITTEN = 96


def program_of(call: SampleCall) -> str:
    """Return the text of a program that makes a sample call with the executor and prints the result."""
    tensors = call.sample.tensors
    names = {id(x): f"x{i}" for i, x in enumerate(tensors)}
    lines = ["import torch", "import thunder"]
    values = [f"x{i} = {_tensor(x, call.sample.literals.get(i))}" for i, x in enumerate(tensors)]
    if any("nan" in v or "inf" in v for v in values):
        lines.append("from math import inf, nan")
    subject = call.subject
    lines += [*executor_lines(subject.executor), *values]
    parameters = ", ".join(names.values())
    setup, body = call.body(names)
    lines += setup
    if len(body) == 1:
        lines.append(f"f = lambda {parameters}: {body[0]}")
    else:
        lines += [f"def f({parameters}):", *(f"    {line}" for line in body)]
    lines.append(f"print(thunder.jit(f, executors=[ex])({parameters}))")
    return "\n".join(lines)


def function_of(call: SampleCall, namespace: Mapping[str, Any], has_setup: bool) -> Callable[..., Any]:
    """Return the function of the tensors of a sample that the program of a failure defines.

    `namespace` has the names that it uses; without `has_setup` also its operators. Raises NothingToTest for
    an argument that has no text.
    """
    names = {id(x): f"x{i}" for i, x in enumerate(call.sample.tensors)}
    setup, body = call.body(names)
    body = body if body[-1].startswith("return") else [*body[:-1], f"return {body[-1]}"]
    lines = [
        *(setup if has_setup else ()),
        f"def f({', '.join(names.values())}):",
        *(f"    {x}" for x in body),
    ]
    values: dict[str, Any] = {"torch": torch, **namespace}
    try:
        exec("\n".join(lines), values)
    except (SyntaxError, NameError) as error:
        raise NothingToTest(f"an argument of {call.subject.id} cannot be written in a program") from error
    return values["f"]  # type: ignore[no-any-return]


def callee_text(subject: Subject) -> tuple[list[str], str]:
    """Return lines that define the operator of a subject, and its expression."""
    is_row = subject.implements is not None and bool(subject.implements.torch)
    implemented = subject.implements.id if is_row and subject.implements is not None else subject.id
    return operator_lines(implemented, subject.executor)


def operator_lines(operator_id: str, executor: Executor) -> tuple[list[str], str]:
    """Return lines that define an operator, and its expression."""
    if _is_path(operator_id):
        return [], operator_id
    if isinstance(executor, OperatorExecutor):
        for name, symbol in executor.opmap.items():
            if symbol.id == operator_id:
                return [f"op = ex.opmap[{name!r}]"], "op"
    if operator_id.startswith("prims."):
        return ["from thunder.core import prims", f"op = {operator_id}"], "op"
    return ["from thunder.extend import symbol_of", f"op = symbol_of({operator_id!r})"], "op"


def _is_path(operator_id: str) -> bool:
    """Return whether an id is the path of a function of torch."""
    first, *rest = operator_id.split(".")
    value: Any = torch
    for name in rest:
        value = getattr(value, name, None)
    return first == "torch" and callable(value)


def call_text(callee: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], names: dict[int, str]) -> str:
    """Return the text of a call, with names in place of tensors."""
    parts = [*(_text(a, names) for a in args), *(f"{k}={_text(v, names)}" for k, v in kwargs.items())]
    return f"{callee}({', '.join(parts)})"


def _text(value: Any, names: dict[int, str]) -> str:
    if isinstance(value, torch.Tensor):
        return names[id(value)]
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, torch.device):
        return f'torch.device("{value}")'
    if isinstance(value, tuple | list):
        inner = ", ".join(_text(v, names) for v in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
    return repr(value)


# -- values --------------------------------------------------------------------------------------------------


def _tensor(x: torch.Tensor, literal: str | None) -> str:
    """Return an expression of a tensor: its elements, how it was drawn, or random ones of its type."""
    x = x.detach().cpu()
    if literal is not None:
        return literal.format(dtype=x.dtype)
    if not has_storage(x) or x.is_conj() or x.is_neg():
        x = x.to_dense().resolve_conj().resolve_neg() if x.layout is not torch.strided else x.clone()
    memory = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage())
    if memory.numel() > MAX_WRITTEN:
        kind = "torch.randn" if x.is_floating_point() or x.is_complex() else "torch.ones"
        return f"{kind}({tuple(x.shape)}, dtype={x.dtype})  # in place of your sample's values"
    if x.is_contiguous() and x.storage_offset() == 0 and memory.numel() == x.numel():
        text = f"torch.tensor({elements(x)}, dtype={x.dtype})"
        return text if x.numel() else f"torch.empty({tuple(x.shape)}, dtype={x.dtype})"
    view = f"{tuple(x.shape)}, {x.stride()}, {x.storage_offset()}"
    return f"torch.tensor({elements(memory)}, dtype={x.dtype}).as_strided({view})"


def elements(x: torch.Tensor) -> Any:
    """Return the elements of a tensor as nested lists, with the digits that its dtype has."""

    def short(value: Any) -> Any:
        if isinstance(value, list):
            return [short(v) for v in value]
        return float(f"{value:.9g}") if isinstance(value, float) and x.dtype is not torch.float64 else value

    return short(x.tolist())


# -- the executor --------------------------------------------------------------------------------------------


def executor_lines(executor: Executor) -> list[str]:
    """Return lines that bind an executor to the name `ex`."""
    if any(spec.name == executor.name for spec in get_manager().executor_specs()):
        return [f"ex = thunder.get_executor({executor.name!r})"]
    for name, module in list(sys.modules.items()):
        for attribute, value in list(getattr(module, "__dict__", {}).items()):
            if value is executor:
                return [f"from {name} import {attribute} as ex"]
    return [f"ex = ...  # the executor {executor.name!r}"]
