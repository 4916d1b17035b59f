"""Values that a program may have and not look into, because each call has another."""

from __future__ import annotations

from typing import Any, NoReturn

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.objects.class_kinds import OfTheTrace

__all__ = ["UnknownValue"]


def _refuse_reading(self: UnknownValue, *args: Any) -> NoReturn:
    raise UnsupportedProgram(f"the program reads {self._name}, {self._why}", hint=self._hint)


class UnknownValue(OfTheTrace):
    """A value of the name ``name``; a program that looks into it is refused, with the reason and a hint."""

    __slots__ = ("_hint", "_name", "_why")

    def __init__(self, name: str, why: str, hint: str) -> None:
        self._name, self._why, self._hint = name, why, hint

    def description(self) -> str:
        return self._name

    __getattr__ = __call__ = __len__ = __iter__ = __next__ = __bool__ = _refuse_reading
    __float__ = __int__ = __index__ = __neg__ = __abs__ = __getitem__ = __contains__ = _refuse_reading
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse_reading
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _refuse_reading
    __lt__ = __le__ = __gt__ = __ge__ = _refuse_reading
    __repr__ = __format__ = __eq__ = __ne__ = __hash__ = _refuse_reading
