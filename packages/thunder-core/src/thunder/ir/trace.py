"""The trace: a straight-line program of bound symbols, with a supply of names.

One trace is *current* at a time (per context): calling a symbol records into its innermost scope.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from thunder.base.errors import InvalidArgument, Location, TraceError
from thunder.base.generated_source import compile_text
from thunder.base.structural_ids import RETURN
from thunder.base.tags import OpenTag
from thunder.ir.codegen import Program, program
from thunder.ir.dotted_paths import bind_paths
from thunder.ir.execution_file import text_to_run
from thunder.ir.object_names import RESERVED_NAMES, numbered
from thunder.ir.recorder import PLAIN
from thunder.ir.trace_context import get_tracectx, is_tracing, reset_tracectx, set_tracectx, tracectx

if TYPE_CHECKING:
    from thunder.ir.aliasing import InputAlias
    from thunder.ir.symbol import BoundSymbol


__all__ = [
    "AGAIN",
    "RESERVED_NAMES",
    "Source",
    "TraceCtx",
    "TraceProvenance",
    "TraceTag",
    "detached_trace",
    "from_trace",
    "get_tracectx",
    "is_tracing",
    "reset_tracectx",
    "set_tracectx",
    "tracectx",
    "with_bound_symbols",
]

#: before the name of a value that a backward computes again
AGAIN: Final = "bw_"


class TraceTag(OpenTag):
    """A property of a trace; :meth:`register_tag` adds one."""


TraceTag.register_tag("AUGMENTED_FORWARD")
TraceTag.register_tag("BACKWARD")


@dataclass(frozen=True)
class TraceProvenance:
    """The pass that returned a trace, and its duration in nanoseconds.

    ``pss`` ("pass string") is the name of the pass, as the first line of the text prints it.
    """

    pss: str
    took_ns: int | None = None


@dataclass(slots=True, unsafe_hash=True)  # not frozen: each operator of a program has one or two
class Source:
    """A line of the user's program, never changed."""

    file: str
    line: int
    #: the line of torch or of another library that it led to, as a call of an `nn.Linear` does
    inner: Source | None = field(default=None, compare=False)
    #: the name of the module whose method runs there ("layers.3.attention"), or ""
    module: str = field(default="", compare=False)
    #: the text of the line, of a trace that was loaded where the file is another one or missing
    text: str | None = field(default=None, compare=False)

    @property
    def location(self) -> Location:
        """The line with its text, as errors show it."""
        if self.text is not None:
            return Location(self.file, self.line, self.text.strip())
        return Location.of(self.file, self.line)


class TraceCtx:
    """A straight-line program: arguments, and bound symbols of which the last one returns.

    ``fn`` is the Python function that it represents, if any. Names of proxies are unique within a trace.
    """

    def __init__(
        self,
        fn: Callable[..., Any] | None = None,
        *,
        args: Iterable[Any] = (),
        kwargs: dict[str, Any] | None = None,
        tags: Iterable[TraceTag] = (),
        name: str = "computation",
    ) -> None:
        self.fn = fn
        self.args: list[Any] = list(args)
        self.kwargs: dict[str, Any] = dict(kwargs or {})
        self.tags: set[TraceTag] = set(tags)
        self.name = name
        #: :attr:`scopes`, for those that only record
        self.open_scopes: list[list[BoundSymbol]] = [[]]
        #: how often somebody has looked at what is recorded
        self.looks = 0
        #: whether the program runs under the caller's grad mode, and not under ``torch.no_grad``
        self.grad_enabled = False
        #: whether the signature is ``(*args, **kwargs)``: a prologue
        self.star_args = False
        #: whether the function runs without decorators: it computes nothing
        self.plain = False
        #: groups of inputs that overlap in memory (see ``thunder.ir.aliasing.InputAlias``)
        self.input_aliases: tuple[tuple[InputAlias, ...], ...] = ()
        #: name of a value that a transform computes in place of an input → name of the input
        self.computed_inputs: Mapping[str, str] = {}
        #: of a prologue that a hook edits: dotted name of a tensor that a later transform has changed → the
        #: shape and dtype in which this transform reads it
        self.input_forms: Mapping[str, tuple[tuple[int, ...], Any]] = {}
        self.names: set[str] = set()
        self.provenance: TraceProvenance | None = None
        #: how calls are recorded now; :func:`tracectx` installs another one
        self.recorder = PLAIN
        self._counter = 0
        #: of what fresh names are made, see :meth:`naming_after`; and the next number for each such beginning
        self._beginning: str | None = None
        self._next_numbers: dict[str, int] = {}
        self._object_names: dict[int, tuple[str, Any]] = {}
        self._complete = False

    @property
    def scopes(self) -> list[list[BoundSymbol]]:
        """Where calls are recorded, innermost last; the first one is the program itself."""
        self.looks += 1
        return self.open_scopes

    @property
    def bound_symbols(self) -> list[BoundSymbol]:
        """The statements. The list may be edited in place, or another one assigned."""
        return self.scopes[0]

    @bound_symbols.setter
    def bound_symbols(self, bsyms: list[BoundSymbol]) -> None:
        self.scopes[0] = bsyms

    @property
    def running_symbols(self) -> list[BoundSymbol]:
        """The statements that the text has: those of the program, or what they are lowered to."""
        return self.bound_symbols

    @property
    def shows_lines(self) -> bool:
        """Whether the text has the user's lines; a backward's would be in reverse order."""
        return TraceTag.BACKWARD not in self.tags

    # -- names ---------------------------------------------------------------------------------------------

    def has_name(self, name: str) -> bool:
        """Return whether a proxy of this trace has the name."""
        return name in self.names

    def is_free(self, name: str) -> bool:
        """Return whether a proxy may take the name.

        No other proxy has it, and the text does not use it for something else.
        """
        return name not in self.names and name not in RESERVED_NAMES

    def add_name(self, name: str) -> str:
        """Take ``name``; raises TraceError if it is taken."""
        if name in self.names:
            raise TraceError(
                f"the name {name!r} is taken in this trace", hint="Leave the name out for a fresh one."
            )
        self.names.add(name)
        return name

    def make_name(self, name: str | None = None, *, prefix: str | None = None) -> str:
        """Take and return ``name``, or a fresh one: the prefix (``t``) and the next free number."""
        if name is not None:
            return self.add_name(name)
        if (beginning := self._beginning) is not None:
            n = self._next_numbers.get(beginning, 0)
            while not self.is_free(f"{beginning}{n}"):
                n += 1
            self._next_numbers[beginning] = n + 1
            return self.add_name(f"{beginning}{n}")
        while True:
            fresh = f"{prefix or 't'}{self._counter}"
            self._counter += 1
            if fresh not in self.names:
                self.names.add(fresh)
                return fresh

    @property
    def numbering(self) -> tuple[str, int] | None:
        """What the next fresh name consists of, if it is not taken; None outside of :meth:`naming_after`."""
        beginning = self._beginning
        return None if beginning is None else (beginning, self._next_numbers.get(beginning, 0))

    def make_names(self, count: int) -> list[str] | None:
        """Take and return the next fresh names of :attr:`numbering`; None, and take none, if one is taken."""
        assert self.numbering is not None, "fresh names are numbered after a value"
        beginning, start = self.numbering
        fresh = [f"{beginning}{n}" for n in range(start, start + count)]
        if not all(map(self.is_free, fresh)):
            return None
        self.names.update(fresh)
        self._next_numbers[beginning] = start + count
        return fresh

    def make_derived_name(self, name: str) -> str:
        """Take and return ``name`` if it is free, else ``name_0``, ``name_1`` …"""
        derived, n = name, 0
        while derived in self.names or derived in RESERVED_NAMES:
            derived, n = f"{name}_{n}", n + 1
        return self.add_name(derived)

    @contextmanager
    def naming_after(self, values: Iterable[Any], mark: str = "") -> Iterator[None]:
        """Within the context, fresh names are ``name_0``, ``name_1`` … of the first of ``values``, if any.

        So names of what is recorded for one call do not depend on what was recorded for others, and traces of
        a program for different executors can be compared by name. What only some executors record for it, or
        what is recorded for it in another pass, has a ``mark``: ``name_p0``, ``name_p1`` …
        """
        outer = self._beginning
        self._beginning = next((f"{p.name.removeprefix(AGAIN)}_{mark}" for p in values), outer)
        try:
            yield
        finally:
            self._beginning = outer

    def make_object_name(self, obj: Any) -> str:
        """Return the name of an object that has no literal form; one name per object."""
        entry = self._object_names.get(id(obj))
        if entry is None:
            name = numbered(type(obj).__name__, len(self._object_names))
            entry = self._object_names[id(obj)] = (name, obj)
        return entry[0]

    def object_names(self) -> dict[int, str]:
        """Return the names of the objects that :meth:`make_object_name` named, by ``id``."""
        return {key: name for key, (name, _) in self._object_names.items()}

    # -- recording -----------------------------------------------------------------------------------------

    def push_scope(self, scope: list[BoundSymbol]) -> None:
        """Record into ``scope`` until it is popped."""
        self.open_scopes.append(scope)

    def pop_scope(self) -> list[BoundSymbol]:
        """End and return the innermost scope. Raises TraceError for the base scope of the trace."""
        if len(self.open_scopes) == 1:
            raise TraceError("the base scope of a trace cannot be popped")
        return self.open_scopes.pop()

    @contextmanager
    def recording_into(self, scope: list[BoundSymbol]) -> Iterator[None]:
        """Within the context, bound symbols are recorded into ``scope``."""
        self.push_scope(scope)
        try:
            yield
        finally:
            self.pop_scope()

    def peek_scope(self) -> list[BoundSymbol]:
        """Return the innermost scope."""
        return self.scopes[-1]

    def record(self, bsym: BoundSymbol) -> None:
        """Append to the innermost scope. Raises TraceError if the trace is complete."""
        if self._complete:
            raise TraceError(f"{bsym.sym.name} was recorded into a trace that is complete")
        self.open_scopes[-1].append(bsym)

    def add_bound_symbol(self, bsym: BoundSymbol) -> None:
        """Append to the base scope."""
        self.open_scopes[0].append(bsym)

    def mark_complete(self) -> None:
        """Let further recording raise TraceError."""
        self._complete = True

    # -- reading -------------------------------------------------------------------------------------------

    @property
    def output(self) -> Any:
        """The argument of the return, a tuple if there are several; None without a return."""
        for bsym in reversed(self.bound_symbols):
            if bsym.sym.id == RETURN:
                return bsym.args[0] if len(bsym.args) == 1 else bsym.args
        return None

    def get_provenance(self) -> TraceProvenance | None:
        """Return the pass that returned this trace."""
        return self.provenance

    def set_provenance(self, provenance: TraceProvenance) -> None:
        """Set the pass that returned this trace, which the first line of the text prints."""
        self.provenance = provenance

    def python(
        self, print_depth: int = 1, include_decorators: bool = True, include_timing: bool = True
    ) -> str:
        """Return the text, with ``print_depth`` levels of bound symbols; -1 prints all."""
        return self.program(
            print_depth, include_decorators=include_decorators, include_timing=include_timing
        ).text

    def program(
        self, print_depth: int = 1, *, include_decorators: bool = True, include_timing: bool = True
    ) -> Program:
        """Return the text with its namespace."""
        return program(self, print_depth=print_depth, decorators=include_decorators, timing=include_timing)

    def python_ctx(self) -> dict[str, Any]:
        """Return every name of the text that its imports do not bind."""
        return self.program().context

    def python_callable(self, *, decorated: bool = True) -> Callable[..., Any]:
        """Return the compiled function.

        ``linecache`` has its text, so that tracebacks show lines of the trace.
        """
        text = self.program(include_decorators=decorated)
        code = compile_text(text_to_run(text.text), f"thunder.{self.name}", text.context)
        bind_paths(text.context, code, text.targets)
        # Removed from its own globals, the function is in no reference cycle.
        return text.context.pop(self.name)  # type: ignore[no-any-return]

    def save_trace(self, path: str | Path) -> None:
        """Write ``str(trace)`` to a file."""
        Path(path).write_text(str(self), encoding="utf-8")

    def __getstate__(self) -> NoReturn:
        """Raise InvalidArgument: the operators of a trace exist in their process."""
        raise InvalidArgument(
            "a trace cannot be pickled or copied: it refers to the operators and functions of this process",
            hint="save_trace(path) and str(trace) keep the text; from_trace(trace) makes a trace of the same "
            "program.",
        )

    def __str__(self) -> str:
        return self.python(print_depth=-1)

    __repr__ = __str__


def from_trace(trace: TraceCtx) -> TraceCtx:
    """Return a trace of the same program without its statements.

    Every fact is copied, and nothing mutable is shared. The bound symbols, the provenance, the recorder and
    the mark of completeness are not copied.
    """
    new = TraceCtx(trace.fn, args=trace.args, kwargs=trace.kwargs, tags=trace.tags, name=trace.name)
    new.grad_enabled, new.star_args, new.plain = trace.grad_enabled, trace.star_args, trace.plain
    new.input_aliases, new.computed_inputs = trace.input_aliases, trace.computed_inputs
    new.input_forms = trace.input_forms
    new.names = set(trace.names)
    new._counter, new._next_numbers = trace._counter, dict(trace._next_numbers)
    new._object_names = dict(trace._object_names)
    return new


@contextmanager
def detached_trace() -> Iterator[TraceCtx]:
    """Within the context, symbols record into a scratch trace."""
    trace = TraceCtx()
    with tracectx(trace):
        yield trace


def with_bound_symbols(
    trace: TraceCtx, bsyms: Iterable[BoundSymbol], pass_name: str, took_ns: int | None = None
) -> TraceCtx:
    """Return a copy of ``trace`` with other bound symbols; the usual end of a pass.

    ``pass_name`` and ``took_ns`` (nanoseconds) become its provenance.
    """
    new = from_trace(trace)
    new.bound_symbols.extend(bsyms)
    new.provenance = TraceProvenance(pass_name, took_ns)
    return new
