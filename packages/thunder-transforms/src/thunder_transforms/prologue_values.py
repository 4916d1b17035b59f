"""The values of a prologue: where each comes from, and which statements check them."""

from __future__ import annotations

from typing import Any

from thunder.core.proxies import TensorProxy
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx

__all__ = ["CHECK_TENSORS", "PrologueValues"]

#: the checks of metadata
CHECK_TENSORS = frozenset({"prims.check_tensor_shape_and_metadata", "prims.check_tensors"})
_ROOT = "prims.unpack_function_obj"


class PrologueValues:
    """The paths of the values of a prologue: the name of a root, then the keys that lead to the value.

    The arguments have the roots `"args"` and `"kwargs"`, what belongs to the compiled module has `"self"`,
    and its overriding tensors have `"overrides"`.
    """

    def __init__(self, prologue: TraceCtx) -> None:
        self._paths: dict[str, tuple[Any, ...]] = {"args": ("args",), "kwargs": ("kwargs",)}
        for bsym in prologue.bound_symbols:
            if bsym.sym.id == _ROOT:
                self._paths[bsym.output.name] = (bsym.output.name,)
            elif bsym.output is not None and bsym.args and hasattr(bsym.args[0], "name"):
                owner = self.path(bsym.args[0])
                key = bsym.args[1] if len(bsym.args) > 1 else None
                for output in bsym.flat_proxy_outs:
                    self._paths[output.name] = (*owner, key)

    def path(self, value: Any) -> tuple[Any, ...]:
        """Return the path of a value."""
        return self._paths.get(getattr(value, "name", ""), ("",))

    def is_tensor(self, value: Any) -> bool:
        """Return whether a value is a tensor."""
        return isinstance(value, TensorProxy)

    def is_check(self, bsym: BoundSymbol) -> bool:
        """Return whether a statement checks a value."""
        return str(bsym.sym.id).startswith("prims.check_")
