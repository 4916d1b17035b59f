"""Ways to run a call or a region, as texts that lock files have and people read.

rowwise                              the executor
rowwise(rowwise_block=32768)         with another value of an option that it reads
inductor in parts at 3               a region, cut before its fourth call: each part has an entry
call by call                         the calls of a region by the executors that take what is left
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["CALLS", "Way"]

#: in the place of an executor: the calls of a region one by one, by the executors that take what is left
CALLS: Final = "call by call"

_PARTS: Final = " in parts at "
_FORM: Final = re.compile(r"(?P<executor>[^()]+?)(\((?P<options>.*)\))?( in parts at (?P<cuts>\d+(, \d+)*))?")


@dataclass(frozen=True)
class Way:
    """An executor, or `CALLS`, with values of options and the positions before which a region is cut."""

    executor: str
    options: Mapping[str, Any] = field(default_factory=dict)
    cuts: tuple[int, ...] = ()

    @staticmethod
    def of(text: str) -> Way:
        """Return the way of a text; raise ValueError for a text that is none."""
        found = _FORM.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is not an executor with options")
        cuts = tuple(map(int, found["cuts"].split(", "))) if found["cuts"] else ()
        return Way(found["executor"], _options_of(found["options"] or ""), cuts)

    def __str__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in sorted(self.options.items()))
        text = f"{self.executor}({options})" if options else self.executor
        return text + (_PARTS + ", ".join(map(str, self.cuts)) if self.cuts else "")


def _options_of(text: str) -> dict[str, Any]:
    """Return the options of ``a=1, b='x'``, whose values are literals; raise ValueError for another text."""
    if not text:
        return {}
    try:
        call = ast.parse(f"options({text})", mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"{text!r} are not options") from error
    if not isinstance(call, ast.Call) or call.args or not all(word.arg for word in call.keywords):
        raise ValueError(f"{text!r} are not options")
    return {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
