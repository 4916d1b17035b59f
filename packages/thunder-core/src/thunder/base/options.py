"""Options of `thunder.jit`: their declaration, validation and use.

An option is declared once, by core or by a plugin, as an `Option`. `resolve_options` converts the user's
keyword arguments into a value for every declared option, and refuses undeclared ones. The resulting table
records which options are read, so that an option without effect can be reported.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Literal, NoReturn, TypeVar

from thunder.base.errors import InvalidArgument, RegistrationError, UnknownOption, did_you_mean, nearest
from thunder.base.option_types import accepts, describe_type, literals_of

__all__ = [
    "CACHE_OPTIONS",
    "CORE_OPTIONS",
    "RETIRED_ARGUMENTS",
    "SHARP_EDGES_OPTIONS",
    "CompileOptions",
    "DebugOptions",
    "Option",
    "resolve_cache_option",
    "resolve_options",
    "resolve_sharp_edges_option",
]


@dataclass(frozen=True, slots=True)
class Option:
    """One declared option.

    `type` is a class (`int`), a union (`int | None`), a `Literal["eager", "error"]`, or a union of these. A
    bool does not count as an int, and an int counts as a float. `candidates` are values, beside the default,
    that measured placement may use in its place for single calls and regions: whichever is used, an executor
    that reads the option computes the same.
    """

    name: str
    type: Any
    default: Any
    doc: str
    candidates: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise RegistrationError(f"option {self.name!r} cannot be written as a keyword argument")
        if not accepts(self.type, self.default):
            raise RegistrationError(
                f"option {self.name!r} has a default of the wrong type",
                found={"expected": describe_type(self.type), "default": repr(self.default)},
            )
        for value in self.candidates:
            self.check(value, of="its candidates")

    def check(self, value: object, *, of: str = "thunder.jit") -> None:
        """Raise InvalidArgument, which lists the allowed values, for a value of another type."""
        if accepts(self.type, value):
            return
        close = nearest(value, literals_of(self.type)) if isinstance(value, str) else None
        raise InvalidArgument(
            f"{of} got an invalid value for option {self.name!r}."
            + (f" Did you mean {close!r}?" if close else ""),
            found={
                "expected": describe_type(self.type),
                "found": "None" if value is None else f"{value!r} ({type(value).__name__})",
                "default": repr(self.default),
            },
            hint=self.doc,
        )


# --- enumerations


class CACHE_OPTIONS(Enum):
    """The ways to reuse compiled programs; the values are what users write."""

    CONSTANT_VALUES = "constant values"
    SYMBOLIC_VALUES = "symbolic values"
    AUTOMATIC = "automatic"
    NO_CACHING = "no caching"
    SAME_INPUT = "same input"


class SHARP_EDGES_OPTIONS(Enum):
    """The reaction to a read or write that can be neither guarded nor replayed."""

    ERROR = "error"
    WARN = "warn"
    ALLOW = "allow"


_E = TypeVar("_E", bound=Enum)


def _resolve_enum(value: object, enum: type[_E], argument: str, default: _E) -> _E:
    if value is None:
        return default
    if isinstance(value, enum):
        return value
    allowed = {member.value: member for member in enum}
    if isinstance(value, str) and value.lower() in allowed:
        return allowed[value.lower()]
    raise InvalidArgument(
        f"{argument}={value!r} is not a value that thunder.jit knows."
        + (did_you_mean(value, allowed) if isinstance(value, str) else ""),
        found={"allowed": ", ".join(repr(v) for v in allowed), "default": repr(default.value)},
        hint=f"Give one of these strings, or a member of {enum.__name__}.",
    )


def resolve_cache_option(value: CACHE_OPTIONS | str | None) -> CACHE_OPTIONS:
    """Return the member that `cache=value` means; None is `"automatic"`.

    Raises InvalidArgument for other values.
    """
    return _resolve_enum(value, CACHE_OPTIONS, "cache", CACHE_OPTIONS.AUTOMATIC)


def resolve_sharp_edges_option(value: SHARP_EDGES_OPTIONS | str | None) -> SHARP_EDGES_OPTIONS:
    """Return the member that `sharp_edges=value` means; None is `"error"`.

    Raises InvalidArgument for other values.
    """
    return _resolve_enum(value, SHARP_EDGES_OPTIONS, "sharp_edges", SHARP_EDGES_OPTIONS.ERROR)


# --- options of thunder.jit

CORE_OPTIONS: Mapping[str, Option] = types.MappingProxyType(
    {
        option.name: option
        for option in (
            Option(
                "max_cache_entries",
                int,
                64,
                "Number of cache entries kept; beyond it the least recently used one is dropped.",
            ),
            Option(
                "recompile_limit",
                int | None,
                16,
                "Misses after which one RecompileWarning gives count and last reasons; None never warns.",
            ),
            Option(
                "fail_on_recompile",
                bool,
                False,
                "A miss after the first raises RecompileError with the reason.",
            ),
            Option(
                "frozen",
                bool,
                False,
                "The user vouches that everything but the arguments stays: modules, parameters, globals. "
                "Only arguments and ambient state are guarded.",
            ),
            Option(
                "skip_inplace_alias_updates",
                bool,
                False,
                "The user vouches that no two inputs share memory that the program writes; later calls are "
                "not checked.",
            ),
            Option(
                "data_dependent",
                Literal["speculate", "refuse"],
                "speculate",
                "What becomes of a question about data, such as `if (x > 0).all():`: the program is compiled "
                "for the answer of the call, which later calls check (speculate), or it is refused (refuse).",
            ),
            Option(
                "opaque",
                list | tuple,
                (),
                "Callables that run as they are at each call, beside those marked by `thunder.opaque`: "
                "functions, modules, and dotted paths of functions and of modules of Python.",
            ),
            Option(
                "dynamic_sizes",
                dict | None,
                None,
                'Sizes that stay free, by argument: `{"x": 0}`, `{"x": (0, -1)}`, or with bounds '
                '`{"x": {0: (2, 512)}}`; a program that needs the number is refused.',
            ),
            Option("cse", bool, True, "Whether common subexpressions are computed once."),
            Option(
                "operator_fallback",
                Literal["eager", "error"],
                "eager",
                "What becomes of a torch function without a row: torch runs it as it is, and the ledger says "
                "so (eager), or it is refused by name (error).",
            ),
            Option(
                "rematerialization",
                Literal["min-cut", "none"] | int,
                "min-cut",
                "What the forward keeps for the backward: the fewest bytes without repeating costly "
                "operators (min-cut), all that the backward reads (none), or at most so many bytes.",
            ),
            Option(
                "compile_workers",
                int | None,
                None,
                "How many regions of a program may be compiled at a time; None is the number of CPUs.",
            ),
            Option(
                "compile_progress",
                bool,
                True,
                "Whether a progress bar appears on a terminal when compiling regions takes over two seconds.",
            ),
        )
    }
)

JIT_ARGUMENTS: tuple[str, ...] = (
    "langctx",
    "executors",
    "sharp_edges",
    "cache",
    "disable_torch_autograd",
    "transforms",
    "debug_options",
    "require",
    "lookasides",
)
"""The named arguments of `thunder.jit`, for suggestions."""

RETIRED_ARGUMENTS: Mapping[str, str] = types.MappingProxyType(
    {
        "early_transforms": "Use transforms=; a transform says in its hooks when it runs.",
        "additional_transforms": "Use transforms=.",
        "post_optimization_transforms": "Use transforms=; the hook is transform_trace_post_optimization.",
        "executors_list": "Use executors=.",
        "cache_mode": "Use cache=.",
        "use_cudagraphs": "A package that provides thunder.transforms.CUDAGraphTransform has CUDA graphs.",
        "use_rematerialization": 'Use rematerialization="min-cut" or "none".',
        "interpretation": "There is one interpreter; leave the argument out.",
        "skip_inplace_functionalization": "Every compile functionalises; leave the argument out.",
        "disable_torch_autograd_support": "Use disable_torch_autograd=.",
        "disable_preprocessing": "Use thunder.trace()(fn, *args), which calls the function with proxies.",
        "only_execute_prims": 'Use executors=["torch"], and read the subsymbols in the trace.',
        "use_static_caching": 'Use cache="constant values".',
        "record_history": "Use debug_options=DebugOptions(record_interpreter_history=True).",
    }
)
"""Arguments of the past, and what replaces them."""


class CompileOptions(Mapping[str, Any]):
    """A value for every declared option. Reading one by `[]` marks it as read."""

    __slots__ = ("_read", "_values", "given")

    def __init__(self, values: Mapping[str, Any], given: Iterable[str]) -> None:
        self._values = dict(values)
        self._read: set[str] = set()
        self.given: tuple[str, ...] = tuple(given)

    def __getitem__(self, name: str) -> Any:
        value = self._values[name]
        self._read.add(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def value(self, name: str) -> Any:
        """Return the value of an option without marking it as read."""
        return self._values[name]

    @property
    def read(self) -> tuple[str, ...]:
        """The options that have been read, in the order of their declaration."""
        return tuple(name for name in self._values if name in self._read)

    @property
    def unread(self) -> tuple[str, ...]:
        """The options that the user set and that were never read."""
        return tuple(name for name in self.given if name not in self._read)

    def report(self) -> str:
        """Return one line per option that was read, then one per option that was set and not read."""
        lines = [f"{name} = {self._values[name]!r}" for name in self.read]
        lines += [f"{name} = {self._values[name]!r}  (given, not read)" for name in self.unread]
        return "\n".join(lines) or "no option was read"


def resolve_options(
    given: Mapping[str, Any], declared: Mapping[str, Option] = CORE_OPTIONS, *, plugins: Iterable[str] = ()
) -> CompileOptions:
    """Return a value for every declared option: the user's, or else the default.

    `plugins` are the names of the installed plugins, for the message. Raises UnknownOption for an undeclared
    name, with the nearest one or with its replacement, and InvalidArgument for a value of the wrong type.
    """
    for name, value in given.items():
        option = declared.get(name)
        if option is None:
            _unknown_option(name, declared, plugins)
        option.check(value)
    return CompileOptions({name: given.get(name, o.default) for name, o in declared.items()}, given)


def _unknown_option(name: str, declared: Mapping[str, Option], plugins: Iterable[str]) -> NoReturn:
    retired = RETIRED_ARGUMENTS.get(name)
    suggestion = did_you_mean(name, (*JIT_ARGUMENTS, *declared))
    installed = ", ".join(plugins) or "none"
    raise UnknownOption(
        f"thunder.jit has no option {name!r}.{suggestion}",
        hint=retired or f"No installed plugin declares it; installed plugins: {installed}.",
    )


# --- debug options


class DebugOptions:
    """Switches for debugging; immutable.

    `DebugOptions(check_traces=True)`. An unknown name raises UnknownOption, a wrong type InvalidArgument.
    Plugins add options with `register_option`; instances created before that have its default.
    """

    __slots__ = ("_given",)

    _declared: ClassVar[dict[str, Option]] = {
        option.name: option
        for option in (
            Option(
                "check_traces",
                bool | Literal[0, 1, 2],
                False,
                "Verify the trace after every stage; compare every result with its proxy when it runs. "
                "Numbers other than 0 mean True.",
            ),
            Option(
                "check_guards",
                bool,
                False,
                'Evaluate guards in "same input" mode and those a transform pruned; a violated one raises.',
            ),
            Option(
                "record_interpreter_history", bool, False, "Keep the log that last_interpreter_log returns."
            ),
            Option(
                "show_interpreter_progress", bool, False, "Print one line per interpreted frame of user code."
            ),
        )
    }

    _given: dict[str, Any]

    def __init__(self, **given: Any) -> None:
        for name, value in given.items():
            option = self._declared.get(name)
            if option is None:
                raise UnknownOption(
                    f"DebugOptions has no option {name!r}.{did_you_mean(name, self._declared)}",
                    found={"options": ", ".join(self._declared)},
                )
            option.check(value, of="DebugOptions")
        object.__setattr__(self, "_given", dict(given))

    @classmethod
    def register_option(cls, name: str, type: Any, default: Any, doc: str) -> None:
        """Declare a debug option.

        The same declaration again has no effect; another one for the name raises RegistrationError.
        """
        option = Option(name, type, default, doc)
        if cls._declared.setdefault(name, option) != option:
            raise RegistrationError(
                f"debug option {name!r} is declared already",
                found={"first": cls._declared[name], "second": option},
                hint="Choose another name.",
            )

    @classmethod
    def list_options(cls) -> str:
        """Return one line per option: name, type, default, meaning."""
        return "\n".join(
            f"{o.name}: {describe_type(o.type)} = {o.default!r}  {o.doc}" for o in cls._declared.values()
        )

    def __getattr__(self, name: str) -> Any:
        option = self._declared.get(name)
        if option is None:
            raise AttributeError(f"DebugOptions has no option {name!r}.{did_you_mean(name, self._declared)}")
        return self._given.get(name, option.default)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"DebugOptions are immutable; write DebugOptions({name}={value!r})")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("DebugOptions are immutable")

    def _changed(self) -> dict[str, Any]:
        return {
            n: self._given[n]
            for n, o in self._declared.items()
            if n in self._given and self._given[n] != o.default
        }

    def __eq__(self, other: object) -> bool:
        return self._changed() == other._changed() if isinstance(other, DebugOptions) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self._changed().items()))

    def __repr__(self) -> str:
        return f"DebugOptions({', '.join(f'{name}={value!r}' for name, value in self._changed().items())})"

    def __reduce__(self) -> tuple[object, ...]:
        return (_debug_options, (self._given,))


def _debug_options(given: dict[str, Any]) -> DebugOptions:
    return DebugOptions(**given)
