"""Native code and libraries are recognised by what they are: objects with their names get no rights.

Each look-alike has the name, qualified name and module of an object that a table allows.
"""

import _csv
import _thread
import collections
import collections.abc
import functools
import itertools
import logging
import operator
import re
import types

import numpy
import pytest
import torch

import thunder
from thunder.frontend.lookasides import environment_queries
from thunder.frontend.natives import libraries, native_calls
from thunder.frontend.natives.descriptors import descriptor_of
from thunder.frontend.natives.native_tables import (
    KEYED_LOOKUPS,
    PURE_FUNCTIONS,
    VALUE_PRESERVING,
    is_value_preserving,
)

X = torch.ones(2)


class Key:
    """A key whose hash and equality are Python code."""

    def __init__(self, value):
        self.value = value

    def __hash__(self):
        return self.value

    def __eq__(self, other):
        return self.value == other.value


def answers_or_refuses(program, args, change):
    """Whether the compiled program gives what eager gives after the change, or is refused."""
    compiled = thunder.jit(program)
    try:
        compiled(*args)
    except thunder.UnsupportedProgram:
        return True
    change()
    return torch.equal(compiled(*args), program(*args))


def look_alike(name, bases=(), **namespace):
    cls = type(name, bases, {"__module__": "builtins", **namespace})
    cls.__qualname__ = name
    return cls


@pytest.mark.parametrize("name", ["list", "tuple", "dict", "zip", "map", "chain", "reversed", "bool", "type"])
def test_a_set_with_the_name_of_a_carrier_does_not_compare_unseen(name):
    cls, second = look_alike(name, (set,)), Key(1)
    args = X, Key(1), second
    assert answers_or_refuses(lambda x, a, b: x * len(cls([a, b])), args, lambda: setattr(second, "value", 2))


@pytest.mark.parametrize(
    "name", ["thunder.core.mine", "thunder.frontend.guards", "torch.nn.functional", "calendar", "os"]
)
def test_a_function_in_a_namespace_with_a_librarys_name_is_guarded_in_its_parts(name):
    namespace = {"__name__": name, "FACTOR": 2.0}
    exec("def scale(x, by=3.0):\n    return x * (FACTOR + by)", namespace)
    scale = namespace["scale"]
    scale.__module__ = name

    def program(x):
        return scale(x)

    compiled = thunder.jit(program)
    assert torch.equal(compiled(X), program(X))
    namespace["FACTOR"] = 5.0
    assert torch.equal(compiled(X), program(X))
    scale.__defaults__ = (7.0,)
    assert torch.equal(compiled(X), program(X))


def test_a_copy_of_a_librarys_namespace_is_not_the_library():
    for module in (torch.nn.functional, functools, numpy, libraries):
        assert libraries.is_library(vars(module))
        assert not libraries.is_library(dict(vars(module)))
    assert libraries.is_own(vars(libraries))
    assert not libraries.is_own(vars(torch.nn.functional))


def test_a_class_with_the_name_of_a_librarys_is_not_the_librarys():
    assert libraries.is_library_class(torch.nn.Linear)
    fake = type("Linear", (), {"__module__": torch.nn.Linear.__module__})
    assert fake.__qualname__ == torch.nn.Linear.__qualname__
    assert not libraries.is_library_class(fake)


def test_modules_of_torch_that_are_objects_in_place_of_modules_are_torchs():
    for module in (torch.backends.cudnn, torch.ops, torch._VF, torch._C._nn):
        assert libraries.is_library_module(module)
    assert not libraries.is_library_module(types.ModuleType("torch.backends.cudnn"))


def test_objects_with_the_names_of_numpys_are_not_numpys():
    number = look_alike("float64", item=lambda self: 1.0, shape=())
    number.__module__ = "numpy"
    ufunc = look_alike("ufunc")
    ufunc.__module__ = "numpy"
    assert libraries.is_numpy_scalar(numpy.float64(1))
    assert not libraries.is_numpy_scalar(number())
    assert libraries.is_ufunc(numpy.sqrt)
    assert not libraries.is_ufunc(ufunc())
    assert not libraries.is_numpy_scalar(numpy.zeros(()))


def test_a_module_called_numpy_that_the_user_wrote_is_not_numpy(monkeypatch):
    written = types.ModuleType("numpy")
    written.ufunc, written.generic = type("ufunc", (), {}), type("generic", (), {})
    monkeypatch.setitem(__import__("sys").modules, "numpy", written)
    assert not libraries.is_ufunc(written.ufunc())
    assert not libraries.is_numpy_scalar(written.generic())


def test_a_cached_function_with_the_module_of_typing_is_guarded_like_any_other():
    table = {"factor": 2.0}

    @functools.lru_cache
    def factor():
        return table["factor"]

    factor.__module__ = "typing"

    def change():
        table["factor"] = 3.0
        factor.cache_clear()

    assert answers_or_refuses(lambda x: x * factor(), (X,), change)


def test_a_cached_function_of_a_logger_that_returns_a_value_is_refused():
    @functools.lru_cache
    def doubled_level(logger):
        return 2 * logger.level

    logger = logging.getLogger("thunder.tests.cached")
    logger.setLevel(30)
    with pytest.raises(thunder.UnsupportedProgram, match="doubled_level is under functools"):
        thunder.jit(lambda x: x * (doubled_level(logger) or 1))(X)


def test_native_functions_with_the_module_of_torch_are_not_torchs(monkeypatch):
    monkeypatch.setattr(_thread._count, "__module__", "torch")
    assert not environment_queries.is_query(_thread._count)
    monkeypatch.setattr(_thread._count, "__module__", "torch._C._nn")
    assert not native_calls.is_unknown_torch(_thread._count)
    assert environment_queries.is_query(torch.is_grad_enabled)
    assert native_calls.is_unknown_torch(torch._C._nn.gelu)
    with pytest.raises(thunder.UnsupportedProgram, match="_count is implemented in C"):
        thunder.jit(lambda x: x * (_thread._count() % 2))(X)


def test_the_constructor_of_a_foreign_class_is_not_allowed_for_its_name():
    with pytest.raises(thunder.UnsupportedProgram, match="thunder does not see what it reads"):
        thunder.jit(lambda x: (x, _csv.Dialect.__new__(_csv.Dialect)))(X)


def test_a_generic_alias_is_made_in_the_program():
    def program(x):
        return x * len(collections.abc.Callable[[int, str], float].__args__)

    assert torch.equal(thunder.jit(program)(X), 3 * X)


@pytest.mark.parametrize(
    "program",
    [
        lambda x, a, b: x * (2 if [{"k": a}].count({"k": b}) else 3),
        lambda x, a, b: x * (2 if operator.countOf([{"k": a}], {"k": b}) else 3),
        lambda x, a, b: x * (2 if [[[[a]]]] == [[[[b]]]] else 3),
        lambda x, a, b: x * (2 if [{"k": {"l": [a]}}].__contains__({"k": {"l": [b]}}) else 3),
    ],
)
def test_native_comparisons_of_what_dicts_hold_are_seen(program):
    second = Key(1)
    assert answers_or_refuses(program, (X, Key(1), second), lambda: setattr(second, "value", 2))


def test_a_search_among_the_keys_of_a_dict_does_not_compare_its_values():
    program = lambda x, a: x * (2 if "k" in {"k": a, "l": {"m": a}} else 3)  # noqa: E731
    assert torch.equal(thunder.jit(program)(X, Key(1)), 2 * X)


class Listed(list):
    append = "not a method"


def test_the_descriptor_of_a_bound_method_is_that_of_its_class():
    assert descriptor_of([].append) is vars(list)["append"]
    assert descriptor_of(list.append) is vars(list)["append"]
    assert descriptor_of(super(Listed, Listed()).append) is vars(list)["append"]
    assert descriptor_of(collections.OrderedDict().items) is vars(collections.OrderedDict)["items"]
    assert descriptor_of({}.__setitem__) is vars(dict)["__setitem__"]
    assert descriptor_of(dict.fromkeys) is vars(dict)["fromkeys"]
    assert descriptor_of({}.fromkeys) is vars(dict)["fromkeys"]
    assert descriptor_of(itertools.chain.from_iterable) is vars(itertools.chain)["from_iterable"]
    assert descriptor_of(Listed.mro) is vars(type)["mro"]
    assert descriptor_of(Listed.__new__) is list.__new__
    assert descriptor_of(object.__new__) is object.__new__
    assert descriptor_of(re.compile("a").search) is vars(re.Pattern)["search"]
    assert descriptor_of(len) is len
    assert descriptor_of(torch.is_grad_enabled) is torch.is_grad_enabled


def test_no_row_of_the_tables_allows_a_name():
    for row in (*PURE_FUNCTIONS, *VALUE_PRESERVING, KEYED_LOOKUPS):
        assert row.reason
        assert row.natives
        assert all(callable(native) or hasattr(native, "__get__") for native in row.natives), row.reason


def test_functions_with_the_names_of_carriers_are_not_carriers():
    for row in VALUE_PRESERVING:
        for native in row.natives:
            fake = look_alike(native.__name__)
            fake.__module__ = getattr(native, "__module__", None) or "builtins"
            assert is_value_preserving(native)
            assert not is_value_preserving(fake)
