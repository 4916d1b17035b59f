"""Proxies of values other than tensors and numbers: inputs of the prologue, collections."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self

from thunder.base.devices import Device
from thunder.base.errors import InvalidArgument, OutsideTrace
from thunder.base.tags import OpenTag
from thunder.ir.trace_context import get_tracectx

if TYPE_CHECKING:
    from thunder.ir.proxies import TensorProxy


class ProxyTag(OpenTag):
    """A property of a proxy; :meth:`register_tag` adds one."""


for _tag in (
    "RECOMPUTE_IN_BACKWARD",
    "DETACHED_AUTOGRAD_GRAPH",
    "STATIC_MEMORY_LOCATION",
    #: the same in most calls: what is computed from frozen values alone may be kept until they change
    "FROZEN",
):
    ProxyTag.register_tag(_tag)


def take_name(name: str | None, prefix: str) -> str:
    """Take ``name``, or a fresh name with the prefix, from the current trace."""
    trace = get_tracectx()
    if trace is not None:
        return trace.make_name(name, prefix=prefix)
    if name is None:
        raise OutsideTrace(
            "a proxy without a name was created where no trace is current", hint="Pass a name."
        )
    return name


def note_text(proxy: Proxy | TensorProxy) -> None:
    """Report to the recorder of the current trace that the text of a proxy was made."""
    trace = get_tracectx()
    if trace is not None:
        trace.recorder.note_text(proxy)


class Proxy:
    """A named value of a trace other than a tensor."""

    prefix = "p"
    #: the text of the type
    kind = "Any"
    #: the modules of Python that the text of an expression names
    modules: tuple[str, ...] = ()

    def __init__(
        self,
        name: str | None = None,
        *,
        prefix: str | None = None,
        history: Any = None,
        tags: Iterable[ProxyTag] = (),
    ) -> None:
        self.name = take_name(name, prefix or self.prefix)
        self.history = history
        self.tags = set(tags or ())

    def type_string(self) -> str:
        """Return the text of the type comment."""
        return self.kind

    def replace_name(self, name: str, *, disambiguate: bool = False) -> Self:
        """Return a copy under another name."""
        trace = get_tracectx()
        if disambiguate and trace is not None:
            name = trace.make_derived_name(name)
        elif trace is not None:
            trace.add_name(name)
        return self.replace(name=name)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other attributes.

        A new name must have been taken from the trace already. Raises InvalidArgument for an attribute that
        the proxy does not have.
        """
        new = object.__new__(type(self))
        for key, value in {**vars(self), "tags": set(self.tags), **changes}.items():
            if not hasattr(self, key):
                raise InvalidArgument(f"{type(self).__name__} has no attribute {key!r}")
            setattr(new, key, value)
        return new

    def __repr__(self) -> str:
        note_text(self)
        return f'<{type(self).__name__}(name="{self.name}")>'


class AnyProxy(Proxy):
    """A Python object of any type."""


class CollectionProxy(Proxy):
    """A collection that a backward trace unpacks."""

    prefix, kind = "C", "Collection"


class StringProxy(Proxy):
    """A string input."""

    prefix, kind = "s", "str"


class TupleProxy(Proxy):
    """A tuple input."""

    prefix, kind = "tup", "tuple"


class ListProxy(Proxy):
    """A list input."""

    prefix, kind = "lst", "list"


class DictProxy(Proxy):
    """A dict input."""

    prefix, kind = "d", "dict"


class GeneratorProxy(Proxy):
    """A ``torch.Generator``.

    The trace states which generator is drawn from. Its state is that of the object, and changes when the
    program runs.
    """

    prefix = "g"

    def __init__(self, name: str | None = None, *, device: Device, prefix: str | None = None) -> None:
        super().__init__(name, prefix=prefix)
        self.device = device

    def type_string(self) -> str:
        return f"Generator {self.device.device_str()}"
