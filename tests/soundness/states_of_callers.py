"""Values and iterators of a caller that programs use: a state, a program of it, and what changes it.

Each program is run in two equal worlds, by eager and compiled, for several calls.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import itertools
import types
import zoneinfo
from collections.abc import Callable, Iterator
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any, NamedTuple

import torch

State = types.SimpleNamespace


class Row(NamedTuple):
    """What makes the state, the program of a tensor and the state, and what changes the state before a call.

    ``refused`` is a part of the refusal of a program that is not compiled.
    """

    make: Callable[[], State]
    program: Callable[[torch.Tensor, State], Any]
    change: Callable[[State, int], object] = lambda s, i: None
    refused: str = ""


def set_to(name: str, *values: Any) -> Callable[[State, int], object]:
    """Return a change that gives an attribute the values one after the other."""
    return lambda s, i: setattr(s, name, values[i % len(values)])


def set_context(name: str, *values: Any) -> Callable[[State, int], object]:
    return lambda s, i: setattr(decimal.getcontext(), name, values[i % len(values)])


# -- decimals and dates --------------------------------------------------------------------------------------


def arithmetic(x: torch.Tensor, s: State) -> Any:
    d = s.d * 2 + Decimal(1) / 3
    parts = d, str(d), int(d), d > 3, -d, abs(d), d**2, d % 2, d // 2, round(d, 2), divmod(d, 2), d.sqrt()
    return x * float(d), parts, d.quantize(Decimal("0.01")), bool(d), f"{d:.3f}", hash(d) == hash(+d)


def written(x: torch.Tensor, s: State) -> Any:
    s.d = s.d * Decimal("1.1")
    return x * float(s.d)


def local_context(x: torch.Tensor, s: State) -> Any:
    with localcontext() as context:
        context.prec = 4
        inside = Decimal(2).sqrt()
    return x * float(inside), inside, Decimal(2).sqrt()


def written_context(x: torch.Tensor, s: State) -> Any:
    decimal.getcontext().prec = 6
    return x, Decimal(1) / 3


def other_context(x: torch.Tensor, s: State) -> Any:
    decimal.setcontext(decimal.Context(prec=3))
    return Decimal(1) / 3


def without_a_trap(x: torch.Tensor, s: State) -> Any:
    decimal.getcontext().traps[decimal.DivisionByZero] = False
    return Decimal(1) / Decimal(0)


def invalid(x: torch.Tensor, s: State) -> Any:
    try:
        return x * float(Decimal(s.v))
    except decimal.InvalidOperation:
        return x - 1


def numbers_of_tensors(x: torch.Tensor, s: State) -> Any:
    n, size = x.sum().item(), s.y.shape[0]
    parts = s.d < n, s.d == n, n < s.d, Decimal(6) == n, Decimal(size) * 2, size + s.d, s.d < size
    return parts, {Decimal(6): "six"}[n], Decimal(6) in [n], max(Decimal(7), n), Fraction(size, 7), Decimal(n)


def sums(x: torch.Tensor, s: State) -> Any:
    return x * float(sum(s.l)), sum(v for v in s.l), sum(map(abs, s.l)), sorted(s.l), max(s.l), min(s.l)


def dates(x: torch.Tensor, s: State) -> Any:
    moved = s.d + s.t
    local = s.d.astimezone(s.z)
    parts = moved.isoformat(), (moved - s.d).days, s.t.total_seconds(), s.t / 2, f"{moved:%Y-%m}", local
    return x * moved.day, parts, {s.d: 2}[s.d], local.utcoffset(), local.tzname(), s.z.key, s.d.timestamp()


def many_sizes(s: State, i: int) -> None:
    s.y = torch.ones(3 + i)


ROUNDINGS = (decimal.ROUND_HALF_EVEN, decimal.ROUND_UP, decimal.ROUND_DOWN)
KEYS = {Decimal("1.0"): 2.0, Fraction(5, 2): 3.0}
BERLIN, TOKYO = (zoneinfo.ZoneInfo(key) for key in ("Europe/Berlin", "Asia/Tokyo"))
#: name → a program of values
VALUES = {
    "decimals": Row(lambda: State(d=Decimal("1.5")), arithmetic, set_to("d", *map(Decimal, "1235"))),
    "decimals in the precision of the call": Row(
        lambda: State(d=Decimal("1.5")), arithmetic, set_context("prec", 28, 5, 5, 9)
    ),
    "a decimal that is written": Row(lambda: State(d=Decimal("1.5")), written),
    "digits": Row(
        lambda: State(d=None),
        lambda x, s: (str(s.d), s.d.as_tuple(), s.d == 1, x),
        set_to("d", *map(Decimal, ("1.0", "1.00", "-0", "NaN"))),
    ),
    "keys": Row(
        lambda: State(t=dict(KEYS)),
        lambda x, s: (x * s.t[Decimal("1.00")], s.t.get(1), s.t[2.5], list(s.t)),
        lambda s, i: s.t.update({Decimal(i): 7.0}),
    ),
    "rounding": Row(
        State,
        lambda x, s: (x, Decimal("2.665").quantize(Decimal("0.01")), decimal.getcontext().rounding),
        set_context("rounding", *ROUNDINGS),
    ),
    "a local context": Row(State, local_context, set_context("prec", 28, 9)),
    "a context that is written": Row(State, written_context, set_context("prec", 28, 9)),
    "another context": Row(State, other_context, set_context("prec", 28, 9)),
    "a context of its own": Row(State, lambda x, s: decimal.Context(prec=4).divide(Decimal(1), Decimal(3))),
    "a trap": Row(State, without_a_trap),
    "flags": Row(
        State,
        lambda x, s: (decimal.getcontext().flags[decimal.Inexact], Decimal(1) / 3),
        lambda s, i: decimal.getcontext().clear_flags() if i % 2 else None,
    ),
    "invalid texts": Row(lambda: State(v=""), invalid, set_to("v", "1", "x", "2", "x")),
    "numbers and sizes": Row(lambda: State(d=Decimal(6), y=None), numbers_of_tensors, many_sizes),
    "sums": Row(lambda: State(l=[Decimal("3"), Decimal("1")]), sums, lambda s, i: s.l.append(Decimal(i) / 7)),
    "fractions": Row(
        lambda: State(f=None),
        lambda x, s: (x * float(s.f), s.f + Fraction("1/6"), s.f.numerator, s.f == 0.5, round(s.f)),
        set_to("f", Fraction(1, 2), Fraction(1, 3), Fraction(7)),
    ),
    "dates": Row(
        lambda: State(d=datetime.datetime(2024, 3, 30, tzinfo=BERLIN), t=datetime.timedelta(1), z=TOKYO),
        dates,
        lambda s, i: (setattr(s, "d", s.d + s.t * i), setattr(s, "z", (TOKYO, BERLIN)[i % 2])),
    ),
    "a zone of the database": Row(
        lambda: State(d=datetime.datetime(2024, 6, 1)),
        lambda x, s: s.d.replace(tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")).isoformat(),
        lambda s, i: setattr(s, "d", s.d + datetime.timedelta(60)),
    ),
}


# -- iterators -----------------------------------------------------------------------------------------------


def begun(iterator: Iterator[Any], steps: int = 1) -> Any:
    """Return an iterator of which some elements are taken."""
    for _ in range(steps):
        next(iterator)
    return iterator


def generator(count: int, log: list[Any]) -> Iterator[Any]:
    try:
        for i in range(count):
            log.append(i)
            sent = yield float(i)
            if sent is not None:
                log.append(("sent", sent))
    finally:
        log.append("end")


def with_log(count: int = 9, steps: int = 1) -> State:
    log: list[Any] = []
    return State(it=begun(generator(count, log), steps), log=log, n=0)


def of_state(s: State) -> Iterator[float]:
    while True:
        s.n += 1
        yield float(s.n)


def with_state() -> State:
    s = State(n=0)
    s.it = begun(of_state(s))
    return s


def failing() -> Iterator[float]:
    yield from (1.0, 2.0, 3.0)
    raise ValueError("end")


def with_rows() -> State:
    rows = [[1.0], [2.0], [3.0], [4.0], [5.0]]
    return State(rows=rows, it=itertools.chain(rows))


def with_source(make: Callable[[Any], Any]) -> State:
    a = iter([float(i) for i in range(20)])
    return State(a=a, it=make(a))


def caught(x: torch.Tensor, s: State) -> Any:
    try:
        return x * next(s.it)
    except (ValueError, StopIteration) as error:
        return x - 1, type(error).__name__


def pairs(x: torch.Tensor, s: State) -> Any:
    total = 0.0
    for i, (a, b) in enumerate(zip(s.it, s.it, strict=False)):
        total = total + a * b
        if i == 1:
            break
    return x * total


def write_before(x: torch.Tensor, s: State) -> Any:
    s.n = s.n + 1
    return x * next(s.it)


def write_and_fail(x: torch.Tensor, s: State) -> Any:
    s.n = next(s.it)
    if s.n > 2:
        raise ValueError("large")
    return x * s.n


def write_to_row(x: torch.Tensor, s: State) -> Any:
    row = next(s.it)
    row.append(7.0)
    return x * row[0]


def step(x: torch.Tensor, s: State) -> Any:
    return x * next(s.it)


def made(make: Callable[[], Iterator[Any]], program: Any = step, **options: Any) -> Row:
    """Return the row of an iterator."""
    return Row(lambda: State(it=make()), program, **options)


def total(x: torch.Tensor, s: State) -> Any:
    return x * sum(next(s.it, (0,)))


FLOATS = [1.0, 2.0, 3.0, 4.0, 5.0]
#: name → a program that advances an iterator
ITERATORS = {
    "a generator": Row(with_log, step),
    "a generator that ends": Row(lambda: with_log(3), step),
    "a generator with a default": Row(lambda: with_log(3), lambda x, s: x * next(s.it, 5.0)),
    "a generator that is consumed": Row(lambda: with_log(3), lambda x, s: x * sum(s.it)),
    "a generator in parts": Row(with_log, lambda x, s: [x * v for v in itertools.islice(s.it, 2)]),
    "a generator that is sent to": Row(with_log, lambda x, s: x * s.it.send(3)),
    "a generator that is closed": Row(with_log, lambda x, s: (s.it.close(), x)[1]),
    "a generator that has not begun": Row(lambda: with_log(9, 0), step),
    "a generator that others advance": Row(with_log, step, lambda s, i: next(s.it)),
    "a generator in a dict": Row(lambda: State(d={"it": with_log().it}), lambda x, s: x * next(s.d["it"])),
    "another generator": Row(with_log, step, lambda s, i: setattr(s, "it", begun(generator(9, s.log), i))),
    "a generator of tensors": made(
        lambda: begun(torch.ones(2) * i for i in range(9)), lambda x, s: x.sum() * next(s.it)
    ),
    "a generator of a state": Row(with_state, step, lambda s, i: setattr(s, "n", s.n + 10)),
    "a state that the program reads": Row(with_state, lambda x, s: (x * next(s.it), s.n), refused="changed"),
    "a state that the program writes": Row(with_state, write_before, refused="has written before"),
    "a generator that raises": made(lambda: begun(failing())),
    "a generator whose error is handled": made(lambda: begun(failing()), caught),
    "an error after a step": Row(with_log, write_and_fail, refused="raises after it has advanced"),
    "a row that is written": Row(with_rows, write_to_row, refused="the caller may have as well"),
    "pairs": Row(with_log, pairs),
    "a branch": Row(with_log, lambda x, s: x if next(s.it) > 2 else -x),
    "an index": made(
        lambda: begun(itertools.chain([0, 1, 0, 2, 1])), lambda x, s: x * [2.0, 3.0, 4.0][next(s.it)]
    ),
    "what is stored": Row(with_log, lambda x, s: (setattr(s, "n", next(s.it)), x * s.n)[1]),
    "what is left for later": Row(with_log, lambda x, s: (x, map(abs, s.it))[0]),
    "texts": made(lambda: itertools.chain("abcdef"), lambda x, s: next(s.it) + "!"),
    "its class": made(
        lambda: itertools.chain(FLOATS),
        lambda x, s: (type(s.it), isinstance(s.it, itertools.chain), isinstance(s.it, map), next(s.it)),
    ),
    "islice": made(lambda: itertools.islice(itertools.count(1.0), 2, 20)),
    "chain": made(lambda: begun(itertools.chain(FLOATS[:2], FLOATS))),
    "accumulate": made(lambda: begun(itertools.accumulate(FLOATS, lambda a, b: a * b + 1))),
    "pairwise": made(lambda: itertools.pairwise(FLOATS), total),
    "zip_longest": made(lambda: itertools.zip_longest(FLOATS[:3], [4.0], fillvalue=9.0), total),
    "product": made(lambda: begun(itertools.product(FLOATS[:2], FLOATS[:2])), total),
    "combinations": made(lambda: itertools.combinations(FLOATS[:3], 2), total),
    "tee": made(lambda: itertools.tee(FLOATS)[0]),
    "cycle of a generator": made(lambda: itertools.cycle(generator(3, []))),
    "cycle in a dict": Row(
        lambda: State(d={"it": itertools.cycle(FLOATS[:3])}), lambda x, s: x * next(s.d["it"])
    ),
    "count in a list": Row(lambda: State(d=[itertools.count(5)]), lambda x, s: x * next(s.d[0])),
    "enumerate of a generator": made(lambda: enumerate(generator(9, [])), total),
    "map of a generator": made(lambda: map(abs, generator(9, []))),
    "a dict's": made(lambda: begun(iter(dict.fromkeys(FLOATS, 1).items())), total),
    "a dict's that is written": Row(
        lambda: (lambda d: State(d=d, it=iter(d)))(dict.fromkeys(FLOATS, 1)),
        step,
        lambda s, i: s.d.update({float(9 + i): 1}) if i == 2 else None,
    ),
    "a set's": made(lambda: iter(set(FLOATS))),
    "a deque's": made(lambda: iter(collections.deque(FLOATS))),
    "a reversed dict's": made(lambda: reversed(dict.fromkeys(FLOATS))),
    "a callable's": made(lambda: iter(list(FLOATS).pop, 3.0), lambda x, s: x * next(s.it, 7.0)),
    "a list's that is shortened": Row(
        lambda: (lambda v: State(l=v, it=begun(iter(v), 3), c=v.clear()))(FLOATS[:3]),
        lambda x, s: x * next(s.it, 8.0),
        lambda s, i: s.l.append(float(i)),
    ),
    "a loader's": made(
        lambda: iter(torch.utils.data.DataLoader(torch.arange(12.0).reshape(4, 3))),
        lambda x, s: x * next(s.it)[0],
    ),
    "two that are one": Row(
        lambda: with_source(itertools.chain),
        lambda x, s: (next(s.it), next(s.a)),
        refused="another iterator advances",
    ),
}
