"""Numbers of bytes as users write them, and the option that is one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import ceil
from typing import Final

from thunder.core.errors import InvalidArgument
from thunder.plugins import Option

__all__ = ["BytesOption", "bytes_of"]

_UNITS: Final[Mapping[str, int]] = {
    "b": 1,
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", 1)},
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", 1)},
}
_TEXT: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)


def bytes_of(budget: object) -> int:
    """Return a number of bytes, which may be a text such as `"1.5 GiB"` or `"800 MB"`.

    Raises InvalidArgument for anything else.
    """
    if type(budget) is int and budget > 0:
        return budget
    match = _TEXT.fullmatch(budget) if isinstance(budget, str) else None
    if match is None or match[2].lower() not in _UNITS:
        raise InvalidArgument(
            f"{budget!r} is not a number of bytes",
            hint='Give a positive int, or a text such as "1.5 GiB" or "800 MB".',
        )
    return ceil(float(match[1]) * _UNITS[match[2].lower()])


class BytesOption(Option):
    """An option that is None or a number of bytes; a wrong text is an error of `thunder.jit`."""

    __slots__ = ()

    def check(self, value: object, *, of: str = "thunder.jit") -> None:
        """Raise InvalidArgument for a value that is neither None nor a number of bytes."""
        super().check(value, of=of)
        if value is not None:
            bytes_of(value)
