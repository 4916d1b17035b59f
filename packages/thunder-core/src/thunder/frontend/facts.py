"""Facts: what a program read and its trace depends on, for guards and recompile reasons.

A fact is a call of a check (``thunder.ops.prims.prologue_checks``) whose values are paths. The statement of
a prologue has variables in their places, and is a bound symbol.

    fact          check_len(args[0].layers, 2)        a path and a constant
    statement     v3 = unpack_own_attr(v2, 'layers')
                  check_len(v3, 2)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from thunder.base.provenance import ABSENT, Path
from thunder.frontend.free_sizes import FreeSizes
from thunder.ops import prims
from thunder.ops.prims import Check


@dataclass(frozen=True)
class TensorFacts:
    """The metadata of a tensor that a trace was made for."""

    type: type
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    dispatch_keys: str
    #: the sizes that may differ from call to call
    free: FreeSizes | None = None

    @classmethod
    def of(
        cls, t: torch.Tensor, device: torch.device | None = None, free: FreeSizes | None = None
    ) -> TensorFacts:
        """Return the facts of a real tensor, as if it were on ``device``, if one is given."""
        strides = t.stride() if t.layout is torch.strided else None
        keys = str(torch._C._dispatch_keys(t))
        return cls(type(t), tuple(t.shape), strides, t.dtype, device or t.device, t.requires_grad, keys, free)

    @property
    def metadata(self) -> tuple[Any, ...]:
        """The metadata that the statement of the check has as arguments."""
        shape = self.shape if self.free is None else self.free.shape
        return shape, str(self.device), self.dtype, self.requires_grad

    def as_check(self, name: str) -> str:
        """Return the check in one line, for the text of a prologue."""
        shape, *rest = self.metadata
        return f"check_tensor_shape_and_metadata({name}, {_text_of(shape)}, {', '.join(map(repr, rest))})"

    def strides_for(self, t: torch.Tensor) -> tuple[int, ...] | None:
        """Return the strides (elements) that a tensor must have with its sizes."""
        return self.strides if self.free is None else self.free.strides_for(t.shape, t.stride())

    def describe(self, t: Any) -> str | None:
        """Return the first fact that does not hold of ``t``, in words; None if all hold."""
        found_type: Any = type(t)
        if found_type is not self.type:
            return f"type {found_type.__name__}"
        if t.layout is not torch.strided or t.is_nested:  # it may have no strides, and no sizes
            return "a nested tensor" if t.is_nested else f"layout {t.layout}"
        for name in ("shape", "dtype", "device", "requires_grad"):
            value = tuple(t.shape) if name == "shape" else getattr(t, name)
            if name == "shape" and self.free is not None and self.free.matches(value):
                continue
            if value != getattr(self, name):
                return f"{name} {value}"
        strides = self.strides_for(t)
        if strides is not None and t.stride() != strides:
            return f"strides {t.stride()}"
        if str(torch._C._dispatch_keys(t)) != self.dispatch_keys:
            return "dispatch keys (inference tensor, conjugate view, …)"
        return None


def _text_of(shape: Sequence[Any]) -> str:
    return f"({', '.join(str(getattr(n, 'name', n)) for n in shape)}{',' if len(shape) == 1 else ''})"


@dataclass(eq=False, slots=True)  # not frozen, as a path
class Fact:
    """A condition that a trace depends on, never changed: a check holds of its values, which are at paths.

    It is a bound symbol without the variables: ``args`` are a path, and further paths and constants.
    """

    sym: Check
    args: tuple[Any, ...]
    #: what distinguishes it from other facts of one check about one path
    key: Any = None

    @property
    def path(self) -> Path:
        """The path of the value that is checked."""
        path: Path = self.args[0]
        return path

    @property
    def others(self) -> tuple[Path, ...]:
        """The paths of further values, of a fact about several."""
        return tuple([a for a in self.args[1:] if type(a) is Path])

    @property
    def is_relation(self) -> bool:
        """Whether it holds or not, and there is nothing to compare the value with."""
        return self.sym.relation or (len(self.args) > 1 and type(self.args[1]) is Path)

    @property
    def expected(self) -> Any:
        """What the value is compared with; of a relation it is True."""
        return True if self.is_relation else self.args[1] if len(self.args) > 1 else None

    def failure(self, roots: dict[str, Any]) -> tuple[Any] | None:
        """Return what there is instead, in a tuple of one; None if the fact holds."""
        value, rest = self.args[0].fetch(roots), self.args[1:]
        if value is ABSENT:
            return None if rest and rest[0] is ABSENT else (ABSENT,)
        if len(rest) > 1 or (rest and type(rest[0]) is Path):
            rest = tuple([a.fetch(roots) if type(a) is Path else a for a in rest])
            if any([other is ABSENT for other in rest]):
                return (ABSENT,)
        if self.sym.holds(value, *rest):
            return None
        return (False,) if self.is_relation else (self.sym.found(value, *rest),)

    def __str__(self) -> str:
        return self.sym.describe(self.args)


def expected_text(fact: Fact) -> Any:
    """Return what is expected, for a message: of an object that is held weakly, a description.

    Of a fact about sizes, it is the relation, with the line of the program that asked for it.
    """
    if fact.sym is prims.check_sizes:
        origin = fact.expected.fact.origin
        return f"{fact.expected}, asked at {' '.join(origin.split())}" if origin else str(fact.expected)
    if fact.sym is not prims.check_referent:
        return fact.expected
    expected = fact.expected()
    return "an object that is gone" if expected is None else repr(expected).partition("\n")[0]
