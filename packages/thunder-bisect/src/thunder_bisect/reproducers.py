"""Programs that show one fault by themselves."""

from __future__ import annotations

import base64
import os
import re
import site
import sys
import zlib
from collections.abc import Mapping, Sequence
from importlib.machinery import PathFinder
from importlib.metadata import packages_distributions
from typing import Any

import torch

from thunder.core.errors import ThunderError
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx, dump, load, with_bound_symbols
from thunder.extend import Executor
from thunder_bisect.gradient_checks import call_lines
from thunder_testing.reproduction import executor_lines, operator_lines

__all__ = ["gradient_reproducer", "stage_reproducer", "statement_reproducer", "tensor_text"]

#: the largest tensor whose elements are written as numbers
MAX_WRITTEN = 64


def statement_reproducer(
    title: str, trace: TraceCtx, inputs: Sequence[Any], executor: Executor
) -> str | None:
    """Return a program in which an executor computes the calls of a trace.

    None if a value has no text.
    """
    text = _trace_text(trace)
    if text is None:
        return None
    lines = [
        *_beginning(title, "check_statement", inputs),
        *_named_executor(executor, "ex"),
        "",
        f"TRACE = '''\\\n{text}'''",
        "",
        *_input_lines(inputs),
        "",
        "raise SystemExit(check_statement(TRACE, inputs, ex))",
    ]
    return "\n".join(lines) + "\n"


def stage_reproducer(title: str, before: TraceCtx, after: TraceCtx, inputs: Sequence[Any]) -> str | None:
    """Return a program that computes two traces by torch; None if a value of them has no text."""
    texts = _trace_text(before), _trace_text(after)
    if None in texts:
        return None
    lines = [
        *_beginning(title, "check_stage", inputs),
        "",
        f"BEFORE = '''\\\n{texts[0]}'''",
        "",
        f"AFTER = '''\\\n{texts[1]}'''",
        "",
        *_input_lines(inputs),
        "",
        "raise SystemExit(check_stage(BEFORE, AFTER, inputs))",
    ]
    return "\n".join(lines) + "\n"


def gradient_reproducer(
    title: str, bsym: BoundSymbol, inputs: Mapping[str, Any], executors: Sequence[Executor]
) -> str:
    """Return a program that compares the gradients of one call with torch's."""
    setup, op = operator_lines(bsym.sym.id, bsym.sym.executor or executors[0])
    names = [f"ex{i}" for i in range(len(executors))]
    lines = [
        *_beginning(title, "check_gradient", list(inputs.values())),
        *(["from thunder.core import devices, dtypes"] if "types." in op else []),
        *(line for ex, name in zip(executors, names, strict=True) for line in _named_executor(ex, name)),
        *(["ex = ex0"] if bsym.sym.executor and names else []),
        *setup,
        "",
        "",
        "def program(op):",
        *(f"    {line}" for line in call_lines(bsym, list(inputs))),
        "    return f",
        "",
        "",
        "inputs = {",
        *(f"    {name!r}: {tensor_text(x)}," for name, x in inputs.items()),
        "}",
        "",
        f"executors = [{', '.join(names)}]",
        f"raise SystemExit(check_gradient(program, {op}, {_eager_text(bsym, op)}, inputs, executors))",
    ]
    return "\n".join(lines) + "\n"


def _eager_text(bsym: BoundSymbol, op: str) -> str:
    return op if op == bsym.sym.id else f"row_of({op}).eager"


def _beginning(title: str, check: str, inputs: Sequence[Any]) -> list[str]:
    needs = any(isinstance(x, torch.Tensor) and _span(x) > MAX_WRITTEN for x in inputs)
    return [
        f'"""{title}"""',
        "",
        *(["import base64", "import zlib"] if needs else []),
        "from math import inf, nan",
        "",
        "import torch",
        "",
        "import thunder",
        "from thunder.extend import row_of",
        f"from thunder_bisect.run_alone import {check}",
        "",
        *(_UNPACK if needs else []),
    ]


_UNPACK = [
    "",
    "def packed(text, dtype):",
    "    data = zlib.decompress(base64.b85decode(text))",
    "    return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(dtype)",
    "",
    "",
]


def _input_lines(inputs: Sequence[Any]) -> list[str]:
    return [
        "inputs = [",
        *(f"    {tensor_text(x) if isinstance(x, torch.Tensor) else repr(x)}," for x in inputs),
        "]",
    ]


def tensor_text(x: torch.Tensor) -> str:
    """Return an expression of a tensor: its elements exactly, with its strides."""
    device = "" if x.device.type == "cpu" else f".to({str(x.device)!r})"
    x = x.detach().resolve_conj().resolve_neg()
    if not x.numel():
        return f"torch.empty({tuple(x.shape)}, dtype={x.dtype}){device}"
    memory = x.as_strided((_span(x),), (1,), x.storage_offset()).cpu()
    if len(memory) <= MAX_WRITTEN:
        text = f"torch.tensor({memory.tolist()}, dtype={x.dtype})"
    else:
        data = zlib.compress(bytes(memory.clone().view(torch.uint8).tolist()), 9)
        text = f"packed({base64.b85encode(data).decode()!r}, {x.dtype})"
    return f"{text}.as_strided({tuple(x.shape)}, {x.stride()}){device}"


def _span(x: torch.Tensor) -> int:
    return 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)) if x.numel() else 0


def _trace_text(trace: TraceCtx) -> str | None:
    """Return the text of a trace, or None; decompositions that follow are left out."""
    bare = with_bound_symbols(trace, [b.from_bsym(source=None) for b in trace.bound_symbols], "Bisection")
    printed = dump(bare)
    short = "\n".join(line for line in printed.text.splitlines() if not re.match(r"\s{4,}#", line))
    text = short if _loads(short) else printed.text
    if printed.constants or "'''" in text or "\\" in text:
        return None
    return text.rstrip("\n") + "\n"


def _loads(text: str) -> bool:
    try:
        load(text)
    except ThunderError:
        return False
    return True


def _named_executor(executor: Executor, name: str) -> list[str]:
    """Return lines that give an executor a name."""
    lines = executor_lines(executor)
    if lines[0].startswith("from "):
        _, module, _, attribute, *_ = lines[0].split()
        if module == "__main__" or not _is_importable(module.partition(".")[0]):
            file = getattr(sys.modules[module], "__file__", None)
            lines = [
                "import runpy",
                f"{name} = runpy.run_path({file!r}, run_name='reproduced')[{attribute!r}]",
            ]
            return lines
        return [lines[0].replace(" as ex", f" as {name}")]
    return [lines[0].replace("ex = ", f"{name} = ", 1)]


def _is_importable(name: str) -> bool:
    """Return whether a new process finds a module: an installed one, or one on `PYTHONPATH`."""
    folders = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), *site.getsitepackages()]
    return name in packages_distributions() or PathFinder.find_spec(name, folders) is not None
