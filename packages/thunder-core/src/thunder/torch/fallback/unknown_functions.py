"""Calls of torch functions without a row: run by torch where that is sound, else refused.

A refusal names the function and the rows with similar names. With ``operator_fallback="error"`` all such
calls are refused.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from thunder.base.errors import ThunderError, UnsupportedOperator
from thunder.base.langctx import TORCH, UNKNOWN, LanguageContext
from thunder.base.tags import OpTags
from thunder.ops.meta_kernels import raise_torch_error
from thunder.ops.operator import all_rows
from thunder.ops.torch_errors import TORCH_REFUSALS, described_arguments
from thunder.torch.fallback.fallback_rows import record_fallback, under_autocast_now
from thunder.torch.fallback.inplace_variants import inplace_variant_or
from thunder.torch.fallback.schema_probe import CannotProbe
from thunder.torch.function_names import name_of
from thunder.torch.out_argument import write_to_out

_WAYS_OUT = (
    "Register it (thunder.extend.OperatorExecutor.register_operator), or compute it outside the compiled "
    "function; thunder.examine lists what a program needs."
)


def nearest_rows(name: str) -> list[str]:
    """Return up to three ids of rows whose names are most similar to a name."""
    ids = [row.id for row in all_rows() if row.id.startswith("torch.") and OpTags.FALLBACK not in row.tags]
    last = {row_id: row_id.rpartition(".")[2] for row_id in ids}
    close = difflib.get_close_matches(name.rpartition(".")[2], sorted(set(last.values())), n=3, cutoff=0.6)
    return [next(row_id for row_id in ids if last[row_id] == word) for word in close]


def _refusal(
    name: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    why: str = "",
    hint: str = _WAYS_OUT,
    needs_data: bool = False,
) -> UnsupportedOperator:
    close = nearest_rows(name)
    suggestion = f" Operators with a similar name: {', '.join(close)}." if close else ""
    return UnsupportedOperator(
        f"{name} is not an operator thunder knows"
        + (f", and torch cannot run it here: {why}" if why else ""),
        found=described_arguments(args, kwargs),
        hint=f"{hint}{suggestion}",
        facts={"operator": name, "nearest": close, "why": why, "needs_data": needs_data},
    )


def refuse_unknown(fn: Any) -> Callable[..., Any]:
    """Return a function that refuses a call of ``fn``, unless ``fn`` has a functional variant."""

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise _refusal(name_of(fn), args, kwargs)

    return inplace_variant_or(fn, refuse)


def run_by_torch(fn: Any) -> Callable[..., Any]:
    """Return a function that records a call of ``fn`` by torch, or refuses an unsound one."""

    def call(*args: Any, **kwargs: Any) -> Any:
        name = name_of(fn)
        try:
            if kwargs.get("out") is not None and not isinstance(fn, torch._ops.OpOverload):
                if under_autocast_now(args, kwargs):
                    raise CannotProbe("it is called with out= under autocast", "Leave out= out.")
                compute = functools.partial(record_fallback, name, fn)
                return write_to_out(name, [fn], lambda *a, **k: compute(a, k), args, kwargs, is_random=False)
            return record_fallback(name, fn, args, kwargs)
        except CannotProbe as problem:
            hint = f"{problem.hint} {_WAYS_OUT}"
            raise _refusal(name, args, kwargs, problem.reason, hint, problem.needs_data) from None
        except ThunderError:
            raise
        except TORCH_REFUSALS as error:
            raise_torch_error(fn, args, kwargs, error)
            why = f"its result cannot be computed without data ({_first_line(error)})"
            raise _refusal(name, args, kwargs, why, needs_data=True) from error

    return inplace_variant_or(fn, call)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def without_fallback(language: LanguageContext) -> LanguageContext:
    """Return the language in which functions without a row are refused."""
    return LanguageContext(language.name, {**language.functions, UNKNOWN: refuse_unknown})


def may_fall_back(language: LanguageContext) -> bool:
    """Return whether torch may run functions without a row."""
    return language.functions[UNKNOWN] is not refuse_unknown


TORCH.functions[UNKNOWN] = run_by_torch
