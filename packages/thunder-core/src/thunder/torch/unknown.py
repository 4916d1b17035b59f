"""What stands for a torch function that has no row: a refusal by name, with the nearest rows."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from thunder.core.errors import UnsupportedOperator
from thunder.core.langctx import TORCH
from thunder.core.metakernel import described_arguments
from thunder.core.operator import all_rows
from thunder.core.proxies import UNKNOWN


def name_of(fn: Any) -> str:
    """The dotted name of a torch function, as a program would write it."""
    name = torch.overrides.resolve_name(fn)
    if name is None:
        module, qualname = getattr(fn, "__module__", None), getattr(fn, "__qualname__", repr(fn))
        name = f"{module}.{qualname}" if module else qualname
    return str(name).replace("torch.TensorBase.", "torch.Tensor.")


def nearest_rows(name: str) -> list[str]:
    """Up to three ids of rows that are most like a name."""
    known = [row.id for row in all_rows() if row.id.startswith("torch.")]
    last = {row_id: row_id.rpartition(".")[2] for row_id in known}
    close = difflib.get_close_matches(name.rpartition(".")[2], sorted(set(last.values())), n=3, cutoff=0.6)
    return [next(row_id for row_id in known if last[row_id] == word) for word in close]


def unknown(fn: Any) -> Callable[..., NoReturn]:
    """The function that refuses a call of ``fn``."""

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        name = name_of(fn)
        close = nearest_rows(name)
        suggestion = f" Operators with a like name: {', '.join(close)}." if close else ""
        raise UnsupportedOperator(
            f"{name} is not an operator thunder knows",
            found=described_arguments(args, kwargs),
            hint="Register it (thunder.extend.OperatorExecutor.register_operator), or compute it outside the "
            f"compiled function; thunder.examine lists what a program needs.{suggestion}",
            facts={"operator": name, "nearest": close},
        )

    return refuse


TORCH.functions[UNKNOWN] = unknown
