"""Names that public modules lack: what they resolve to, or which error says where to look.

A public module ends its attribute lookup in `missing_name`. A table (`declare_names`) has the names that
packages add; for any other name the error lists the public modules that have it, and the nearest name of the
module itself.
"""

from __future__ import annotations

import dis
import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import FrameType, ModuleType
from typing import Any, Final, TypeAlias

from thunder.base.errors import did_you_mean

__all__ = [
    "PUBLIC_MODULES",
    "Alias",
    "NamesOfModules",
    "Replaced",
    "declare_names",
    "declared_names",
    "declares_module",
    "missing_name",
    "module_reason",
    "name_reason",
    "publish",
    "where_it_is",
]

#: the modules whose names are suggested, in the order of preference
PUBLIC_MODULES: Final = (
    "thunder",
    "thunder.extend",
    "thunder.plugins",
    "thunder.core.transforms",
    "thunder.core.transform_common",
    "thunder.core.trace",
    "thunder.core.proxies",
    "thunder.core.symbol",
    "thunder.core.pytree",
    "thunder.core.utils",
    "thunder.core.rewrite",
    "thunder.core.analysis",
    "thunder.core.vjp_utils",
    "thunder.core.langctxs",
    "thunder.core.compile_data",
    "thunder.core.module",
    "thunder.core.interpreter",
    "thunder.core.options",
    "thunder.core.errors",
    "thunder.core.devices",
    "thunder.core.dtypes",
    "thunder.core.verify",
    "thunder.core.tags",
    "thunder.core.prims",
    "thunder.executors.passes",
    "thunder.examine",
    "thunder.torch",
)


@dataclass(frozen=True)
class Alias:
    """A name that is another name of an object: `target` is its `"module:attribute"`.

    `differs` says in what the object differs from the one of that name elsewhere, if it does.
    """

    target: str
    differs: str = ""

    def resolve(self) -> Any:
        """Import and return the object."""
        module, _, attribute = self.target.partition(":")
        loaded = importlib.import_module(module)
        return getattr(loaded, attribute) if attribute else loaded


@dataclass(frozen=True)
class Replaced:
    """A name that does not exist here; `advice` is a sentence that says what to write."""

    advice: str


#: module, or `"module:class"` → its names, or what replaces it
NamesOfModules: TypeAlias = Mapping[str, Mapping[str, Alias | Replaced] | Replaced]

#: the functions that return tables; each is called when a name is looked for
_tables: list[Callable[[], NamesOfModules]] = []


def declare_names(table: Callable[[], NamesOfModules]) -> None:
    """Enter the function that returns a table; it is called when a name is missing, and not before."""
    _tables.append(table)


def _declared(path: str) -> Mapping[str, Alias | Replaced] | Replaced | None:
    return next((table[path] for make in _tables if path in (table := make())), None)


def declares_module(path: str) -> bool:
    """Return whether a module has declared names: it exists, though no file defines it."""
    return ":" not in path and isinstance(_declared(path), Mapping)


def declared_names(path: str) -> Mapping[str, Alias | Replaced]:
    """Return the declared names of a module, or of a class, whose path is `"module:class"`."""
    names = _declared(path)
    return names if isinstance(names, Mapping) else {}


def module_reason(path: str) -> str | None:
    """Return the sentence that says what replaces a module, or None for a path that is not declared."""
    absent = _declared(path)
    return f"there is no module {path!r} here: {absent.advice}" if isinstance(absent, Replaced) else None


def missing_name(path: str, name: str, absent_text: Callable[[str], str] | None = None) -> Any:
    """Return the declared meaning of an attribute that the public module `path` lacks.

    For any other name it raises AttributeError, or ImportError within `from path import name`, whose own
    error would not have the text: the public modules that have the name, or what `absent_text` returns for
    its dotted path.
    """
    if name.startswith("__"):  # looked up by Python's own tools
        raise AttributeError(f"module {path!r} has no attribute {name!r}", name=name)
    declared = declared_names(path).get(name)
    if isinstance(declared, Alias):
        return declared.resolve()
    if declares_module(f"{path}.{name}"):
        return Alias(f"{path}.{name}").resolve()
    text = name_reason(path, name)
    if text is None and absent_text is not None:
        text = absent_text(f"{path}.{name}")
    if text is None:
        text = f"module {path!r} has no attribute {name!r}.{where_it_is(path, name)}"
    if _is_import(sys._getframe(1)):
        raise ImportError(f"cannot import name {name!r} from {path!r}: {text}", name=path)
    raise AttributeError(text, name=name)


_IMPORT_FROM: Final = dis.opmap["IMPORT_FROM"]


def _is_import(frame: FrameType | None) -> bool:
    """Return whether the frame that read the attribute is at an instruction of `from … import`."""
    while frame is not None and frame.f_code.co_name in ("__getattr__", "missing_attribute", "submodule"):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_code[frame.f_lasti] == _IMPORT_FROM


def name_reason(path: str, name: str) -> str | None:
    """Return the sentence that says what replaces a name or module, or None if it is not declared."""
    declared = declared_names(path).get(name)
    if isinstance(declared, Replaced):
        return f"{path} has no {name!r}: {declared.advice}"
    return module_reason(f"{path}.{name}")


def where_it_is(path: str, name: str) -> str:
    """Return a sentence that names the public modules that have a name, or the nearest name; else nothing."""
    if name.startswith("_"):
        return ""
    places = [f"{module}.{name}" for module in PUBLIC_MODULES if module != path and _has(module, name)]
    if places:
        return f" There is {' and '.join(places[:2])}."
    module = sys.modules.get(path)
    return did_you_mean(name, _public(module)) if module is not None else ""


def _has(path: str, name: str) -> bool:
    return name in _public(importlib.import_module(path))


def _public(module: ModuleType) -> list[str]:
    """Return the public names of a module: its `__all__`, and what its own `__dir__` lists."""
    names = list(getattr(module, "__all__", ()))
    if not names or "__dir__" in vars(module):
        names += [name for name in dir(module) if not name.startswith("_") and _is_own(module, name)]
    return names


def _is_own(module: ModuleType, name: str) -> bool:
    """Return whether a name of a module is not merely imported there from outside thunder."""
    value = vars(module).get(name)
    home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return not isinstance(home, str) or home.partition(".")[0] == "thunder"


def publish(path: str, module: ModuleType, **more: Any) -> None:
    """Make a module importable under a public path as well, and end its attribute lookup here.

    ``more`` are names that it gets from modules which import it.
    """
    sys.modules[path] = module
    for name, value in more.items():
        setattr(module, name, value)
    if "__getattr__" not in vars(module):
        module.__getattr__ = partial(missing_name, path)  # type: ignore[method-assign]
