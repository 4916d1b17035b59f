"""Unpackings: primitives of prologues that fetch what a program reads.

The values that they fetch are any Python objects; one that is fixed when the program is compiled is an
argument as a ``Constant``. An unpacking returns ``ABSENT`` where there is nothing.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from thunder.base.errors import GuardFailed
from thunder.base.provenance import ABSENT, STEPS, StepKind, lookup_instance
from thunder.base.tags import OpTags
from thunder.ir.object_names import Constant
from thunder.ir.proxies import AnyProxy
from thunder.ir.symbol import Symbol
from thunder.ops.operator import NONDIFFERENTIABLE
from thunder.ops.prims.declaration import primitive

# fmt: off
__all__ = [
    "UNPACKINGS", "Constant",
    "numpy_array_to_torch_tensor", "unpack_attr", "unpack_buffer", "unpack_cached", "unpack_called",
    "unpack_cell",
    "unpack_closure", "unpack_content", "unpack_default", "unpack_dict_key", "unpack_function_obj",
    "unpack_getitem", "unpack_global", "unpack_iterated", "unpack_length", "unpack_list",
    "unpack_outer_metadata", "unpack_own_attr", "unpack_parameter", "unpack_plain_tensor",
    "unpack_proxied", "unpack_reference", "unpack_referent", "unpack_slot", "unpack_strides",
    "unpack_submodule", "unpack_tuple", "unpack_type_attr",
]
# fmt: on


# -- unpacking ---------------------------------------------------------------------------------------------


def _unpacking(fetch: Callable[..., Any], name: str | None = None) -> Symbol:
    """Declare an unpacking that runs ``fetch``; its output is an object of any type unless bound."""

    @functools.wraps(fetch)
    def meta(*args: Any, **kwargs: Any) -> AnyProxy:
        return AnyProxy()

    return _declared(name or fetch.__name__, meta, fetch)


def _declared(name: str, meta: Callable[..., Any], run: Callable[..., Any]) -> Symbol:
    return primitive(name, meta, python_impl=run, vjp=NONDIFFERENTIABLE, tags=(OpTags.DONT_DCE,))


#: the unpacking of each kind of step of a path
UNPACKINGS: dict[StepKind, Symbol] = {}


def _step(kind: StepKind, name: str, parameters: Sequence[str] = ("x", "key")) -> Symbol:
    """Declare the unpacking for one kind of step of a path, ``name(x, key)``, and its parameters' names."""
    fetch = STEPS[kind].fetch

    def unpack(x: Any, key: Any = None) -> Any:
        return ABSENT if x is ABSENT else fetch(x, key)

    either = [inspect.Parameter(p, inspect.Parameter.POSITIONAL_OR_KEYWORD) for p in parameters]
    unpack.__signature__ = inspect.Signature(either)  # type: ignore[attr-defined]
    return UNPACKINGS.setdefault(kind, _unpacking(unpack, name))


#: ``o.key``, by ``getattr``
unpack_attr = _step("attribute", "unpack_attr", ("o", "key"))
#: an attribute in the instance's own ``__dict__``
unpack_own_attr = _step("instance", "unpack_own_attr")
#: an attribute in a slot
unpack_slot = _step("slot", "unpack_slot")
#: the raw value of an attribute of a class, along its MRO
unpack_type_attr = _step("typeattr", "unpack_type_attr")
#: ``d[key]`` of a dict
unpack_dict_key = _step("key", "unpack_dict_key", ("d", "k"))
#: the items of a subclass of dict, list or the like as a plain dict or list
unpack_content = _step("content", "unpack_content")
#: ``c[key]`` of a sequence
unpack_getitem = _step("index", "unpack_getitem", ("o", "key"))
#: a global variable in the dictionary of a module
unpack_global = _step("global", "unpack_global")
#: the content of a closure cell
unpack_cell = _step("cell", "unpack_cell")
#: a closure cell of a function
unpack_closure = _step("closure", "unpack_closure")
#: a default of a function
unpack_default = _step("default", "unpack_default")
#: the object of a weak reference
unpack_referent = _step("referent", "unpack_referent")
#: a weak reference to an object
unpack_reference = _step("reference", "unpack_reference")
#: the mapping of a read-only view
unpack_proxied = _step("proxied", "unpack_proxied")


#: a tensor of a subclass as one of the class torch.Tensor
unpack_plain_tensor = _step("plain", "unpack_plain_tensor")
#: the metadata of a tensor whose class or layout computes
unpack_outer_metadata = _step("outer", "unpack_outer_metadata")
#: a part of an iterator or generator
unpack_iterated = _step("iterated", "unpack_iterated")

#: the length of a list
unpack_length = _step("length", "unpack_length")
#: the strides of a tensor
unpack_strides = _step("strides", "unpack_strides")
#: the tensor that shares the memory of a NumPy array
numpy_array_to_torch_tensor = _step("array", "numpy_array_to_torch_tensor", ("a",))
#: what a function of a package makes of an object
unpack_called = _step("called", "unpack_called", ("x", "fn"))
#: the entry of a call in the cache of a function under ``functools.lru_cache``
unpack_cached = _step("cached", "unpack_cached", ("query",))


@_unpacking
def unpack_function_obj(x: Any, *, name: str = "fn") -> Any:
    """Return an object that is fixed when the program is compiled, such as the compiled function."""
    return x


def _unpacking_of(container: type[tuple[Any, ...]] | type[list[Any]]) -> Symbol:
    """Declare the unpacking of all ``n`` elements of a tuple or list, whose type and length it checks."""
    name = f"unpack_{container.__name__}"

    def meta(x: Any, n: int) -> tuple[AnyProxy, ...]:
        return tuple(AnyProxy() for _ in range(n))

    def unpack(x: Any, n: int) -> Any:
        if type(x) is container:
            elements = list(x)
            if len(elements) == n:
                return elements
        raise GuardFailed(name, n, x)

    return _declared(name, meta, unpack)


unpack_tuple = _unpacking_of(tuple)
unpack_list = _unpacking_of(list)


def _submodule(module: Any, name: str) -> Any:
    """Return a submodule by its dotted name, from the dictionaries of the modules on the way."""
    for part in name.split(".") if name else ():
        module = lookup_instance(module, "_modules")[part]
    return module


def _member(module: Any, dictionary: str, name: str) -> Any:
    """Return a parameter or buffer by its dotted name; ``module`` may be the overrides of a module."""
    if isinstance(module, Mapping):
        return module[name]
    owner, _, last = name.rpartition(".")
    return lookup_instance(_submodule(module, owner), dictionary)[last]


@_unpacking
def unpack_submodule(m: Any, name: str) -> Any:
    """Return the submodule of a module by its dotted name."""
    return _submodule(m, name)


@_unpacking
def unpack_parameter(m: Any, name: str) -> Any:
    """Return a parameter by its dotted name; ``m`` is a module, or the overrides of one."""
    return _member(m, "_parameters", name)


@_unpacking
def unpack_buffer(m: Any, name: str) -> Any:
    """Return a buffer by its dotted name; ``m`` is a module, or the overrides of one."""
    return _member(m, "_buffers", name)
