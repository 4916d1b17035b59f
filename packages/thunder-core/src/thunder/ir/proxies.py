"""Tensor proxies, and what all proxies share.

``TensorProxy`` is a real wrapper subclass of ``torch.Tensor``. An ordinary class that only reports
``torch.Tensor`` as its ``__class__`` crashes the process, because C++ (``THPVariable_Check``) honours
``__class__`` and then casts. The wrapper is always on the meta device and never requires grad (a cuda tensor
that requires grad aborts a CPU build of torch); device, dtype, shape and ``requires_grad`` of the user's
tensor are attributes of the proxy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

import torch

from thunder.base import devices, dtypes
from thunder.base.errors import InvalidArgument, UnsupportedProgram
from thunder.base.langctx import current_language, unknown_torch_function
from thunder.base.pytree import declare_leaf
from thunder.ir.metadata_methods import METADATA_METHODS
from thunder.ir.number_proxies import (
    CONSTRAINT,
    ComplexProxy,
    FloatProxy,
    IntegerProxy,
    NumberProxy,
    pytype,
    pyval,
)
from thunder.ir.refused_methods import REFUSED_METHODS, constant_value
from thunder.ir.scalar_proxies import (
    AnyProxy,
    CollectionProxy,
    DictProxy,
    GeneratorProxy,
    ListProxy,
    Proxy,
    ProxyTag,
    StringProxy,
    TupleProxy,
    note_text,
    take_name,
)
from thunder.ir.symbolic_sizes import are_same, as_lengths, has_symbols, shape_of, size_text
from thunder.ir.trace_context import get_tracectx

__all__ = [
    "CONSTRAINT",
    "AnyProxy",
    "CollectionProxy",
    "ComplexProxy",
    "Count",
    "DictProxy",
    "FloatProxy",
    "FutureTensorProxy",
    "GeneratorProxy",
    "IntegerProxy",
    "ListProxy",
    "NumberProxy",
    "Proxy",
    "ProxyTag",
    "StringProxy",
    "TensorProxy",
    "TupleProxy",
    "Variable",
    "constant_value",
    "is_proxy",
    "number_in",
    "pytype",
    "pyval",
    "unvariableify",
    "variableify",
]

#: the metadata of a tensor proxy, all of which the constructor takes, and ``replace`` keeps or resets
FIELDS: Final = (
    *("name", "shape", "device", "dtype", "requires_grad", "_grad", "tags", "distparallel_type", "history"),
    *("strides", "input_offset", "declared_leaf", "requires_grad_since_write", "name_hint"),
)
_FIELD_NAMES: Final = frozenset(FIELDS)
#: those that ``replace`` converts
_CONVERTED: Final = frozenset({"shape", "device", "dtype", "tags"})


def number_in(x: Any) -> Any:
    """Return the number in a one-element tensor that the trace can compute, else ``x``."""
    value = constant_value(x) if isinstance(x, TensorProxy) and math.prod(x.shape) == 1 else None
    return x if value is None else value.item()


@declare_leaf
class TensorProxy(torch.Tensor):
    """A tensor of a trace: metadata without data.

    ``shape`` is a tuple of ints, ``dtype`` a thunder dtype, ``device`` a thunder device. From ``like`` the
    shape, device, dtype and ``requires_grad`` are taken, nothing else; explicit arguments win. Devices and
    dtypes may be thunder's or torch's. Raises InvalidArgument if neither ``like`` nor all of shape, device
    and dtype are passed, and TraceError if the name is taken in the current trace.

    All metadata are declared below, as slots: nothing is stored in the ``__dict__`` of a proxy. Their names
    are not names of attributes of ``torch.Tensor`` that have another meaning.
    """

    __slots__ = (*FIELDS, "declared_without_grad", "derived_strides")

    #: the name in the trace; unique there
    name: str
    shape: tuple[int, ...]  # type: ignore[assignment]
    device: devices.Device  # type: ignore[assignment]
    dtype: dtypes.dtype  # type: ignore[assignment]
    requires_grad: bool
    tags: set[ProxyTag]
    #: how the tensor is distributed over processes; core only carries it
    distparallel_type: Any
    #: where the value came from; core only carries it
    history: Any
    _grad: TensorProxy | None
    #: the strides (elements) of an input, or of a result whose operator decides them. A tensor that has them
    #: is not a view of another value of the program.
    strides: tuple[int, ...] | None
    #: the position of an input's first element in its storage (elements)
    input_offset: int | None
    #: whether torch's autograd has the tensor as a leaf, where that does not follow from the calls recorded:
    #: of an input, a tensor whose ``requires_grad`` the program set, the cotangent of a result
    declared_leaf: bool | None
    #: whether the tensor requires grad only because the program wrote into it a value that does
    requires_grad_since_write: bool
    #: the first variable of the user's program that held the value
    name_hint: str | None
    #: whether ``requires_grad=False`` was passed: a meta function declares a result without gradient
    declared_without_grad: bool
    #: the strides (elements) that ``thunder.ops.layouts`` derived when the program read them
    derived_strides: tuple[int, ...] | None

    def __new__(
        cls,
        name: str | None = None,
        *,
        like: TensorProxy | torch.Tensor | None = None,
        shape: Iterable[int] | None = None,
        device: devices.Device | torch.device | str | None = None,
        dtype: dtypes.dtype | torch.dtype | None = None,
        requires_grad: bool | None = None,
        grad: TensorProxy | None = None,
        prefix: str | None = None,
        distparallel_type: Any = None,
        history: Any = None,
        tags: Iterable[ProxyTag] | None = None,
        strides: Iterable[int] | None = None,
        input_offset: int | None = None,
        declared_leaf: bool | None = None,
        requires_grad_since_write: bool = False,
        name_hint: str | None = None,
    ) -> TensorProxy:
        is_declared = requires_grad is False
        # reads of a real tensor's attributes would be recorded if torch functions were on
        if like is not None:
            shape = like.shape if shape is None else shape
            device = like.device if device is None else device
            dtype = like.dtype if dtype is None else dtype
        if shape is None or device is None or dtype is None:
            missing = [n for n, v in (("shape", shape), ("device", device), ("dtype", dtype)) if v is None]
            raise InvalidArgument(f"TensorProxy needs like=, or {', '.join(missing)}")
        self = _without_metadata(
            cls,
            as_lengths(shape),  # a bool is an int, and not a length
            dtype if type(dtype) is dtypes.dtype else dtypes.to_dtype(dtype),
        )
        self.name = take_name(name, prefix or "t")
        self.device = device if type(device) is devices.Device else devices.to_device(device)
        if requires_grad is None and like is not None:
            requires_grad = like.requires_grad and self.dtype.is_inexact
        self.requires_grad, self.declared_without_grad = bool(requires_grad), is_declared
        self._grad = grad
        self.tags = set(tags or ())
        self.distparallel_type, self.history = distparallel_type, history
        self.strides = None if strides is None else tuple(strides)
        self.input_offset, self.declared_leaf = input_offset, declared_leaf
        self.requires_grad_since_write, self.name_hint = requires_grad_since_write, name_hint
        return self

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # torch.Tensor.__init__ takes no arguments
        pass

    @property
    def true_dtype(self) -> dtypes.dtype:
        """The dtype without weakness."""
        return self.dtype

    @property
    def ndim(self) -> int:  # type: ignore[override]
        """The number of dimensions."""
        return len(self.shape)

    @property
    def grad(self) -> TensorProxy | None:  # type: ignore[override]
        """The proxy of the gradient, if the trace has one."""
        return self._grad

    @property
    def numel(self) -> Count:
        """The number of elements; both ``t.numel`` and ``t.numel()`` are this int."""
        count = math.prod(self.shape)
        return Count(count) if type(count) is int else count  # type: ignore[return-value]  # it can be called

    def dim(self) -> int:
        """Return the number of dimensions."""
        return len(self.shape)

    def size(self, dim: int | None = None) -> Any:
        """Return the shape, or the length of one dimension."""
        return shape_of(self.shape) if dim is None else self.shape[dim]

    def type_string(self) -> str:
        """Return the text of the type comment: ``cpu f32[2, 4]``."""
        return _tensor_type(self)

    def replace(self, **changes: Any) -> TensorProxy:
        """Return a copy with other metadata.

        A new name must have been taken from the trace already. A new shape resets the strides and the offset,
        and a new ``requires_grad`` resets ``requires_grad_since_write``, unless these are passed too;
        everything else is copied. Raises InvalidArgument for a name that is not an argument of the
        constructor.
        """
        if "grad" in changes:
            changes["_grad"] = changes.pop("grad")
        unknown = changes.keys() - _FIELD_NAMES
        if unknown:
            raise InvalidArgument(f"TensorProxy has no attribute {sorted(unknown)[0]!r}")
        shape = tuple(changes.get("shape", self.shape))
        new = self._of_form(shape, dtypes.to_dtype(changes.get("dtype", self.dtype)))
        new.declared_without_grad = False
        if not are_same(shape, self.shape):
            new.strides = new.input_offset = new.derived_strides = None
        for field in changes.keys() - _CONVERTED:
            setattr(new, field, changes[field])
        new.device = devices.to_device(changes.get("device", self.device))
        new.tags = set(changes.get("tags", self.tags))
        if "requires_grad" in changes:
            new.requires_grad_since_write = changes.get("requires_grad_since_write", False)
        return new

    def copy(self, name: str, name_hint: str | None = None) -> TensorProxy:
        """Return a tensor with the same metadata under a name that has been taken from the trace."""
        new = self._of_form(self.shape, self.dtype)
        new.name, new.name_hint = name, name_hint
        return new

    def _of_form(self, shape: tuple[int, ...], dtype: dtypes.dtype) -> TensorProxy:
        """Return a tensor of a shape and a dtype, with all other metadata of this one."""
        new = _without_metadata(type(self), shape, dtype)
        # each slot by its name: a loop over them takes three times as long
        new.name, new.name_hint, new.tags = self.name, self.name_hint, set(self.tags)
        new.device, new.requires_grad, new._grad = self.device, self.requires_grad, self._grad
        new.distparallel_type, new.history = self.distparallel_type, self.history
        new.strides, new.input_offset = self.strides, self.input_offset
        new.derived_strides, new.declared_leaf = self.derived_strides, self.declared_leaf
        new.declared_without_grad = self.declared_without_grad
        new.requires_grad_since_write = self.requires_grad_since_write
        return new

    def replace_name(self, name: str, *, disambiguate: bool = False) -> TensorProxy:
        """Return a copy under another name."""
        trace = get_tracectx()
        if trace is not None:
            name = trace.make_derived_name(name) if disambiguate else trace.add_name(name)
        return self.replace(name=name)

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        symbol = current_language().resolve(func)
        if symbol is None:
            symbol = current_language().resolve(_replaced_method(func))
        if symbol is None:
            symbol = unknown_torch_function(func)
        return symbol(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch's stub forgets that it is a class method
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.aten.dim.default:  # torch's parser asks whether a tensor may be a number
            return len(args[0].shape)
        raise UnsupportedProgram(
            f"{func} was called on a proxy below the level at which thunder records",
            hint="Call the torch function from Python, or register an operator for it.",
        )

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def __iter__(self) -> Any:
        if not self.shape:
            raise TypeError("iteration over a 0-d tensor")
        unbind = current_language().resolve(torch.unbind)
        if unbind is None:
            raise UnsupportedProgram("the current language has no unbind, so proxies cannot be iterated")
        return iter(unbind(self, 0))

    __hash__ = object.__hash__  # torch.Tensor's, spelt out: defining __eq__ below would drop it

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]  # torch's has no types
        note_text(self)
        shape = tuple(self.shape)
        return f'<TensorProxy(name="{self.name}", dtype={self.dtype!r}, shape={shape})>'

    def __format__(self, spec: str) -> str:  # torch's would be recorded as a call
        return format(repr(self), spec)


for _name, _method in {**METADATA_METHODS, **REFUSED_METHODS}.items():
    setattr(TensorProxy, _name, _method)


def _tensor_type(p: TensorProxy | FutureTensorProxy) -> str:
    shape = p.shape
    dims = ", ".join(map(size_text if has_symbols(shape) else str, shape))
    return f"{p.device.device_str()} {p.dtype.shortname()}[{dims}]"


class Count(int):
    """An int that may be called: ``t.numel`` in thunder's code, ``t.numel()`` in torch's."""

    def __call__(self) -> int:
        return int(self)


_META = torch.device("meta")
#: looks at no mode of torch, and calls no ``__torch_function__``
_make_wrapper = torch.Tensor._make_wrapper_subclass
_NUMBERS = frozenset({int})


def _without_metadata(cls: type[TensorProxy], shape: tuple[int, ...], dtype: dtypes.dtype) -> TensorProxy:
    """Return a new wrapper with shape and dtype and no other metadata.

    Torch refuses to read the sizes of one with symbolic sizes.
    """
    self: TensorProxy
    if _NUMBERS.issuperset(map(type, shape)) or not has_symbols(shape):
        self = _make_wrapper(cls, shape, dtype=dtype.torch_dtype, device=_META)
    else:
        self = _make_wrapper(
            cls,
            (0,) * len(shape),
            dtype=dtype.torch_dtype,
            device=_META,
            dispatch_sizes_strides_policy="sizes",
        )
    self.shape, self.dtype, self.derived_strides, self.declared_without_grad = shape, dtype, None, False
    return self


def _replaced_method(func: Any) -> Any:
    """Return the method implemented in C that ``func`` replaces in ``torch.Tensor``, or None.

    An operator implemented in C reports itself as the attribute of ``torch.Tensor`` under its name: ``x * 2``
    as ``torch.Tensor.mul``, which it does not call.
    """
    for name, value in vars(torch.Tensor).items():
        if value is func:
            return vars(torch._C.TensorBase).get(name)
    return None


class FutureTensorProxy(Proxy):
    """The result of an asynchronous collective, of the metadata of the tensor ``like``.

    The operator that replaces ``FutureTensorProxy.wait`` (``replaces=`` of ``register_operator``, ``torch=``
    of a row) returns the tensor.
    """

    prefix = "ft"

    def __init__(self, name: str | None = None, *, like: TensorProxy) -> None:
        super().__init__(name)
        self.shape, self.device, self.dtype = like.shape, like.device, like.dtype

    def wait(self) -> TensorProxy:
        """Record the wait for the collective and return the tensor.

        Raises UnsupportedProgram if no operator replaces this method.
        """
        operator = current_language().resolve(FutureTensorProxy.wait)
        if operator is None:
            raise UnsupportedProgram(
                "no operator waits for the results of asynchronous collectives",
                hint="The package that provides the collective registers one with "
                "replaces=FutureTensorProxy.wait.",
            )
        return operator(self)  # type: ignore[no-any-return]

    def type_string(self) -> str:
        return f"FUTURE {_tensor_type(self)}"


class Variable:
    """A proxy that compares and hashes by name, so that it can be a key."""

    __slots__ = ("name", "proxy")

    def __init__(self, proxy: Proxy | TensorProxy) -> None:
        self.proxy, self.name = proxy, proxy.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Variable) and other.name == self.name

    def __repr__(self) -> str:
        return f"Variable({self.name})"


def is_proxy(x: Any) -> bool:
    """Return whether ``x`` is a proxy of any kind."""
    return isinstance(x, TensorProxy | Proxy)


def variableify(x: Any) -> Any:
    """Return a :class:`Variable` of a proxy; anything else unchanged."""
    return Variable(x) if isinstance(x, TensorProxy | Proxy) else x


def unvariableify(x: Any) -> Any:
    """Undo :func:`variableify`."""
    return x.proxy if isinstance(x, Variable) else x
