"""Random programs that write numbers: counters, means and lengths, computed with and used in tensors.

def program(x, o):
    o.a = ((o.a * o.c) ^ 5)
    o.b = math.sqrt(abs((o.b + 0.5)))
    return [x[: abs(o.a) % 5], f"{o.b}"]
"""

from __future__ import annotations

import linecache
import math
import random
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, Final

import torch

__all__ = ["CHANGES", "STARTS", "program"]

#: what the numbers of an object are at first
STARTS: Final = {"a": [0, 1, 5, -3], "b": [0.0, 1.0, -2.5, 0.3], "c": [0, 2]}
#: what a user sets a number to between two calls
CHANGES: Final = [0, 1, -7, 2**40, 2**70, True, 0.0, -0.0, 2.5, math.inf, math.nan, -1.0]

_CONSTANTS: Final = ["0", "1", "2", "3", "5", "7", "-2", "100"]
#: forms of expressions: {i} is an integer, {f} a float, {k} a small integer, {c} a condition
_INTEGERS: Final = [
    *("({i} + {i})", "({i} - {i})", "({i} * {i})", "({i} // {k})", "({i} % {k})", "(-{i})", "abs({i})"),
    *(
        "({i} ^ {k})",
        "({i} & {i})",
        "({i} | {k})",
        "({i} << 1)",
        "({i} >> 1)",
        "(~{i})",
        "({i}).bit_length()",
    ),
    *(
        "min({i}, {i})",
        "max({i}, {k})",
        "({i} if {c} else {i})",
        "divmod({i}, {k})[0]",
        "divmod({i}, {k})[1]",
    ),
    *("int({f})", "round({f})", "math.floor({f})"),
]
_FLOATS: Final = [
    *(
        "({f} * 1.1)",
        "({f} * 0.9)",
        "({f} + {f})",
        "({f} - {f})",
        "({f} / 3)",
        "({i} / 4)",
        "(-{f})",
        "abs({f})",
    ),
    *(
        "math.sqrt(abs({f}))",
        "math.exp(min({f}, 2.0))",
        "math.cos({f})",
        "({f} ** 2)",
        "({f} % 1.5)",
        "({f} // 0.5)",
    ),
    *(
        "round({f}, 2)",
        "min({f}, {f})",
        "max({f}, 0.25)",
        "x.sum().item()",
        "(0.9 * {f} + 0.1 * x.mean().item())",
    ),
]
_CONDITIONS: Final = ["{i} > {k}", "o.a % 2 == 0", "{f} < 1.0", "o.c == 3", "o.a", "not o.b"]
_STATEMENTS: Final = [
    *(
        "o.a = {i}",
        "o.b = {f}",
        "o.c += 1",
        "o.a += {i}",
        "o.b *= {f}",
        "o.xs.append({i})",
        "if {c}: o.c = {i}",
    ),
]
_USES: Final = [
    *("x * {i}", "x + {f}", "x * ({c})", "x[: abs({i}) % 5]", "torch.full((abs({i}) % 3 + 1,), float({f}))"),
    *("x ** (abs({i}) % 3)", "x.roll({i} % 5)", "x.clamp(min={f})", "torch.tensor({i} % 1000)"),
    *("torch.add(x, x, alpha={i} % 1000)", "f'{{{i}}}'", "str({f})", "[0] * (abs({i}) % 4)", "({i}, {f})"),
    *("{{{i} % 3: 1}}", "hash({i})", "o.c is o.a", "range({i} % 5)"),
]


def program(seed: int) -> tuple[str, Callable[[torch.Tensor, SimpleNamespace], Any], random.Random]:
    """Return the text of a program, the program, and the numbers that are left of its seed."""
    rng = random.Random(seed)
    lines = [_filled(rng, rng.choice(_STATEMENTS), 3) for _ in range(rng.randint(1, 3))]
    lines.append(f"return [{', '.join(_filled(rng, rng.choice(_USES), 2) for _ in range(2))}]")
    text = "def program(x, o):\n" + "".join(f"    {line}\n" for line in lines)
    file, namespace = f"<written numbers {seed}>", {"torch": torch, "math": math}
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    exec(compile(text, file, "exec"), namespace)
    return text, namespace["program"], rng


def _filled(rng: random.Random, form: str, depth: int) -> str:
    """Return a form with expressions of a depth in its places."""
    forms = {
        "{i}": lambda: _expression(
            rng, _INTEGERS, ["o.a", "o.c", "len(o.xs)", rng.choice(_CONSTANTS)], depth
        ),
        "{f}": lambda: _expression(rng, _FLOATS, ["o.b", "o.b", "0.5", "-2.0", "float(o.a)"], depth),
        "{k}": lambda: rng.choice(["1", "2", "3", "5", "7"]),
        "{c}": lambda: _filled(rng, rng.choice(_CONDITIONS), 1),
    }
    for place, make in forms.items():
        while place in form:
            form = form.replace(place, make(), 1)
    return form.replace("{{", "{").replace("}}", "}")


def _expression(rng: random.Random, forms: Sequence[str], leaves: Sequence[str], depth: int) -> str:
    return rng.choice(leaves) if depth <= 1 else _filled(rng, rng.choice(forms), rng.randint(1, depth - 1))
