"""Every exception and warning that thunder raises on its own account.

A message has four parts: what was asked, where in the user's program, what was found, what to do.

    UnsupportedProgram: torch.linalg.qr is not an operator thunder knows
      at  model.py:41   q, r = torch.linalg.qr(x)
      x:  "cpu f32[64, 64]"
    Register it (thunder.extend.OperatorExecutor.register_operator) or mark the call opaque.

One class per cause. Each class also derives from the exception that the same mistake raises in Python or
PyTorch, so that an `except TypeError` around user code keeps working. This module imports nothing but the
standard library.
"""

from __future__ import annotations

import difflib
import linecache
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Self

__all__ = [
    "DataDependentControlFlow",
    "ExecutorUnavailable",
    "GuardFailed",
    "InternalError",
    "InvalidArgument",
    "Location",
    "MissingGradient",
    "NeverCalled",
    "NoExecutor",
    "NotCompiled",
    "OperatorError",
    "OutsideTrace",
    "PluginError",
    "PluginNotInstalledError",
    "PluginWarning",
    "RaisedByProgram",
    "RecompileError",
    "RecompileWarning",
    "RegistrationError",
    "RequirementNotMet",
    "SameInputViolation",
    "SharpEdge",
    "SharpEdgeWarning",
    "ThunderError",
    "ThunderWarning",
    "TraceError",
    "UnknownExecutor",
    "UnknownOption",
    "UnsupportedOperator",
    "UnsupportedProgram",
    "UserError",
    "did_you_mean",
    "nearest",
]


class Location(NamedTuple):
    """A line of the user's program."""

    file: str
    line: int
    text: str = ""

    @classmethod
    def of(cls, file: str, line: int) -> Location:
        """The location with its source text, as far as Python can still find it."""
        return cls(file, line, linecache.getline(file, line).strip())

    def __str__(self) -> str:
        position = f"{self.file}:{self.line}"
        return f"{position}   {self.text}" if self.text else position


def nearest(name: str, candidates: Iterable[str], *, cutoff: float = 0.5) -> str | None:
    """The candidate most like `name` (Ratcliff/Obershelp ratio, as `difflib` computes it), or None if none is
    close.

    Candidates are sorted first, so the answer does not depend on their order.
    """
    close = difflib.get_close_matches(name, sorted(set(candidates)), n=1, cutoff=cutoff)
    return close[0] if close else None


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """`" Did you mean 'cache'?"`, with the leading space, or the empty string if nothing is close."""
    close = nearest(name, candidates)
    return f" Did you mean {close!r}?" if close is not None else ""


class ThunderError(Exception):
    """Root of all errors that thunder raises.

    Args:
        asked: what was asked and why it cannot be had; one sentence, the first line of the message.
        found: what was found: a mapping prints one `label: value` line per item, a string prints as it is.
        where: the user's lines, innermost first; `add_locations` adds them later.
        hint: what to do.
        facts: values for programs that handle the error, kept in the attribute `facts`. A mapping given as
            `found` is added to them.
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
        """Says where in the user's program it happened, unless that is known already; returns the error
        itself.
        """
        if not self.where:
            self.where.extend(locations)
        return self

    def blame(self, origin: str) -> Self:
        """Add where the culprit comes from, unless that is known already; return the error itself.

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
    """A value that cannot be meant."""


class UnknownOption(UserError, TypeError):
    """An option, debug option or argument that nobody declares."""


class NotCompiled(UserError, TypeError):
    """Inspection of something that `thunder.jit` did not return."""


class NeverCalled(UserError, TypeError):
    """Inspection of a compiled object before its first call."""


class UnknownExecutor(UserError, ValueError):
    """No executor is registered under this name."""


class ExecutorUnavailable(UserError, RuntimeError):
    """The executor is registered, but cannot be used here."""


class RequirementNotMet(UserError, RuntimeError):
    """`require=` names an executor that did not get the operator."""


class RegistrationError(UserError, ValueError):
    """An operator, implementation, executor, row or option that cannot be registered."""


class OutsideTrace(UserError, NotImplementedError):
    """A symbol, `get_grad` or `put_grad` was called where nothing records."""


class SameInputViolation(UserError, RuntimeError):
    """A fact changed that the user promised to keep (`cache="same input"`)."""


class RecompileError(UserError, RuntimeError):
    """A call needed another compile under `fail_on_recompile`."""


class OperatorError(UserError, RuntimeError):
    """Shapes, dtypes or devices that torch refuses too; the message begins with torch's text.

    ``torch_class`` is the class of torch's error, where torch has been asked.
    """

    torch_class: type[Exception] | None = None


class PluginNotInstalledError(UserError, ModuleNotFoundError):
    """A documented module or name belongs to a distribution that is not installed.

    `name` is the distribution. Were it the module's, `from thunder import distributed` would swallow this
    error and say
    "cannot import name" instead (importlib's `_handle_fromlist` compares the two).
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
    """The program is right, and thunder cannot do it."""


class UnsupportedOperator(UnsupportedProgram):
    """An operator, or an argument of one, that thunder does not know."""


class DataDependentControlFlow(UnsupportedProgram):
    """Control flow that depends on the values in a tensor."""


class SharpEdge(UnsupportedProgram):
    """The program reads or writes something that can be neither guarded nor replayed."""


class MissingGradient(UnsupportedProgram):
    """A gradient is needed of an operator that has no rule for it."""


class NoExecutor(UnsupportedProgram):
    """No listed executor takes a primitive."""


# --- the fault is not the user's


class PluginError(ThunderError, RuntimeError):
    """A plugin, executor or transform broke its contract; the message names it, and where it comes from."""


class TraceError(ThunderError, RuntimeError):
    """A malformed trace; the message names the stage that made it."""


class InternalError(ThunderError, RuntimeError):
    """A fault of thunder itself."""

    default_hint = (
        "This is a fault in thunder. Please report it with this message and the trace (thunder.last_traces)."
    )


class GuardFailed(Exception):
    """A guard does not hold. Only the dispatcher sees it: the entry is a miss, and the text is the recompile
    reason.
    """

    def __init__(self, fact: str, expected: object, found: object) -> None:
        super().__init__(fact, expected, found)
        self.fact = fact
        self.expected = expected
        self.found = found

    def __str__(self) -> str:
        return f"{self.fact}: expected {self.expected!r}, found {self.found!r}"


class RaisedByProgram(Exception):
    """The program raised ``error`` while it was compiled. Only the dispatcher sees it.

    ``written`` names what the program had written by then, of which nothing is applied. ``runs_again`` says
    whether Python has to run the program: for what it did before (writes, output, random draws, modes), or
    because eager may raise another error before. ``handles`` says whether a handler of the program may see
    that one.
    """

    def __init__(
        self, error: BaseException, written: Sequence[str], *, runs_again: bool, handles: bool = False
    ) -> None:
        super().__init__(error, written, runs_again, handles)
        self.error, self.written, self.runs_again, self.handles = error, tuple(written), runs_again, handles


class ThunderWarning(UserWarning):
    """Root of all warnings that thunder gives."""


class SharpEdgeWarning(ThunderWarning):
    """A value that can be neither guarded nor replayed was baked into the trace."""


class RecompileWarning(ThunderWarning):
    """A compiled object was compiled again more often than `recompile_limit`."""


class PluginWarning(ThunderWarning):
    """A plugin or one of its executors cannot be used and was left out."""
