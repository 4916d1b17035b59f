"""Which sizes and strides of a call's tensors are symbols, and the wishes that some stay free.

Under ``cache="symbolic values"`` all sizes are that may be; else those which the user asked for, and in the
automatic mode those that have varied.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch

from thunder.base.errors import InvalidArgument, ThunderError, UnsupportedProgram, did_you_mean
from thunder.base.provenance import Path, comes_with_arguments
from thunder.base.size_wishes import SizeWish, dimension, marks_of
from thunder.frontend.decisions.computed_sizes import ComputedPlaces
from thunder.frontend.free_sizes import size_source, stride_source
from thunder.frontend.objects.unmodelled_tensors import is_modelled
from thunder.frontend.value_names import is_state, parameter_names
from thunder.ir.size_facts import SizeFacts
from thunder.ir.symbolic_sizes import SymbolicInt

__all__ = ["LikelySizes", "SizeChoice", "check_argument_names", "is_free_float", "why_sizes_are_numbers"]

#: the steps of paths that lead to parts of an argument
_OF_PARTS: Final = frozenset({"index", "key", "content", "attribute", "instance", "slot"})


@dataclass(frozen=True)
class LikelySizes:
    """The sizes that probably vary, of tensors that no entry knows (Note [Sizes that vary])."""

    #: the numbers that sizes which vary have been
    lengths: frozenset[int] = frozenset()
    #: the sources of the tensors that entries know
    known: frozenset[str] = frozenset()
    #: the sources of sizes that the program needs
    needed: frozenset[str] = frozenset()

    def of(self, t: torch.Tensor, path: Path) -> frozenset[int]:
        """Return the dimensions of a tensor whose sizes probably vary."""
        if not self.lengths or path.source in self.known:
            return frozenset()
        likely = (d for d, n in enumerate(t.shape) if n in self.lengths)
        return frozenset(d for d in likely if size_source(path, d) not in self.needed)

    def steps_of(self, t: torch.Tensor, path: Path) -> frozenset[int]:
        """Return the dimensions of a tensor whose strides probably vary if no sizes determine them."""
        if not self.lengths or path.source in self.known:
            return frozenset()
        return frozenset(d for d in range(t.dim()) if stride_source(path, d) not in self.needed)


class SizeChoice:
    """The choice of one compile.

    Args:
        fn: the program, whose parameters the option names.
        everything: whether all sizes are free that may be.
        varying: the sources of sizes that are free.
        likely: which other sizes probably vary; they are free too.
        wishes: those of the option ``dynamic_sizes``, by the name of an argument and the dimension.
        refusal: why no size of this compile can be free, or None.
        computed: the places of the program whose sizes the computation finds.
        takes_numbers: whether numbers of the arguments may be symbols.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        everything: bool = False,
        varying: frozenset[str] = frozenset(),
        likely: LikelySizes | None = None,
        wishes: Mapping[str, Mapping[int, SizeWish]] | None = None,
        refusal: str | None = None,
        computed: ComputedPlaces | None = None,
        takes_numbers: bool = True,
    ) -> None:
        #: whether numbers of the arguments may be symbols
        self.takes_numbers = takes_numbers
        #: the places of the program whose sizes the computation finds
        self.computed = ComputedPlaces() if computed is None or refusal is not None else computed
        self._everything, self._varying, self._wishes = everything, varying, wishes or {}
        self._likely = LikelySizes() if likely is None else likely
        #: the sources of the likely sizes of the last acquisition
        self.chosen_likely: frozenset[str] = frozenset()
        self._parameters = parameter_names(fn) if self._wishes else []
        self._refusal = refusal
        #: whether a tensor of the call has a wish
        self.has_wishes = False
        #: the error for a wish that cannot be kept
        self.error: ThunderError | None = None
        #: the wishes for symbols, by their numbers, of the last acquisition
        self._kept: dict[int, SizeWish] = {}
        self._facts = SizeFacts()

    @property
    def has_symbols(self) -> bool:
        """Whether a size or a number of the last acquisition was a symbol."""
        return bool(self._facts.hints)

    @property
    def has_numbers(self) -> bool:
        """Whether a number of the arguments was a symbol in the last acquisition."""
        facts = self._facts
        return any(not (facts.is_size(v) or v in facts.computed) for v in range(len(facts.hints)))

    @property
    def found_places(self) -> frozenset[str]:
        """The places where the computation of the last acquisition finds sizes."""
        return frozenset(self._facts.sources[v] for v in self._facts.computed)

    def begin(self) -> SizeFacts:
        """Return what is known of the sizes of a new acquisition."""
        self._kept, self._facts, self.chosen_likely = {}, SizeFacts(), frozenset()
        return self._facts

    def dimensions(self, t: torch.Tensor, path: Path) -> Mapping[int, SizeWish | None]:
        """Return the dimensions of an input whose sizes are symbols, each with the wish for it.

        Raises UnsupportedProgram for a wish that cannot be kept, InvalidArgument for one that does not fit.
        """
        try:
            wishes = self._wishes_for(t, path)
            reason = self._refusal or why_sizes_are_numbers(t, path)
            if wishes and reason is not None:
                raise UnsupportedProgram(
                    f"{size_source(path, min(wishes))} was asked to stay free, and {reason}"
                )
        except ThunderError as error:
            self.error = error
            raise
        if reason is not None:
            return {}
        if self._everything:
            return {**dict.fromkeys(range(t.dim())), **wishes}
        if self._varying:
            likely = self._likely.of(t, path)
            self.chosen_likely |= {size_source(path, d) for d in likely}
            varying = {d for d in range(t.dim()) if size_source(path, d) in self._varying}
            return {**dict.fromkeys(sorted(varying | likely)), **wishes}
        return wishes

    def are_free(self, t: torch.Tensor, path: Path, free_sizes: Collection[str]) -> bool:
        """Return whether a program with these free sizes keeps the wishes for an input."""
        wishes = self.dimensions(t, path).items()
        return all(w is None or (size_source(path, d) in free_sizes and t.shape[d] in w) for d, w in wishes)

    def steps(self, t: torch.Tensor, path: Path) -> frozenset[int]:
        """Return the dimensions of an input whose strides are symbols unless sizes determine them."""
        if not (self._everything or self._varying) or self._refusal or why_sizes_are_numbers(t, path):
            return frozenset()
        dimensions = range(t.dim())
        if self._everything:
            return frozenset(dimensions)
        likely = self._likely.steps_of(t, path)
        self.chosen_likely |= {stride_source(path, d) for d in likely}
        return likely.union(d for d in dimensions if stride_source(path, d) in self._varying)

    def has_free_sizes(self, t: torch.Tensor, path: Path) -> bool:
        """Return whether sizes or strides of an input may be symbols."""
        return self._refusal is None and why_sizes_are_numbers(t, path) is None

    def is_symbol(self, number: object, path: Path) -> bool:
        """Return whether a number of a call is a symbol; a length is by the source of its list.

        A float is none that is 0, of which there are two, or not finite: facts compare floats by ``==``.
        """
        if not self.takes_numbers or not (type(number) is int or is_free_float(number)):
            return False
        source = path.parent.source if path.kind == "length" and path.parent is not None else path.source
        if self._varying and source in self._varying:
            return True
        is_wanted = self._everything and self._refusal is None
        return is_wanted and path.kind in _OF_PARTS and comes_with_arguments(path)

    def keep(self, size: SymbolicInt, wish: SizeWish) -> None:
        """Bound a symbol by a wish, which :meth:`check` checks in the end."""
        assert size.variable is not None, "a wish is for the size of an input"
        if size.hint not in wish:
            self.error = InvalidArgument(
                f"{size.facts.sources[size.variable]} is {size.hint}, and was asked to be {wish}",
                hint="Widen the bounds of dynamic_sizes.",
            )
            raise self.error
        self._kept[size.variable] = wish
        size.facts.bound(size.variable, wish.low, wish.high, "the bounds of the wish")

    def check(self, facts: SizeFacts) -> None:
        """Raise UnsupportedProgram if the facts fix a size that was asked to stay free."""
        for variable in self._kept:
            fact = facts.fixed_by(variable)
            if fact is not None:
                value = facts.hints[variable]
                self.error = UnsupportedProgram(
                    f"{facts.sources[variable]} was asked to stay free, and the program fixes it to {value}",
                    found={"fixed at": fact.origin or _NO_LINE},
                    hint="Write it without the number, choose other executors, or leave the wish out.",
                )
                raise self.error

    def why_fixed(self, facts: SizeFacts) -> UnsupportedProgram | None:
        """Return where the program needs the value of a size that is an input, or None if it needs none."""
        for variable, source in enumerate(facts.sources):
            fact = None if variable in facts.computed else facts.fixed_by(variable)
            if fact is not None:
                return UnsupportedProgram(
                    f"the program needs the value of {source}, {facts.hints[variable]}",
                    found={"fixed at": fact.origin or _NO_LINE},
                )
        return None

    def refused(self, failure: Exception) -> UnsupportedProgram:
        """Return the error for wishes where the program can be compiled for the sizes of its call alone."""
        error = UnsupportedProgram(
            "sizes were asked to stay free, and the program can be compiled for those of the call alone",
            found={"because": f"{type(failure).__name__}: {failure}"},
            hint="Change the program, or leave the wish out.",
        )
        error.__cause__ = failure
        return error

    def _wishes_for(self, t: torch.Tensor, path: Path) -> dict[int, SizeWish]:
        wishes = {**self._by_name(t, path), **marks_of(t)}
        self.has_wishes |= bool(wishes)
        return wishes

    def _by_name(self, t: torch.Tensor, path: Path) -> dict[int, SizeWish]:
        if not self._wishes or not comes_with_arguments(path):
            return {}
        name = _argument_name(path, self._parameters)
        wishes = self._wishes.get(name, {})
        return {dimension(d, t.dim(), f"dynamic_sizes[{name!r}]"): wish for d, wish in wishes.items()}


#: where a fact is from that a stage or an executor has asked for
_NO_LINE: Final = "no line of the program: an executor needs the number"


def is_free_float(number: object) -> bool:
    """Return whether a number of a call is a float that may be a symbol."""
    return type(number) is float and math.isfinite(number) and number != 0


def why_sizes_are_numbers(t: Any, path: Path) -> str | None:
    """Return why the sizes of an input cannot be symbols, or None if they can."""
    if is_state(path) or type(t) is torch.nn.Parameter:
        return "the sizes of parameters and buffers are numbers"
    if not comes_with_arguments(path):
        return "the sizes of tensors that do not come with the arguments are numbers"
    if not is_modelled(t):
        return "the sizes of tensors whose class or layout computes are numbers"
    if path.kind == "plain":
        return "the sizes of tensors whose class overrides torch's functions are numbers"
    if path.kind in ("array", "called"):
        return "the sizes of NumPy's arrays, and of tensors that a package makes of its objects, are numbers"
    return None


def _argument_name(path: Path, parameters: list[str]) -> str:
    """Return the source of a path with the name of the argument, ``batch['ids']``."""
    steps = [path]
    while steps[-1].parent is not None:
        steps.append(steps[-1].parent)
    if len(steps) == 1:
        return path.source
    argument, keys = steps[-2], path.keys
    name = keys[1]
    if keys[0] == "args" and isinstance(name, int) and name < len(parameters):
        name = parameters[name]
    return f"{name}{path.source.removeprefix(argument.source)}" if isinstance(name, str) else path.source


def check_argument_names(fn: Callable[..., Any], names: Mapping[str, Any]) -> None:
    """Raise InvalidArgument for a name of ``dynamic_sizes`` that is not that of a parameter."""
    try:
        signature = inspect.signature(fn.forward if isinstance(fn, torch.nn.Module) else fn)
    except (TypeError, ValueError):
        return
    kinds = {p.kind for p in signature.parameters.values()}
    if inspect.Parameter.VAR_KEYWORD in kinds:
        return
    known = {*signature.parameters, *(("args",) if inspect.Parameter.VAR_POSITIONAL in kinds else ())}
    for name in names:
        first = name.replace("[", ".").partition(".")[0]
        if first not in known:
            raise InvalidArgument(
                f"dynamic_sizes names {name!r}, which is not an argument.{did_you_mean(first, known)}",
                found={"arguments": ", ".join(signature.parameters)},
            )
