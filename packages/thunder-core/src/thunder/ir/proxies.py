"""Proxies: the values of a trace.

``TensorProxy`` is a real wrapper subclass of ``torch.Tensor``. An ordinary class that only reports
``torch.Tensor`` as its ``__class__`` crashes the process, because C++ (``THPVariable_Check``) honours
``__class__`` and then casts. The wrapper always lives on the meta device and never requires grad (a cuda
tensor that requires grad aborts a CPU build of torch); device, dtype, shape and ``requires_grad`` as the user
sees them are attributes of ours.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

import torch

from thunder.base import devices, dtypes
from thunder.base.errors import DataDependentControlFlow, InvalidArgument, UnsupportedProgram
from thunder.base.langctx import current_language
from thunder.ir.scalar_proxies import (
    CONSTRAINT,
    AnyProxy,
    CollectionProxy,
    ComplexProxy,
    DictProxy,
    FloatProxy,
    GeneratorProxy,
    IntegerProxy,
    ListProxy,
    NumberProxy,
    Proxy,
    ProxyTag,
    StringProxy,
    TupleProxy,
    pytype,
    pyval,
    take_name,
)
from thunder.ir.trace_context import get_tracectx

__all__ = [
    "CONSTRAINT",
    "UNKNOWN",
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
    "is_proxy",
    "known_value",
    "number_in",
    "pytype",
    "pyval",
    "unknown_torch_function",
    "unvariableify",
    "variableify",
]


def known_value(x: TensorProxy) -> torch.Tensor | None:
    """The value of a tensor of the current trace, on the CPU, where the trace can tell it: it depends on no
    input.
    """
    trace = get_tracectx()
    value: torch.Tensor | None = None
    if trace is not None and trace.known_value is not None:
        value = trace.known_value(x)
    return value


def number_in(x: Any) -> Any:
    """The number in a tensor of one element whose value is known; anything else as it is."""
    value = known_value(x) if isinstance(x, TensorProxy) and math.prod(x.shape) == 1 else None
    return x if value is None else value.item()


def _ask_value(operation: str, ask: Callable[..., Any]) -> Callable[..., Any]:
    """A method that asks for the value: answered where it is known, else refused."""

    def method(self: TensorProxy, *args: Any, **kwargs: Any) -> Any:
        value = known_value(self)
        if value is not None:
            return ask(value, *args, **kwargs)
        raise DataDependentControlFlow(
            f"{operation} asks for the value of a tensor, which is not known while the program is traced",
            found=f'{self.name}: "{self.type_string()}"',
            hint="Use torch.where or another tensor operation, or move the test out of the compiled "
            "function.",
        )

    return method


def _refuse_conversion(operation: str, ask: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """A method that takes the data: refused, but where ``ask`` can have it from a value that is known."""

    def method(self: TensorProxy, *args: Any, **kwargs: Any) -> Any:
        value = known_value(self) if ask is not None else None
        if ask is not None and value is not None:
            return ask(value, *args, **kwargs)
        raise UnsupportedProgram(
            f"{operation} takes the data of a tensor out of the program",
            found=f'{self.name}: "{self.type_string()}"',
            hint="Return the tensor and convert it after the call.",
        )

    return method


class TensorProxy(torch.Tensor):
    """A tensor of a trace: metadata without data.

    ``shape`` is a tuple of ints, ``dtype`` a thunder dtype, ``device`` a thunder device. Explicit arguments
    win over those of ``like``. Devices and dtypes may be given as thunder's or as torch's. Raises
    InvalidArgument if neither ``like`` nor all of shape, device and dtype are given, and TraceError if the
    name is taken in the current trace.
    """

    name: str
    shape: tuple[int, ...]  # type: ignore[assignment]
    device: devices.Device  # type: ignore[assignment]
    dtype: dtypes.dtype  # type: ignore[assignment]
    requires_grad: bool
    tags: set[ProxyTag]

    def __new__(
        cls,
        name: str | None = None,
        *,
        like: TensorProxy | torch.Tensor | None = None,
        shape: Iterable[int] | None = None,
        device: Any = None,
        dtype: Any = None,
        requires_grad: bool | None = None,
        grad: TensorProxy | None = None,
        prefix: str | None = None,
        distparallel_type: Any = None,
        history: Any = None,
        tags: Iterable[ProxyTag] | None = None,
    ) -> TensorProxy:
        # reads of a real tensor's attributes would be recorded if torch functions were on
        if like is not None:
            shape = like.shape if shape is None else shape
            device = like.device if device is None else device
            dtype = like.dtype if dtype is None else dtype
            requires_grad = like.requires_grad if requires_grad is None else requires_grad
        missing = [n for n, v in (("shape", shape), ("device", device), ("dtype", dtype)) if v is None]
        if missing:
            raise InvalidArgument(f"TensorProxy needs like=, or {', '.join(missing)}")
        return _make(
            cls,
            take_name(name, prefix or "t"),
            tuple(map(int, shape)),  # type: ignore[arg-type]  # a bool is an int, and not a length
            device if type(device) is devices.Device else devices.to_device(device),
            dtype if type(dtype) is dtypes.dtype else dtypes.to_dtype(dtype),
            bool(requires_grad),
            {
                "_grad": grad,
                "distparallel_type": distparallel_type,
                "history": history,
                "tags": set(tags or ()),
            },
        )

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
        """The proxy of the gradient, if the trace knows one."""
        known: TensorProxy | None = self.__dict__["_grad"]
        return known

    @property
    def numel(self) -> Count:
        """The number of elements; ``t.numel()`` and the attribute itself give the same int."""
        return Count(math.prod(self.shape))

    def dim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the length of one dimension."""
        return torch.Size(self.shape) if dim is None else self.shape[dim]

    def type_string(self) -> str:
        """The text of the type comment: ``cpu f32[2, 4]``."""
        dims = ", ".join(map(str, self.shape))
        return f"{self.device.device_str()} {self.dtype.shortname()}[{dims}]"

    def replace(self, **changes: Any) -> TensorProxy:
        """A copy with other attributes. A new name must have been taken from the trace already."""
        state = dict(self.__dict__)
        unknown = set(changes) - set(state)
        if unknown:
            raise InvalidArgument(f"TensorProxy has no attribute {sorted(unknown)[0]!r}")
        state.update(changes)
        return _make(
            type(self),
            state.pop("name"),
            tuple(state.pop("shape")),
            devices.to_device(state.pop("device")),
            dtypes.to_dtype(state.pop("dtype")),
            state.pop("requires_grad"),
            {**state, "tags": set(state["tags"])},
        )

    def replace_name(self, name: str, *, disambiguate: bool = False) -> TensorProxy:
        """A copy under another name."""
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
    ) -> NoReturn:
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
        shape = tuple(self.shape)
        return f'<TensorProxy(name="{self.name}", dtype={self.dtype!r}, shape={shape})>'

    __bool__ = _ask_value("bool(tensor)", bool)
    __int__ = _ask_value("int(tensor)", int)
    __float__ = _ask_value("float(tensor)", float)
    __complex__ = _ask_value("complex(tensor)", complex)
    __index__ = _ask_value("index(tensor)", operator.index)
    __contains__ = _ask_value("x in tensor", operator.contains)
    is_nonzero = _ask_value("tensor.is_nonzero()", torch.Tensor.is_nonzero)
    tolist = _refuse_conversion("tensor.tolist()", torch.Tensor.tolist)
    numpy = _refuse_conversion("tensor.numpy()")
    __array__ = _refuse_conversion("numpy.asarray(tensor)")
    __dlpack__ = _refuse_conversion("tensor.__dlpack__()")
    data_ptr = _refuse_conversion("tensor.data_ptr()")
    untyped_storage = _refuse_conversion("tensor.untyped_storage()")
    __deepcopy__ = _refuse_conversion("copy.deepcopy(tensor)")
    __reduce_ex__ = _refuse_conversion("pickling a tensor")


#: methods of torch's that need the data, each of which a proxy refuses itself
REFUSED_METHODS: dict[str, Callable[..., NoReturn]] = {
    name: getattr(TensorProxy, name)
    for name in (
        "is_nonzero",
        "tolist",
        "numpy",
        "__array__",
        "__dlpack__",
        "data_ptr",
        "untyped_storage",
        "__deepcopy__",
        "__reduce_ex__",
    )
}


class Count(int):
    """An int that may be called: ``t.numel`` in thunder's own code, ``t.numel()`` in torch's."""

    def __call__(self) -> int:
        return int(self)


_META = torch.device("meta")


def _make(
    cls: type[TensorProxy],
    name: str,
    shape: tuple[int, ...],
    device: devices.Device,
    dtype: dtypes.dtype,
    requires_grad: bool,
    rest: dict[str, Any],
) -> TensorProxy:
    with torch._C.DisableTorchFunction():
        self = torch.Tensor._make_wrapper_subclass(
            cls, shape, dtype=dtypes.to_torch_dtype(dtype), device=_META
        )
    state = self.__dict__
    state["name"], state["shape"], state["device"], state["dtype"] = name, shape, device, dtype
    state["requires_grad"] = requires_grad
    state.update(rest)
    return self


def _replaced_method(func: Any) -> Any:
    """The method implemented in C for which ``func`` was put into ``torch.Tensor``, or None.

    An operator implemented in C names itself by what ``torch.Tensor`` has under its name: ``x * 2`` by
    ``torch.Tensor.mul``, which it does not call.
    """
    for name, value in vars(torch.Tensor).items():
        if value is func:
            return vars(torch._C.TensorBase).get(name)
    return None


def _own(name: str) -> property:
    """A property over the instance dictionary that hides the C attribute of the same name."""

    def get(self: TensorProxy) -> Any:
        return self.__dict__[name]

    def put(self: TensorProxy, value: Any) -> None:
        self.__dict__[name] = value

    return property(get, put)


for _name in ("name", "shape", "device", "dtype", "requires_grad"):
    setattr(TensorProxy, _name, _own(_name))


class FutureTensorProxy(Proxy):
    """The result of an asynchronous collective; ``wait`` gives the tensor."""

    prefix = "ft"

    def __init__(self, name: str | None = None, *, like: TensorProxy) -> None:
        super().__init__(name)
        self.shape, self.device, self.dtype = like.shape, like.device, like.dtype

    def type_string(self) -> str:
        dims = ", ".join(map(str, self.shape))
        return f"FUTURE {self.device.device_str()} {self.dtype.shortname()}[{dims}]"


def unknown_torch_function(func: Any) -> Callable[..., Any]:
    """What stands for a torch function that the current language lacks.

    The language says what that is: a fallback or a refusal.
    """
    unknown = current_language().functions.get(UNKNOWN)
    if unknown is None:
        raise UnsupportedProgram(
            f"{torch.overrides.resolve_name(func) or func} is not an operator thunder knows"
        )
    return unknown(func)  # type: ignore[no-any-return]


class _Unknown:
    """The key under which a language keeps its handler of functions that it lacks."""


UNKNOWN = _Unknown()


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
    """Whether ``x`` is a proxy of any kind."""
    return isinstance(x, TensorProxy | Proxy)


def variableify(x: Any) -> Any:
    """A :class:`Variable` of a proxy; anything else as it is."""
    return Variable(x) if isinstance(x, TensorProxy | Proxy) else x


def unvariableify(x: Any) -> Any:
    """Undoes :func:`variableify`."""
    return x.proxy if isinstance(x, Variable) else x
