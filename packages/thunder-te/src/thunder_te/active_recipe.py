"""`autocast`: the recipe with which linear layers are computed around a call."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from thunder.core.errors import InvalidArgument, UnsupportedProgram
from thunder.core.interpreter import is_jitting

from .recipes import Float8CurrentScaling, Recipe, UnsupportedRecipe, as_recipe

__all__ = ["DEFAULT", "Active", "active", "autocast", "guarded_state"]

#: the recipe where none is chosen; it needs no state, and suits each device that computes in FP8
DEFAULT: Final = Float8CurrentScaling()
#: the module of Transformer Engine that has the state of its own `autocast`
_LIBRARY_STATE = "transformer_engine.pytorch.quantization"


@dataclass(frozen=True)
class Active:
    """The recipe in force, None where FP8 is switched off, and the group that amaxes are reduced over."""

    recipe: Recipe | None = DEFAULT
    group: Any = None


_OUTSIDE: Final = Active()
_active: ContextVar[Active] = ContextVar("thunder_te_autocast", default=_OUTSIDE)


@contextmanager
def autocast(enabled: bool = True, *, recipe: Any = None, amax_reduction_group: Any = None) -> Iterator[None]:
    """Within the context, calls of compiled programs use this recipe, as `te.autocast` chooses it.

    Args:
        enabled: False switches FP8 off.
        recipe: of this package or of Transformer Engine; `Float8CurrentScaling()` if None.
        amax_reduction_group: the process group over which delayed scaling takes its maxima.

    The context is around the call of a compiled program. Raises UnsupportedProgram within a compiled
    program.
    """
    if is_jitting():
        raise UnsupportedProgram(
            "a compiled program opens autocast of thunder_te",
            hint="Write `with autocast(recipe=…):` around the call of the compiled program.",
        )
    chosen = None if not enabled else DEFAULT if recipe is None else as_recipe(recipe)
    token = _active.set(Active(chosen, amax_reduction_group))
    try:
        yield
    finally:
        _active.reset(token)


def active() -> Active:
    """Return the recipe in force: that of `autocast` here, else of Transformer Engine's, else the default."""
    current = _active.get()
    if current is _OUTSIDE and _LIBRARY_STATE in sys.modules:
        return _of_library(sys.modules[_LIBRARY_STATE]) or current
    return current


def _of_library(module: Any) -> Active | None:
    """Return what Transformer Engine's own `autocast` says, or None outside of it."""
    manager = module.FP8GlobalStateManager
    if not manager.is_fp8_enabled():
        return None
    try:
        recipe = as_recipe(manager.get_fp8_recipe())
    except InvalidArgument as error:
        recipe = UnsupportedRecipe(reason=str(error).splitlines()[0])
    return Active(recipe, manager.get_fp8_group())


_DEFAULT_STATE: Final[Mapping[str, Hashable]] = {"thunder_te.autocast": _OUTSIDE}


def guarded_state() -> Mapping[str, Hashable]:
    """Return the state on which programs depend; cheap, since it is read at each call."""
    current = active()
    return _DEFAULT_STATE if current is _OUTSIDE else {"thunder_te.autocast": current}
