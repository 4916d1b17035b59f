"""The errors that torch raises for calls that it refuses, as OperatorErrors."""

from __future__ import annotations

from typing import Any, Final

from thunder.base.errors import OperatorError
from thunder.base.pytree import tree_flatten
from thunder.ir.proxies import TensorProxy

__all__ = [
    "TORCH_REFUSALS",
    "OperatorAssertionError",
    "OperatorAttributeError",
    "OperatorIndexError",
    "OperatorNotImplementedError",
    "OperatorTypeError",
    "OperatorValueError",
    "OperatorZeroDivisionError",
    "as_torch_raises",
    "described_arguments",
    "operator_error",
]

#: what torch raises for a call that it refuses, or for which it has no kernel; meta functions in Python may
#: fail in a lookup or a division
TORCH_REFUSALS: Final = (
    *(RuntimeError, TypeError, ValueError, AttributeError, AssertionError),
    *(LookupError, ArithmeticError),
)


class OperatorIndexError(OperatorError, IndexError):
    """An OperatorError for which torch raises IndexError."""


class OperatorAssertionError(OperatorError, AssertionError):
    """An OperatorError for which torch raises AssertionError."""


class OperatorAttributeError(OperatorError, AttributeError):
    """An OperatorError for which torch raises AttributeError."""


class OperatorNotImplementedError(OperatorError, NotImplementedError):
    """An OperatorError for which torch raises NotImplementedError."""


class OperatorTypeError(OperatorError, TypeError):
    """An OperatorError for which torch raises TypeError."""


class OperatorValueError(OperatorError, ValueError):
    """An OperatorError for which torch raises ValueError."""


class OperatorZeroDivisionError(OperatorError, ZeroDivisionError):
    """An OperatorError for which torch raises ZeroDivisionError."""


_CLASSES = (
    (AssertionError, OperatorAssertionError),
    (AttributeError, OperatorAttributeError),
    (IndexError, OperatorIndexError),
    (NotImplementedError, OperatorNotImplementedError),
    (TypeError, OperatorTypeError),
    (ValueError, OperatorValueError),
    (ZeroDivisionError, OperatorZeroDivisionError),
)


def operator_error(error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OperatorError:
    """Return the OperatorError with the text of torch's error for a call with these arguments."""
    cls = next((ours for theirs, ours in _CLASSES if isinstance(error, theirs)), OperatorError)
    result = cls(str(error).strip(), found=described_arguments(args, kwargs))
    result.torch_class = type(error)
    return result


def as_torch_raises(error: OperatorError, handled: BaseException | None) -> Exception:
    """Return the exception that torch raises in place of an OperatorError.

    ``handled`` is the exception that is being handled, the context of the new one.
    """
    cls = error.torch_class or next((t for t, ours in _CLASSES if isinstance(error, ours)), RuntimeError)
    plain = cls(error.asked).with_traceback(error.__traceback__)
    plain.__context__ = handled
    plain.add_note(str(error))
    return plain


def described_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, str]:
    """Return each argument as an error shows it: a tensor by name and type, others by repr."""
    shown: dict[str, str] = {}
    for label, value in [*((str(i), a) for i, a in enumerate(args)), *kwargs.items()]:
        if isinstance(value, TensorProxy):
            shown[value.name if label.isdecimal() else label] = f'"{value.type_string()}"'
        else:
            leaves = tree_flatten(value)[0]
            tensors = [f'{x.name}: "{x.type_string()}"' for x in leaves if isinstance(x, TensorProxy)]
            shown[f"argument {label}" if label.isdecimal() else label] = ", ".join(tensors) or repr(value)
    return shown
