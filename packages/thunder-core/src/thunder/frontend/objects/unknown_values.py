"""Values that a program may have and not look into, because each call has another."""

from __future__ import annotations

from typing import Any, NoReturn

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.objects.class_kinds import OfTheTrace
from thunder.ir.proxies import AnyProxy

__all__ = ["DeferredText", "MadeInCall", "UnknownValue"]


class DeferredText(str):
    """A text with marks in the places of values: each is a number between two marks."""


def _refuse_reading(self: NamedValue, *args: Any) -> NoReturn:
    raise self.refusal()


class NamedValue(OfTheTrace):
    """A value of the name ``name``; what no rule does with it is refused, with the reason and a hint."""

    __slots__ = ("_hint", "_name", "_why")

    def __init__(self, name: str, why: str, hint: str) -> None:
        self._name, self._why, self._hint = name, why, hint

    def description(self) -> str:
        return self._name

    def refusal(self) -> UnsupportedProgram:
        """Return the error of a program that looks into the value."""
        return UnsupportedProgram(f"the program reads {self._name}, {self._why}", hint=self._hint)


class UnknownValue(NamedValue):
    """A value that nothing may look into."""

    __slots__ = ()

    __getattr__ = __call__ = __len__ = __iter__ = __next__ = __bool__ = _refuse_reading
    __float__ = __int__ = __index__ = __neg__ = __abs__ = __getitem__ = __contains__ = _refuse_reading
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse_reading
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _refuse_reading
    __lt__ = __le__ = __gt__ = __ge__ = _refuse_reading
    __repr__ = __format__ = __eq__ = __ne__ = __hash__ = _refuse_reading


class MadeInCall(NamedValue):
    """An immutable value that a statement makes in each call; ``sample`` is one for its class.

    The program may store and return it, and put it into texts. What else it does is done by rules on these
    methods, or on native functions.
    """

    __slots__ = ("proxy", "sample")

    def __init__(self, name: str, proxy: AnyProxy, sample: Any) -> None:
        why = "which each call makes anew"
        hint = (
            "Return, store or format it as it is; or make it outside the compiled function and pass what "
            "is read of it, or mark the function around it by thunder.opaque."
        )
        super().__init__(name, why, hint)
        self.proxy, self.sample = proxy, sample

    def __repr__(self, *args: Any) -> NoReturn:
        raise self.refusal()

    def __str__(self) -> str:
        raise self.refusal()

    def __format__(self, *args: Any) -> NoReturn:
        raise self.refusal()

    def __bool__(self) -> NoReturn:
        raise self.refusal()

    def __eq__(self, other: object) -> bool:
        raise self.refusal()

    def __ne__(self, other: object) -> bool:
        raise self.refusal()

    def __hash__(self) -> int:
        raise self.refusal()
