"""Proxies of tensors that compute by themselves, and of objects of packages.

The value at run time is the tensor or object itself. Only opaque calls take it, whatever a statement says of
its shape.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.ir.metadata_methods import METADATA_METHODS
from thunder.ir.proxies import TensorProxy
from thunder.ir.refused_methods import REFUSED_METHODS
from thunder.ir.scalar_proxies import AnyProxy, note_text
from thunder.ir.trace_context import get_tracectx

__all__ = ["UnmodelledObject", "UnmodelledProxy"]


class UnmodelledProxy(TensorProxy):
    """The proxy of a tensor of the class ``seen_class``, whose data thunder does not model.

    The shape and dtype are what torch tells of it, or those of a scalar of bytes.
    """

    __slots__ = ("hiding", "seen_class")

    seen_class: type
    #: names of own attributes that hide those of the class
    hiding: tuple[str, ...]

    @classmethod
    def of(cls, seen_class: type, hiding: tuple[str, ...], **metadata: Any) -> UnmodelledProxy:
        """Return a proxy; ``metadata`` are the arguments of the constructor of TensorProxy."""
        proxy = cls(**metadata)
        proxy.seen_class, proxy.hiding = seen_class, hiding
        return proxy

    def replace(self, **changes: Any) -> UnmodelledProxy:
        new: Any = super().replace(**changes)
        new.seen_class, new.hiding = self.seen_class, self.hiding
        return new  # type: ignore[no-any-return]

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return _run(func, args, dict(kwargs or {}))

    def __len__(self) -> int:
        return _run(len, (self,), {})  # type: ignore[no-any-return]

    def __iter__(self) -> Any:
        return iter(_run(tuple, (self,), {}))

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        note_text(self)
        return f'<UnmodelledProxy(name="{self.name}", class={self.seen_class.__qualname__})>'


class UnmodelledObject(AnyProxy):
    """The proxy of an object of the class ``seen_class``, which only the package of the class can read."""

    prefix = "o"
    requires_grad = False

    def __init__(self, seen_class: type, name: str | None = None) -> None:
        super().__init__(name)
        self.seen_class = seen_class

    def type_string(self) -> str:
        return self.seen_class.__qualname__

    def __len__(self) -> int:
        return _run(len, (self,), {})  # type: ignore[no-any-return]

    def __iter__(self) -> Any:
        return iter(_run(tuple, (self,), {}))

    def __bool__(self) -> bool:
        return _run(bool, (self,), {})  # type: ignore[no-any-return]

    def __float__(self) -> float:
        return _run(float, (self,), {})  # type: ignore[no-any-return]

    def __index__(self) -> int:
        return _run(operator.index, (self,), {})  # type: ignore[no-any-return]

    def __getitem__(self, key: Any) -> Any:
        return _run(operator.getitem, (self, key), {})

    def __contains__(self, item: Any) -> bool:
        return _run(operator.contains, (self, item), {})  # type: ignore[no-any-return]

    def __eq__(self, other: object) -> Any:
        return _run(operator.eq, (self, other), {})

    __hash__ = object.__hash__


def _run(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a function in the program that is traced, as an opaque call."""
    trace = get_tracectx()
    if trace is None:
        raise UnsupportedProgram(
            f"{getattr(fn, '__qualname__', fn)} is called on a tensor of a trace that has ended",
            hint="Return the tensor from the program.",
        )
    return trace.recorder.call_unmodelled(fn, args, kwargs)


def _running(name: str) -> Any:
    method = getattr(torch.Tensor, name)
    return lambda self, *args, **kwargs: _run(method, (self, *args), kwargs)


for _name in (*METADATA_METHODS, *REFUSED_METHODS):
    setattr(UnmodelledProxy, _name, _running(_name))
