"""Imports within a program: the module that a name refers to, or its absence, is a fact.

    import a.b as c     →   sys.modules["a"] and sys.modules["a.b"] are these modules

An import that finds its modules loaded has no other effect. The first one loads them while the program is
traced, as eager loads them at its first call.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from typing import Any

from thunder.base.errors import UnsupportedProgram
from thunder.base.provenance import ABSENT
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.places import COMPUTES
from thunder.frontend.ran_code import RanCode
from thunder.frontend.session import TracingSession
from thunder.ops import prims

TABLE = LookasideTable(COMPUTES)

_import = builtins.__import__


def imported(
    session: TracingSession,
    name: str,
    namespace: dict[str, Any],
    fromlist: tuple[str, ...] | None,
    level: int,
) -> Any:
    """Return the result of an ``import`` statement. Raises what the import raises."""
    hook = vars(builtins)["__import__"]
    path = session.object_root(vars(builtins), "builtins").step("global", "__import__")
    session.note(prims.check_same_object, path, hook)
    if hook is not _import:
        raise UnsupportedProgram(
            "builtins.__import__ was replaced", hint="Import outside the compiled function."
        )
    full = name if not level else importlib.util.resolve_name("." * level + name, _package(namespace))
    loaded = len(sys.modules)
    try:
        module = _import(name, namespace, None, fromlist or (), level)
    except ImportError as error:
        _note_failure(session, full, error)
        raise
    finally:
        if len(sys.modules) != loaded:
            session.state(RanCode).note(session, f"import {full}")
    _note_modules(session, full)
    for member in fromlist or ():
        if member not in vars(module):  # ``from a import b`` then looks for the module ``a.b``
            submodule = f"{module.__name__}.{member}"
            session.note(
                prims.check_same_object, _entry(session, submodule), sys.modules.get(submodule, ABSENT)
            )
    return session.adopt(module, _entry(session, module.__name__))


def _package(namespace: dict[str, Any]) -> str | None:
    """Return the package in which relative imports of a module are resolved."""
    package = namespace.get("__package__")
    if package is None and "__path__" not in namespace:
        return str(namespace.get("__name__", "")).rpartition(".")[0]
    return namespace.get("__name__") if package is None else package


def _prefixes(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[: count + 1]) for count in range(len(parts)))


def _entry(session: TracingSession, name: str) -> Any:
    return session.object_root(sys.modules, "sys.modules").step("key", name)


def _note_modules(session: TracingSession, name: str) -> None:
    for prefix in _prefixes(name):
        session.note(prims.check_same_object, _entry(session, prefix), sys.modules.get(prefix, ABSENT))


def with_one_module(session: TracingSession, name: str) -> dict[str, Any]:
    """Return what ``sys.modules`` has under one name, for which the program looks."""
    path, module = _entry(session, name), sys.modules.get(name, ABSENT)
    if module is ABSENT:
        session.note(prims.check_same_object, path, ABSENT)
        return {}
    return {name: session.adopt(module, path)}


def _note_failure(session: TracingSession, name: str, error: ImportError) -> None:
    """Note that a module cannot be imported.

    Raises UnsupportedProgram if the module exists and its code fails.
    """
    _note_modules(session, name)
    missing = next(prefix for prefix in _prefixes(name) if sys.modules.get(prefix) is None)
    if missing in sys.modules:  # None in its place forbids the import
        return
    query = functools.partial(_is_findable, missing)
    if query():
        raise UnsupportedProgram(
            f"the import of {name} fails in the code of a module, which would run again at each call",
            found={"error": repr(error)},
            hint="Import it outside the compiled function.",
        )
    session.note_state(query, f"a module {missing}", False)


@TABLE.with_parameters(importlib.util.find_spec)
def _find_spec(session: TracingSession, name: str, package: str | None = None) -> Any:
    """Return where a module is, after an import of the packages that it is in; that it is there is a fact."""
    full = importlib.util.resolve_name(name, package) if name.startswith(".") else name
    loaded = len(sys.modules)
    try:
        spec = importlib.util.find_spec(full)
    finally:
        if len(sys.modules) != loaded:
            session.state(RanCode).note(session, f"importlib.util.find_spec({full!r})")
    if full in sys.modules:
        session.note(prims.check_same_object, _entry(session, full), sys.modules[full])
    else:
        query = functools.partial(_is_findable, full)
        session.note(prims.check_state, session.object_root(query, f"a module {full}"), spec is not None)
    path = session.object_root(spec, f"the place of {full}")
    return None if spec is None else session.adopt(spec, path)


def _is_findable(name: str) -> bool:
    """Return whether there is a module of this name to import."""
    try:
        return name in sys.modules or importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


@TABLE.with_parameters(builtins.__import__)
def _call_import(
    session: TracingSession,
    name: str,
    globals: dict[str, Any] | None = None,
    locals: Any = None,
    fromlist: tuple[str, ...] | None = (),
    level: int = 0,
) -> Any:
    namespace = session.machine.globals if globals is None else globals
    return imported(session, name, namespace, fromlist, level)


@TABLE.with_parameters(importlib.import_module)
def _importlib_import(session: TracingSession, name: str, package: str | None = None) -> Any:
    full = importlib.util.resolve_name(name, package) if name.startswith(".") else name
    return imported(session, full, {}, ("__name__",), 0)
