"""Guards: the facts of an acquisition as one straight-line function.

The function states each fact's failure and returns None at the first that fails; what failed is found out
afterwards, by walking the facts one by one (:func:`first_failure`), so that a call that hits pays for nothing
but the questions.

    def prologue(args, kwargs):          facts
      if len(args) != 1: return None     len of args is 1
      x = args[0]
      d = self.__dict__
      if d['_forward_hooks'] …           no hook on self
      p = d['_parameters']
      w = p['weight']
      if not check_tensors(x, w): …      metadata of x and w, in one batched call
      return (x, w), ()
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from thunder.base.provenance import object_root
from thunder.frontend import ambient_state
from thunder.frontend.epilogue.statements import statement
from thunder.frontend.facts import Fact
from thunder.frontend.guard_writer import HANDLER, HELPERS, SIZE_CHECKS, GuardWriter, size_checks
from thunder.frontend.prologue_statements import Interface, structured
from thunder.ir.size_facts import SizeFacts
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx, TraceProvenance, from_trace, with_bound_symbols
from thunder.ops import prims

#: the exceptions that fetching a path raises where a part of it is gone
LOST = (KeyError, AttributeError, IndexError, TypeError, ValueError, ZeroDivisionError)

#: what the user guarantees not to change: nothing, all that does not come with the arguments, or everything
Trusted = Literal["nothing", "structure", "everything"]


class Prologue(TraceCtx):
    """A prologue that runs: its text is written from the facts at once, its statements when they are read.

    The statements are those that hooks see (``thunder.frontend.prologue_statements``); the text has the same
    checks, written for speed. See ``docs/design/prologue.md``.
    """

    def __init__(self, interface: Interface, lines: BoundSymbol) -> None:
        super().__init__(name="prologue")
        self.star_args = True
        self._lines = lines
        self.interface = interface
        self._has_statements = False
        self._sizes = interface.sizes
        self.set_provenance(TraceProvenance("Guard grouping"))

    def structure(self) -> TraceCtx:
        """Return the statements, as a trace of its own that hooks may change."""
        return with_bound_symbols(self, self.bound_symbols, "Acquisition")

    @property
    def running_symbols(self) -> list[BoundSymbol]:
        """The lines of Python that the statements are lowered to."""
        return [self._lines if self._sizes is None else _with_size_checks(self._lines, self._sizes)]

    @property
    def bound_symbols(self) -> list[BoundSymbol]:
        """The statements: unpackings, checks, and the return."""
        if not self._has_statements:
            trace = structured(self.interface)
            self.scopes[0], self.names, self._has_statements = trace.bound_symbols, trace.names, True
        return self.scopes[0]

    @bound_symbols.setter
    def bound_symbols(self, bsyms: list[BoundSymbol]) -> None:
        self.scopes[0] = bsyms


def _with_size_checks(lines: BoundSymbol, sizes: SizeFacts) -> BoundSymbol:
    """Return the text of a prologue with the checks of the facts about sizes that there are now."""
    text, *rest = lines.args
    checks = [f"  {line}" for line in size_checks(sizes)]
    written = [c for line in text for c in (checks if line.strip() == SIZE_CHECKS else (line,))]
    return lines.from_bsym(args=(tuple(written), *rest))


def prologue_trace(
    interface: Interface,
    roots: dict[str, Any],
    trusted: Trusted = "nothing",
    objects: Mapping[int, Any] | None = None,
) -> Prologue:
    """Return the prologue: ``(args, kwargs)`` → inputs of computation and epilogue, or None.

    It is written while the ambient state is the one to be guarded. With ``objects``, by id of the path, it
    is for one call: these objects are constants, and only tensors are checked.
    """
    facts = () if trusted == "everything" else interface.facts
    writer = GuardWriter(facts, interface.inputs, interface.reached)
    if objects is not None:
        writer.keep_for_one_call(objects)
    elif trusted != "everything":
        writer.guard_ambient_state()
    if trusted != "nothing":
        writer.freeze(roots)
    lines = writer.write(roots)
    return Prologue(interface, statement(*lines, **(HELPERS | writer.objects)))


def unchanged_check(facts: Sequence[Fact]) -> Callable[[], Any]:
    """Return a function that returns None if one of the facts, which need no arguments, does not hold."""
    writer = GuardWriter(facts, (), ())
    lines = writer.write({})
    check = TraceCtx(name="unchanged")
    check.plain = True
    check.bound_symbols.append(statement(*lines, **(HELPERS | writer.objects)))
    return check.python_callable()


def ambient_fact() -> Fact:
    """Return the fact about torch's ambient state, for recompile reasons."""
    read_state = ambient_state.full_ambient_state
    return Fact(prims.check_state, (object_root("torch's ambient state", read_state), read_state()))


def prologue_error(prologue: TraceCtx, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Exception | None:
    """Return the exception on which a prologue returned None; None if a check just failed.

    The generated text handles it; here the text runs without its handler.
    """
    unhandled = from_trace(prologue)
    for bsym in prologue.running_symbols:
        lines, *rest = bsym.args
        if isinstance(lines, tuple) and lines[-2:] == HANDLER:
            bsym = bsym.from_bsym(args=(tuple(line[2:] for line in lines[1:-2]), *rest))
        unhandled.bound_symbols.append(bsym)
    try:
        unhandled.python_callable()(*args, **kwargs)
    except Exception as error:
        return error
    return None


def first_failure(
    facts: Sequence[Fact], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Fact, Any] | None:
    """Return the first fact that does not hold of a call, and the value there, or None."""
    return next(failures(facts, args, kwargs), None)


def failures(
    facts: Iterable[Fact], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[tuple[Fact, Any]]:
    """Yield the facts that do not hold of a call, and the values there."""
    roots = {"args": args, "kwargs": kwargs}
    for fact in facts:
        try:
            failure = fact.failure(roots)
        except LOST as error:
            failure = (error,)
        if failure is not None:
            yield fact, failure[0]
