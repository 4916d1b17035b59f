"""Callbacks before and after each operation of a compiled program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import thunder
from thunder.core.errors import InvalidArgument
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx
from thunder.core.transforms import add_transform
from thunder_transforms.observing import observer, with_observers

__all__ = ["DebugTransform", "debug_execution_trace"]


class DebugTransform(thunder.Transform):
    """Calls functions before and after each operation, in forward and backward, with its values.

    The text that a callback returns becomes the header of its line in the trace that runs, so that
    `thunder.last_traces(fn)[-1]` shows it. An error of a callback passes through the compiled call.

    Args:
        pre_callback: `pre_callback(bsym, *args, **kwargs)` is called with the bound symbol and the values of
            its arguments; it returns a text or None.
        post_callback: `post_callback(bsym, result, *args, **kwargs)` gets the result as well. An argument
            that the operation has written to in place has its new value.
    """

    observes = True

    def __init__(
        self,
        pre_callback: Callable[..., str | None] | None = None,
        post_callback: Callable[..., str | None] | None = None,
    ) -> None:
        for name, callback in (("pre_callback", pre_callback), ("post_callback", post_callback)):
            if callback is not None and not callable(callback):
                raise InvalidArgument(f"{name} is {type(callback).__name__}, which cannot be called")
        self.pre_callback, self.post_callback = pre_callback, post_callback

    def transform_trace_post_optimization(self, computation_trace: TraceCtx, **kwargs: Any) -> TraceCtx:
        return with_observers(computation_trace, type(self).__name__, before=self._before, after=self._after)

    def _before(self, bsym: BoundSymbol) -> list[BoundSymbol]:
        if self.pre_callback is None:
            return []
        return [_call("debug_pre", self.pre_callback, bsym, ())]

    def _after(self, bsym: BoundSymbol) -> list[BoundSymbol]:
        if self.post_callback is None:
            return []
        return [_call("debug_post", self.post_callback, bsym, (bsym.output,))]


def _call(
    prefix: str, callback: Callable[..., str | None], bsym: BoundSymbol, results: tuple[Any, ...]
) -> BoundSymbol:
    """Return the statement that calls a callback, and gets the text that it returns as its header."""

    def run(*args: Any, **kwargs: Any) -> None:
        text = callback(bsym, *args, **kwargs)
        if text is not None and not isinstance(text, str):
            raise InvalidArgument(
                f"a callback of DebugTransform returned {type(text).__name__}",
                found={"callback": getattr(callback, "__qualname__", repr(callback))},
                hint="Return the text of a comment, or None.",
            )
        if text is not None:
            statement.header = text

    statement = observer(f"{prefix}_{bsym.sym.name}", run).bind(
        *results, *bsym.args, **bsym.kwargs, output=None
    )
    return statement


def debug_execution_trace(
    cfn: Any,
    pre_callback: Callable[..., str | None] | None = None,
    post_callback: Callable[..., str | None] | None = None,
) -> Any:
    """Return a compiled object like `cfn` that calls functions before and after each operation.

    The callbacks are those of `DebugTransform`. Raises NotCompiled if `cfn` is not a compiled object.
    """
    return add_transform(cfn, transform=DebugTransform(pre_callback, post_callback))
