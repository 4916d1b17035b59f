"""What an exception of the program says and holds in terms of the trace, where eager's has tensors."""

from __future__ import annotations

from typing import Any

from thunder.base.errors import OperatorError
from thunder.frontend.objects.class_kinds import LEAVES

_PLAIN = LEAVES | {type}


def name_tensors(error: BaseException) -> None:
    """Makes the text of a TypeError of Python's own that names the class of a traced tensor torch's."""
    if type(error) is TypeError and len(error.args) == 1 and type(error.args[0]) is str:
        error.args = (error.args[0].replace("TensorProxy", "Tensor"),)


def carries_values(error: BaseException) -> bool:
    """Whether an exception, or one that it was raised from, holds more than numbers and strings: tensors
    and objects of a trace mean nothing to the caller.
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
