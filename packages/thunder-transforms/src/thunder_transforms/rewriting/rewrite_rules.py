"""Rewrite rules: a pattern and its replacement, both written as Python functions."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

from thunder.core.errors import InvalidArgument
from thunder.plugins import origin_of

__all__ = ["Casts", "RewriteRule", "rewrite"]

#: `"through"`: casts between floating-point dtypes that the pattern does not write are passed over;
#: `"written"`: the program has the casts of the pattern and no others
Casts = Literal["through", "written"]

#: the types of a pattern's parameters that are numbers and not tensors
_NUMBERS = (int, float)
_NOT_NUMBERS = (bool, complex, str, "bool", "complex", "str")


@dataclass(frozen=True, kw_only=True, eq=False)
class RewriteRule:
    """A pattern, what replaces it, and where the rule stands among others; `rewrite` makes it."""

    name: str
    pattern: Callable[..., Any]
    replacement: Callable[..., Any]
    check: Callable[..., Any] | None = None
    casts: Casts = "through"
    #: arguments for which the pattern can be traced; None where they are to be guessed
    examples: tuple[Any, ...] | None = None
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    #: names of executors; the rule applies to compiles that have all of them
    executors: tuple[str, ...] = ()
    #: the primitive that computes the first output last; None where the trace of the pattern says so
    root: str | None = None

    @cached_property
    def parameters(self) -> dict[str, type | None]:
        """Name of each parameter of the pattern → int or float for a number, None for a tensor."""
        parameters = inspect.signature(self.pattern).parameters.values()
        return {p.name: _number_type(p) for p in parameters}

    @property
    def origin(self) -> str:
        """The distribution and the module of the rule, in words."""
        return origin_of(self.pattern)

    def __repr__(self) -> str:
        return f"rewrite({self.name!r})"


def rewrite(
    pattern: Callable[..., Any],
    replacement: Callable[..., Any],
    *,
    check: Callable[..., Any] | None = None,
    name: str | None = None,
    casts: Casts = "through",
    examples: Iterable[Any] | None = None,
    before: str | Iterable[str] = (),
    after: str | Iterable[str] = (),
    executors: str | Iterable[str] = (),
    root: str | None = None,
) -> RewriteRule:
    """Return the rule that replaces what `pattern` computes by `replacement` of the same arguments.

    Args:
        pattern: a function of tensors and numbers, written with torch's functions. A parameter annotated
            `int` or `float`, or with such a default, is a number; any other is a tensor. It returns a tensor
            or a tuple of tensors.
        replacement: takes the pattern's arguments, and returns results with the same metadata.
        check: takes the arguments too, and returns True, or to leave the program as it is False or a
            `Refusal`.
        name: unique among rules; the pattern's name by default.
        casts: `"through"` passes over casts between floating-point dtypes that the pattern does not write;
            with `"written"` the program has the casts of the pattern and no others.
        examples: arguments (meta tensors, numbers) for which the pattern can be traced, where tensors of one
            to four dimensions of equal lengths, and common numbers, are not.
        before, after: names of rules that are applied later, earlier.
        executors: names of executors that a compile must have for the rule to apply.
        root: the id of the primitive that computes the pattern's first result last. The pattern is traced,
            some milliseconds of a process's first compile, only for a program that has it.

    Raises InvalidArgument for a pattern with other parameters, or a replacement or check that does not take
    them.
    """
    name = getattr(pattern, "__name__", "") if name is None else name
    _check_functions(pattern, replacement, check)
    _check_words(name, casts)
    rule = RewriteRule(
        name=name,
        pattern=pattern,
        replacement=replacement,
        check=check,
        casts=casts,
        examples=None if examples is None else tuple(examples),
        before=_names(before),
        after=_names(after),
        executors=_names(executors),
        root=root,
    )
    _check_parameters(rule)
    return rule


def _check_functions(pattern: object, replacement: object, check: object) -> None:
    for function, what in ((pattern, "pattern"), (replacement, "replacement"), (check, "check")):
        if not callable(function) and not (what == "check" and function is None):
            raise InvalidArgument(f"the {what} of a rewrite is a function, and got {function!r}")
    try:
        inspect.signature(pattern)  # type: ignore[arg-type]
    except ValueError:
        raise InvalidArgument(
            f"the pattern of a rewrite is {pattern!r}, which has no signature",
            hint="Write a Python function that calls it: its parameters are those of the replacement.",
        ) from None


def _check_words(name: str, casts: str) -> None:
    if not re.fullmatch(r"\w+(\.\w+)*", name):
        raise InvalidArgument(
            f"a rewrite rule cannot be named {name!r}",
            hint="Pass name=, words with dots in between, such as 'acme.rms_norm'.",
        )
    if casts not in get_args(Casts):
        raise InvalidArgument(
            f"casts= of rewrite {name!r} is {casts!r}", hint="It is 'through' or 'written'."
        )


def _names(names: str | Iterable[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _number_type(parameter: inspect.Parameter) -> type | None:
    for number in _NUMBERS:
        if parameter.annotation in (number, number.__name__) or type(parameter.default) is number:
            return number
    return None


def _check_parameters(rule: RewriteRule) -> None:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    for parameter in inspect.signature(rule.pattern).parameters.values():
        if parameter.kind not in kinds:
            raise InvalidArgument(
                f"the pattern of rewrite {rule.name!r} has the parameter {parameter}",
                hint="A pattern has positional parameters: tensors and numbers.",
            )
        if parameter.annotation in _NOT_NUMBERS or type(parameter.default) in (bool, complex, str):
            raise InvalidArgument(
                f"the pattern of rewrite {rule.name!r} has the parameter {parameter}, "
                "which is not a tensor, int or float",
                hint="Write a pattern for each value.",
            )
    if None not in rule.parameters.values():
        raise InvalidArgument(f"the pattern of rewrite {rule.name!r} has no parameter that is a tensor")
    if rule.examples is not None and len(rule.examples) != len(rule.parameters):
        raise InvalidArgument(
            f"examples= of rewrite {rule.name!r} has {len(rule.examples)} arguments",
            found={"parameters": ", ".join(rule.parameters)},
        )
    for function, what in ((rule.replacement, "replacement"), (rule.check, "check")):
        try:
            signature = inspect.signature(function) if function is not None else None
        except (TypeError, ValueError):  # a function written in C has no signature
            continue
        if signature is None:
            continue
        try:
            signature.bind(*rule.parameters)
        except TypeError as error:
            raise InvalidArgument(
                f"the {what} of rewrite {rule.name!r} does not take the pattern's arguments: {error}",
                found={"pattern": inspect.signature(rule.pattern), what: signature},
            ) from None
