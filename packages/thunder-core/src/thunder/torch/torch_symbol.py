"""Symbols of torch's functions, which bind arguments and report errors as torch does."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from thunder.base.tags import OpTags
from thunder.ir.symbol import Symbol
from thunder.ops.operator import row_of
from thunder.torch.argument_binding import Spelling, argument_binder, as_binding_error, with_numpy_names
from thunder.torch.call_errors import raise_for_call
from thunder.torch.out_argument import kwargs_from_out, write_to_out

Fn = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class TorchSymbol(Symbol):
    """A symbol with a torch function's arguments, ``out=`` included, and with torch's errors."""

    spelling: Spelling | None = None
    eager: Fn | None = None
    #: returns the result of a call that means other operators than the row's, else NotImplemented
    other_forms: Fn | None = None

    @functools.cached_property
    def _normaliser(self) -> Spelling:
        assert self.meta is not None, f"{self.id} has a meta function or a decomposition"
        return argument_binder(self.id, self.name, self.meta, self.spelling)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Record a call into the current trace and return its output, as :class:`Symbol` does.

        A call that fails raises the error of :mod:`thunder.torch.call_errors`.
        """
        if kwargs.get("out") is not None:
            return self._write_to_out(args, kwargs)
        try:
            if self.other_forms is not None:
                result = self.other_forms(*args, **kwargs)
                if result is not NotImplemented:
                    return result
            return super().__call__(*args, **kwargs)
        except Exception as error:
            eager_args, eager_kwargs = self._eager_arguments(args, kwargs)
            raise_for_call(self.id, self.eager, self.meta, eager_args, eager_kwargs, error)  # type: ignore[arg-type]
            raise

    def _write_to_out(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        row = row_of(self)
        functions = row.torch if row is not None else ()

        def compute(*args: Any, **inputs: Any) -> Any:
            bound_args, bound_kwargs = self._eager_arguments(args, inputs)
            from_out = kwargs_from_out(self.meta, bound_args, bound_kwargs, kwargs["out"])  # type: ignore[arg-type]
            return self(*args, **{**inputs, **from_out})

        return write_to_out(
            self.id, functions, compute, args, kwargs, is_random=OpTags.RANDOM_OP in self.tags
        )

    def _eager_arguments(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of ``eager``: the row's, where a spelling has other parameters."""
        if self.spelling is None:
            return args, kwargs
        try:
            return self._normaliser(*args, **kwargs)
        except Exception:
            return args, kwargs

    __hash__ = Symbol.__hash__
    __eq__ = Symbol.__eq__


def with_torch_errors(path: str, fn: Fn, replacement: Fn) -> Fn:
    """Return ``replacement`` for a torch function with a symbol's ``out=`` and errors."""

    def write(*args: Any, out: Any, **kwargs: Any) -> Any:
        def compute(*args: Any, **inputs: Any) -> Any:
            return call(*args, **{**inputs, **kwargs_from_out(replacement, args, inputs, out)})

        return write_to_out(path, [fn], compute, args, {**kwargs, "out": out}, is_random=False)

    @functools.wraps(replacement)
    def call(*args: Any, **kwargs: Any) -> Any:
        if "out" in kwargs:
            if kwargs["out"] is not None:
                return write(*args, **kwargs)
            del kwargs["out"]
        kwargs = with_numpy_names(fn, replacement, kwargs)
        try:
            return replacement(*args, **kwargs)
        except Exception as error:
            if isinstance(error, TypeError):
                error = as_binding_error(error, replacement, args, kwargs)
            raise_for_call(path, fn, replacement, args, kwargs, error)
            raise

    return call
