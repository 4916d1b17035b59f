"""Exceptions and warnings of thunder.

A message has four parts: what was asked, where in the user's program, what was found, what to do::

    UnsupportedProgram: torch.linalg.qr is not an operator thunder knows
      at  model.py:41   q, r = torch.linalg.qr(x)
      x:  "cpu f32[64, 64]"
    Register it (thunder.extend.OperatorExecutor.register_operator) or mark the call opaque.

One class per cause. Each class also derives from the exception that the same mistake raises in Python or
PyTorch, so that an `except TypeError` around user code keeps working. This module imports only the standard
library.
"""

from __future__ import annotations

import difflib
import linecache
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Self

__all__ = [
    "DataDependentControlFlow",
    "DecisionChanged",
    "ExecutorUnavailable",
    "GuardFailed",
    "IncompatiblePackage",
    "InternalError",
    "InvalidArgument",
    "Location",
    "MissingGradient",
    "NeverCalled",
    "NoDataParallelism",
    "NoExecutor",
    "NotCompiled",
    "NotInitialized",
    "OperatorError",
    "OutsideTrace",
    "PluginError",
    "PluginNotInstalledError",
    "PluginTraceError",
    "PluginWarning",
    "RaisedByProgram",
    "RecompileError",
    "RecompileWarning",
    "RegistrationError",
    "RequirementNotMet",
    "SameInputViolation",
    "SharpEdge",
    "SharpEdgeWarning",
    "StateChanged",
    "ThunderError",
    "ThunderWarning",
    "TraceError",
    "TraceTextError",
    "UnknownExecutor",
    "UnknownOption",
    "UnsupportedOperator",
    "UnsupportedProgram",
    "UserError",
    "did_you_mean",
    "nearest",
    "without_frames",
]


class Location(NamedTuple):
    """A line of the user's program."""

    file: str
    line: int
    text: str = ""

    @classmethod
    def of(cls, file: str, line: int) -> Location:
        """Return the location with its source text, as far as Python can still find it."""
        return cls(file, line, linecache.getline(file, line).strip())

    def __str__(self) -> str:
        position = f"{self.file}:{self.line}"
        return f"{position}   {self.text}" if self.text else position


def nearest(name: str, candidates: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the candidate most similar to `name`, or None if none is close.

    The similarity is the Ratcliff/Obershelp ratio, as `difflib` computes it. Candidates are sorted first, so
    that the result does not depend on their order.
    """
    close = difflib.get_close_matches(name, sorted(set(candidates)), n=1, cutoff=cutoff)
    return close[0] if close else None


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return `" Did you mean 'cache'?"` with the leading space, or "" if nothing is close."""
    close = nearest(name, candidates)
    return f" Did you mean {close!r}?" if close is not None else ""


class ThunderError(Exception):
    """Root of all errors that thunder raises.

    Args:
        asked: what was asked, and why it is impossible; one sentence, the first line of the message.
        found: what was found: a mapping prints one `label: value` line per item, a string prints unchanged.
        where: the user's lines, innermost first; `add_locations` adds them later.
        hint: what to do.
        facts: values for programs that handle the error, in the attribute `facts`; `found`, if it is a
            mapping, is added to them.
    """

    default_hint: str | None = None

    def __init__(
        self,
        asked: str,
        *,
        found: str | Mapping[str, object] | None = None,
        where: Sequence[Location] | None = None,
        hint: str | None = None,
        facts: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(asked)
        self.asked = asked
        self.found = found
        self.where: list[Location] = list(where or ())
        self.hint = hint if hint is not None else self.default_hint
        self.facts: dict[str, object] = dict(found) if isinstance(found, Mapping) else {}
        self.facts.update(facts or {})

    def add_locations(self, locations: Iterable[Location]) -> Self:
        """Add the user's lines unless the error has some; return the error itself."""
        if not self.where:
            self.where.extend(locations)
        return self

    def blame(self, origin: str) -> Self:
        """Add the origin of the culprit unless the error has one; return the error itself.

        `thunder.base.extension_origin` finds it.
        """
        if "from" not in self.facts:
            self.facts["from"] = origin
            found = self.found if isinstance(self.found, Mapping) else {"found": self.found}
            self.found = {"from": origin, **({} if self.found is None else found)}
        return self

    def __str__(self) -> str:
        lines = [self.asked]
        lines += [f"  at  {location}" for location in self.where]
        if isinstance(self.found, Mapping):
            lines += [f"  {label}:  {_indented(value)}" for label, value in self.found.items()]
        elif self.found is not None:
            lines.append(f"  {_indented(self.found)}")
        if self.hint is not None:
            lines.append(self.hint)
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        # An error that crosses a process boundary keeps its parts. The default would call `__init__` with
        # `args` alone.
        return (_rebuild, (type(self), self.args, self.__dict__))


def _rebuild(cls: type[ThunderError], args: tuple[object, ...], state: dict[str, object]) -> ThunderError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(state)
    return error


def _indented(value: object) -> str:
    return str(value).replace("\n", "\n      ")


# --- the call is wrong


class UserError(ThunderError):
    """The call is wrong."""


class InvalidArgument(UserError, TypeError, ValueError):
    """A value that is not valid for an argument."""


class NoDataParallelism(InvalidArgument, AttributeError):
    """A method of data parallelism on a module without it; for `hasattr` it is absent."""


class UnknownOption(UserError, TypeError):
    """An option, debug option or argument that is not declared."""


class NotCompiled(UserError, TypeError):
    """Inspection of something that `thunder.jit` did not return."""


class NeverCalled(UserError, TypeError):
    """Inspection of a compiled object before its first call."""


class UnknownExecutor(UserError, ValueError):
    """A name under which no executor is registered."""


class ExecutorUnavailable(UserError, RuntimeError):
    """The executor is registered, but this machine or process cannot use it."""


class RequirementNotMet(UserError, RuntimeError):
    """`require=` names an executor that did not get the operator."""


class RegistrationError(UserError, ValueError):
    """An operator, implementation, executor, row or option that cannot be registered."""


class OutsideTrace(UserError, NotImplementedError):
    """A symbol, `get_grad` or `put_grad` was called where no trace is current."""


class SameInputViolation(UserError, RuntimeError):
    """A fact changed that the user promised to keep (`cache="same input"`)."""


class RecompileError(UserError, RuntimeError):
    """A call needed another compile under `fail_on_recompile`."""


class OperatorError(UserError, RuntimeError):
    """Shapes, dtypes or devices that torch refuses too; the message begins with torch's text.

    ``torch_class`` is the class of torch's error, where torch has raised one.
    """

    torch_class: type[Exception] | None = None


class IncompatiblePackage(UserError, ImportError):
    """An installed package requires another version of thunder-core, or of another package of thunder."""


class PluginNotInstalledError(UserError, ModuleNotFoundError):
    """A documented module or name belongs to a distribution that is not installed.

    `name` is the distribution. If it were the module's name, `from thunder import distributed` would replace
    this error by "cannot import name" (importlib's `_handle_fromlist` compares the two).
    """

    def __init__(self, asked: str, *, distribution: str, hint: str | None = None) -> None:
        super().__init__(asked, hint=hint, facts={"distribution": distribution})
        self.name = distribution

    def __reduce__(self) -> tuple[object, ...]:
        # `name` is a slot of ImportError, not in `__dict__`; the constructor sets it again.
        return (_rebuild_not_installed, (self.asked, self.name, self.hint))


def _rebuild_not_installed(asked: str, distribution: str, hint: str | None) -> PluginNotInstalledError:
    return PluginNotInstalledError(asked, distribution=distribution, hint=hint)


# --- the program is right, thunder cannot do it


class UnsupportedProgram(ThunderError, NotImplementedError):
    """The program is valid, and thunder does not support it."""


class UnsupportedOperator(UnsupportedProgram):
    """An operator, or an argument of one, that thunder does not support."""


class DataDependentControlFlow(UnsupportedProgram):
    """Control flow that depends on the values in a tensor."""


class NotInitialized(UnsupportedProgram):
    """State that the first call of a program initializes: Python runs that call, where it may.

    ``key`` tells one state from others of which the same is asked, as the hash of a cache's key does.
    """

    key: int | None = None


class StateChanged(UnsupportedProgram):
    """Code that ran as it is, while the program was traced, has changed what the program depends on.

    The program must not be traced again for this call: it would read the changes.
    """


class SharpEdge(UnsupportedProgram):
    """The program reads or writes state that can be neither guarded nor replayed."""


class MissingGradient(UnsupportedProgram):
    """The gradient of an operator without a gradient rule is needed."""


class NoExecutor(UnsupportedProgram):
    """A primitive that no executor of the list claims."""


# --- the fault is not the user's


class PluginError(ThunderError, RuntimeError):
    """A plugin, executor or transform broke its contract.

    The message has its name and its origin.
    """


class TraceError(ThunderError, RuntimeError):
    """A malformed trace; the message has the name of the stage that returned it."""


class TraceTextError(TraceError, ValueError):
    """A text that is not that of a trace; ``line`` and ``column`` (from 1) are where it is wrong."""

    def __init__(self, asked: str, *, line: int, column: int, text: str, expected: str) -> None:
        marked = f"{text}\n{' ' * (column - 1)}^"
        place = f"line {line}, column {column}"
        super().__init__(asked, found={"where": f"{place}\n{marked}", "expected": expected})
        self.line, self.column, self.expected = line, column, expected


class PluginTraceError(PluginError, TraceError):
    """A malformed trace that a plugin, executor or transform returned."""


class InternalError(ThunderError, RuntimeError):
    """A fault of thunder itself."""

    default_hint = (
        "This is a fault in thunder. Please report it with this message and the trace (thunder.last_traces)."
    )


class GuardFailed(Exception):
    """A guard does not hold.

    Only the dispatcher handles it: the entry is a miss, and the text is the reason of the recompilation.
    """

    def __init__(self, fact: str, expected: object, found: object) -> None:
        super().__init__(fact, expected, found)
        self.fact = fact
        self.expected = expected
        self.found = found

    def __str__(self) -> str:
        return f"{self.fact}: expected {self.expected!r}, found {self.found!r}"


class RaisedByProgram(Exception):
    """The program raised ``error`` while it was compiled. Only the dispatcher handles it.

    ``written`` has the names of what the program had written before the error; no write is applied.
    ``runs_again`` tells whether Python has to run the program: because of what it did before the error
    (writes, output, random draws, modes), or because eager may raise another error earlier. ``handles`` tells
    whether a handler of the program may catch that earlier error.
    """

    def __init__(
        self, error: BaseException, written: Sequence[str], *, runs_again: bool, handles: bool = False
    ) -> None:
        super().__init__(error, written, runs_again, handles)
        self.error, self.written, self.runs_again, self.handles = error, tuple(written), runs_again, handles


def without_frames(error: Exception) -> Exception:
    """Return an error without its traceback and those of its causes, whose frames hold tensors."""
    links: list[BaseException | None] = [error]
    seen = set[int]()
    while links:
        link = links.pop()
        if link is not None and id(link) not in seen:
            seen.add(id(link))
            link.__traceback__ = None
            links += [link.__cause__, link.__context__, getattr(link, "error", None)]
    return error


class DecisionChanged(BaseException):
    """A check found something else than the program was traced with.

    Only the dispatcher handles it: another entry runs. It is not an Exception, so that no handler on the way
    takes it for an error of the program. ``index`` counts the decisions of the program, and ``answer`` is the
    other answer. For a relation of sizes that the computation finds ``index`` is None, since the answers to
    the program's questions are not known, and ``answer`` is the text of what does not hold, with the values.
    """

    def __init__(self, index: int | None, answer: object) -> None:
        super().__init__(index, answer)
        self.index, self.answer = index, answer


class ThunderWarning(UserWarning):
    """Root of all warnings that thunder issues."""


class SharpEdgeWarning(ThunderWarning):
    """A value that can be neither guarded nor replayed was baked into the trace."""


class RecompileWarning(ThunderWarning):
    """A compiled object was compiled again more often than `recompile_limit`."""


class PluginWarning(ThunderWarning):
    """A plugin or one of its executors cannot be used and was skipped."""
