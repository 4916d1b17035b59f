"""Exceptions of the program that name or hold objects of the trace."""

from __future__ import annotations

from typing import Any

from thunder.base.errors import DataDependentControlFlow, OperatorError, ThunderError, UnsupportedProgram
from thunder.frontend.objects.class_kinds import LEAVES
from thunder.ir.proxies import AnyProxy, NumberProxy, Proxy, TensorProxy

#: errors whose texts name classes, and the names of the user's classes
_OF_TYPES = (TypeError, AttributeError)
_SHOWN = {
    "TensorProxy": "Tensor",
    "IntegerProxy": "int",
    "FloatProxy": "float",
    "ComplexProxy": "complex",
    "SymbolicInt": "int",
    "SymbolicFloat": "float",
}
_PLAIN = LEAVES | {type}


def name_tensors(error: BaseException) -> None:
    """Replace the class of proxies by the user's in the text of an error that Python raised."""
    if type(error) in _OF_TYPES and len(error.args) == 1 and type(error.args[0]) is str:
        text = error.args[0]
        for name, shown in _SHOWN.items():
            text = text.replace(name, shown)
        error.args = (text,)


def tensor_refusal(x: TensorProxy, what: str, hint: str) -> UnsupportedProgram:
    """Return the error for a program that does something with a tensor."""
    return UnsupportedProgram(f"the program {what}", found={x.name: f'"{x.type_string()}"'}, hint=hint)


def text_refusal(proxy: Proxy | TensorProxy) -> ThunderError:
    """Return the error for a program that makes a text of a tensor, or of a number out of one."""
    found = {proxy.name: proxy.type_string()}
    if isinstance(proxy, NumberProxy):
        return DataDependentControlFlow(
            "the text of a number that comes out of a tensor shows its value",
            found=found,
            hint="print(number) is replayed at each call; or format it after the call.",
        )
    if type(proxy) is AnyProxy:
        return UnsupportedProgram(
            "the program looks into the text of a value that each call makes anew",
            hint="Return, store or print the text as it is; or make the value outside the compiled function, "
            "and pass what is read of it.",
        )
    return UnsupportedProgram(
        "the text of a tensor shows its values, which are not known while the program is traced",
        found=found,
        hint="print(tensor) is replayed at each call; or format it after the call.",
    )


def carries_values(error: BaseException) -> bool:
    """Return whether an exception, or one in its chain, holds more than numbers and strings.

    Tensors and objects of a trace mean nothing to the caller.
    """
    link: BaseException | None = error
    seen: set[int] = set()
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        if not isinstance(link, OperatorError):
            parts = [*link.args, *(v for k, v in vars(link).items() if k != "__notes__")]
            if isinstance(link, AttributeError):
                parts.append(link.obj)
            if isinstance(link, BaseExceptionGroup) or not all(map(_is_plain, parts)):
                return True
        link = link.__cause__ or link.__context__
    return False


def _is_plain(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_is_plain, value))
    return type(value) in _PLAIN
