"""Primitives of prologues: they fetch what a program reads, and check what it depends on.

The values that they fetch and compare are any Python objects; one that is fixed when the program is compiled
is an argument as a ``Constant``. A check raises ``GuardFailed`` where it does not hold. An unpacking returns
``ABSENT`` where there is nothing.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from thunder.base.equal_values import COMPARISONS, Comparison, are_distinct, has_keys, same_leaf
from thunder.base.errors import GuardFailed
from thunder.base.provenance import ABSENT, STEPS, StepKind, lookup_instance
from thunder.base.tags import OpTags
from thunder.ir.object_names import Constant
from thunder.ir.proxies import AnyProxy
from thunder.ir.symbol import Symbol
from thunder.ops.operator import NONDIFFERENTIABLE
from thunder.ops.prims.declaration import composite, primitive

# fmt: off
__all__ = [
    "Constant", "check_apart", "check_array", "check_compare", "check_contains", "check_different",
    "check_dir", "check_empty", "check_has_attr", "check_initial_seed", "check_instance", "check_keys",
    "check_len", "check_literal_like", "check_none", "check_number_type_and_value",
    "check_other_object", "check_overlap", "check_referent", "check_same_object", "check_set",
    "check_silent_deaths", "check_slice_value", "check_state", "check_storage_offset",
    "check_string_value", "check_tensor_shape_and_metadata", "check_tensors", "check_type",
    "numpy_array_to_torch_tensor", "unpack_attr", "unpack_buffer", "unpack_cached", "unpack_cell",
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


def _step(kind: StepKind, name: str, parameters: tuple[str, str] = ("x", "key")) -> Symbol:
    """Declare the unpacking for one kind of step of a path, ``name(x, key)``, and its parameters' names."""
    fetch = STEPS[kind].fetch

    def unpack(x: Any, key: Any) -> Any:
        return ABSENT if x is ABSENT else fetch(x, key)

    either = [inspect.Parameter(p, inspect.Parameter.POSITIONAL_OR_KEYWORD) for p in parameters]
    unpack.__signature__ = inspect.Signature(either)  # type: ignore[attr-defined]
    return _unpacking(unpack, name)


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


@_unpacking
def unpack_cached(query: Any) -> Any:
    """Return the entry of a call in the cache of a function under ``functools.lru_cache``."""
    return query()


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


@_unpacking
def numpy_array_to_torch_tensor(a: Any) -> Any:
    """Return the tensor that shares the memory of a NumPy array."""
    return ABSENT if a is ABSENT else STEPS["array"].fetch(a, None)


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


# -- checks ------------------------------------------------------------------------------------------------


def _check(holds: Callable[..., bool]) -> Symbol:
    """Declare a check: it raises GuardFailed unless ``holds`` returns True."""

    @functools.wraps(holds)
    def meta(*args: Any, **kwargs: Any) -> None:
        return None

    @functools.wraps(holds)
    def run(x: Any, *expected: Any) -> None:
        if not holds(x, *expected):
            raise GuardFailed(holds.__name__, expected, x)

    return _declared(holds.__name__, meta, run)


def _has_metadata(
    t: Any, shape: tuple[int, ...], device: str, dtype: torch.dtype, requires_grad: bool
) -> bool:
    return (
        isinstance(t, torch.Tensor)
        and tuple(t.shape) == shape
        and str(t.device) == device
        and t.dtype == dtype
        and t.requires_grad == requires_grad
    )


@_check
def check_tensor_shape_and_metadata(
    t: Any, shape: tuple[int, ...], device: str, dtype: torch.dtype, requires_grad: bool
) -> bool:
    """Check the metadata of a tensor.

    The prologue that runs checks it together with all other tensors, and by the type, the strides and the
    dispatch keys of the tensor of the compiled call as well.
    """
    return _has_metadata(t, shape, device, dtype, requires_grad)


def _check_tensors(tensors: Sequence[Any], metadata: Sequence[tuple[Any, ...]]) -> None:
    """Check the metadata of several tensors, and that they are different objects."""
    for tensor, expected in zip(tensors, metadata, strict=True):
        check_tensor_shape_and_metadata(tensor, *expected)
    if len(tensors) > 1:
        check_different(*tensors)


def _run_check_tensors(tensors: Sequence[Any], metadata: Sequence[tuple[Any, ...]]) -> None:
    for tensor, expected in zip(tensors, metadata, strict=True):
        if not _has_metadata(tensor, *expected):
            raise GuardFailed("check_tensors", expected, tensor)
    if not are_distinct(*tensors):
        raise GuardFailed("check_tensors", "different objects", tensors)


#: the checks of several tensors at once: ``check_tensors(tensors, metadata)``, where the metadata of a tensor
#: are the further arguments of ``check_tensor_shape_and_metadata``
check_tensors = composite(
    "check_tensors", _check_tensors, python_impl=_run_check_tensors, tags=frozenset({OpTags.DONT_DCE})
)


@_check
def check_same_object(a: Any, b: Any) -> bool:
    """Check that ``a is b``."""
    return a is b


@_check
def check_other_object(a: Any, b: Any) -> bool:
    """Check that ``a is not b``."""
    return a is not b


@_check
def check_none(x: Any) -> bool:
    """Check that ``x is None``."""
    return x is None


@_check
def check_referent(x: Any, reference: weakref.ref[Any]) -> bool:
    """Check that ``x`` is the object of a weak reference, which is still alive."""
    return x is not None and reference() is x


_type_of = type  # ``check_type`` has a parameter of this name


@_check
def check_type(x: Any, type: type) -> bool:
    """Check that ``type(x) is type``."""
    return _type_of(x) is type


@_check
def check_instance(x: Any, types: type | tuple[type, ...]) -> bool:
    """Check that ``isinstance(x, types)``."""
    return isinstance(x, types)


@_check
def check_compare(a: Any, op: Comparison, b: Any) -> bool:
    """Check a comparison of two values; ``op`` is one of ``== != < <= > >=``."""
    return bool(COMPARISONS[op](a, b))


@_check
def check_literal_like(x: Any, v: Any) -> bool:
    """Check that ``x`` and ``v`` are equal by type and value."""
    return same_leaf(x, v)


@_check
def check_number_type_and_value(n: Any, v: int) -> bool:
    """Check that ``n`` is this int."""
    return same_leaf(n, v)


@_check
def check_string_value(s: Any, v: str) -> bool:
    """Check that ``s`` is this string."""
    return same_leaf(s, v)


@_check
def check_slice_value(s: Any, v: slice) -> bool:
    """Check that ``s`` is a slice with these bounds and this step."""
    return same_leaf(s, v)


@_check
def check_len(c: Any, n: int) -> bool:
    """Check that ``len(c) == n``."""
    return len(c) == n


@_check
def check_empty(c: Any) -> bool:
    """Check that the container ``c`` is empty."""
    return not c


@_check
def check_keys(d: Any, keys: tuple[Any, ...]) -> bool:
    """Check that a dict has these keys, in this order."""
    return has_keys(d, keys)


@_check
def check_set(s: Any, values: tuple[Any, ...]) -> bool:
    """Check that a set has these elements, in this order of iteration."""
    return has_keys(s, values)


@_check
def check_contains(c: Any, key: Any, present: bool = True) -> bool:
    """Check that ``key in c``, or with ``present=False`` that it is not."""
    return (key in c) is present


@_check
def check_has_attr(x: Any, name: str, present: bool = True) -> bool:
    """Check that the ``__dict__`` of an object has a name, or with ``present=False`` that it has not."""
    return (lookup_instance(x, name) is not ABSENT) is present


@_check
def check_dir(x: Any, names: list[str]) -> bool:
    """Check that ``dir(x) == names``."""
    return dir(x) == names


@_check
def check_storage_offset(t: torch.Tensor, offset: int) -> bool:
    """Check the position (elements) of a tensor in its storage."""
    return t.storage_offset() == offset


@_check
def check_array(a: Any, expected: Any) -> bool:
    """Check the layout or the content of a NumPy array; ``expected`` compares it."""
    return bool(expected.holds(a))


@_check
def check_silent_deaths(owner: Any, releases: Any) -> bool:
    """Check that what a program overwrites of an object dies without running code of the user's."""
    return bool(releases.holds(owner))


@_check
def check_apart(a: Any, are_apart: Callable[..., bool], *others: Any) -> bool:
    """Check that an array shares memory with no other value; the function ``are_apart`` compares them."""
    return are_apart(a, *others)


@_check
def check_initial_seed(g: torch.Generator, seed: int) -> bool:
    """Check the seed of a generator of random numbers."""
    return g.initial_seed() == seed


@_check
def check_state(read: Callable[[], Any], value: Any) -> bool:
    """Check that the function ``read`` returns a value equal to ``value``."""
    return bool(read() == value)


@_check
def check_overlap(first: Any, expected: Any, compute: Callable[..., Any], *others: Any) -> bool:
    """Check which of several tensors share memory, as ``compute`` returns it."""
    return bool(compute(first, *others) == expected)


@_check
def check_different(first: Any, *others: Any) -> bool:
    """Check that all values are different objects."""
    return are_distinct(first, *others)
