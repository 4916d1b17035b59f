"""Progress bars of tqdm at run time: statements of a computation draw them."""

from __future__ import annotations

import threading
from typing import Any

from thunder.frontend.output.output_replay import formatted

__all__ = ["BarPlace", "begin_bar", "call_of_bar", "end_bar", "text_of_bar"]


class BarPlace:
    """The place of a bar in a program; each call, in its thread, has a bar of the class ``cls`` there."""

    def __init__(self, cls: Any) -> None:
        self.cls = cls
        self._bars = threading.local()

    @property
    def bar(self) -> Any:
        """The bar of the running call."""
        return self._bars.bar

    @bar.setter
    def bar(self, bar: Any) -> None:
        self._bars.bar = bar

    @bar.deleter
    def bar(self) -> None:
        del self._bars.bar

    def __repr__(self) -> str:
        return f"<a bar of {self.cls.__qualname__}>"


def begin_bar(place: BarPlace, **settings: Any) -> None:
    """Draw a new bar."""
    place.bar = place.cls(**settings)


def _advance(place: BarPlace, count: float, total: float | None) -> Any:
    bar = place.bar
    bar.total = total
    bar.update(count - bar.n)
    return bar


def call_of_bar(
    place: BarPlace, count: float, total: float | None, method: str, *args: Any, **kwargs: Any
) -> None:
    """Call a method of the bar, after so many iterations of a total number."""
    getattr(_advance(place, count, total), method)(*args, **kwargs)


def text_of_bar(
    place: BarPlace,
    count: float,
    total: float | None,
    method: str,
    template: str,
    values: tuple[Any, ...],
    specs: tuple[str | None, ...],
    *options: Any,
) -> None:
    """Call a method of the bar with a text of values."""
    getattr(_advance(place, count, total), method)(formatted(template, values, specs), *options)


def end_bar(place: BarPlace, count: float, total: float | None) -> None:
    """Close the bar after so many iterations."""
    _advance(place, count, total).close()
    del place.bar
