"""Dates and times that programs read, compute and return: values, which are guarded as numbers are."""

from __future__ import annotations

import datetime
import locale
import os
import time
from datetime import date, timedelta, timezone
from typing import Any

import pytest
import torch

import thunder
from thunder.base.errors import UnsupportedProgram

ONE = timezone(timedelta(hours=1))
NOON = datetime.datetime(2020, 1, 2, 12)
NOON_IN_UTC = NOON.replace(tzinfo=datetime.UTC)

#: values of each class, neighbours of which differ in one part
VALUES: dict[str, list[Any]] = {
    "date": [date(2020, 1, 2), date(2020, 1, 3)],
    "datetime": [
        *(NOON, NOON.replace(fold=1), NOON.replace(hour=11)),
        *(NOON.replace(tzinfo=datetime.UTC), NOON.replace(hour=13, tzinfo=ONE)),
    ],
    "time": [datetime.time(1), datetime.time(1, fold=1), datetime.time(1, tzinfo=ONE)],
    "timedelta": [timedelta(1), timedelta(1, microseconds=1)],
    "timezone": [datetime.UTC, ONE, timezone(timedelta(hours=1), "one")],
}


class Holder:
    """Has a value."""

    value: Any = None


class Changing(datetime.tzinfo):
    """A time zone whose offset changes."""

    hours = 1

    def utcoffset(self, moment: Any) -> timedelta:
        return timedelta(hours=self.hours)


def text(value: Any) -> str:
    return f"{value!r} {value} {getattr(value, 'fold', 0)}"


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("place", ["argument", "attribute", "item", "key", "element"])
def test_a_changed_value_is_noticed(kind, place):
    holder, x = Holder(), torch.ones(2)
    programs: dict[str, Any] = {
        "argument": (lambda x, v: (x * len(text(v)), text(v), v), lambda v: v),
        "attribute": (lambda x, h: (x, text(h.value), h.value), lambda v: holder),
        "item": (lambda x, items: (x, text(items[1]), items[1]), lambda v: [0, v]),
        "key": (lambda x, d: (x, [text(k) for k in d], next(iter(d))), lambda v: {v: 2}),
        "element": (lambda x, pair: (x, text(pair[0]), pair[0]), lambda v: (v, 1)),
    }
    program, made = programs[place]
    compiled = thunder.jit(program)
    for value in VALUES[kind] * 2:
        holder.value = value
        (_, shown, same), expected = compiled(x, made(value)), program(x, made(value))
        assert (shown, text(same)) == (expected[1], text(expected[2]))
    assert thunder.cache_misses(compiled) == len(VALUES[kind])


COMPUTED = {
    "difference": lambda x, d: (d - date(2019, 5, 6)).days,
    "sum": lambda x, d: d + timedelta(days=x.shape[0]),
    "ratio": lambda x, d: timedelta(days=d.day) / timedelta(hours=5),
    "order": lambda x, d: sorted([date(2020, 1, 3), d, date.max])[1],
    "combined": lambda x, d: datetime.datetime.combine(d, datetime.time(3), tzinfo=datetime.UTC),
    "parsed": lambda x, d: datetime.datetime.fromisoformat(d.isoformat()),
    "parsed by a format": lambda x, d: datetime.datetime.strptime(f"{d} 5", "%Y-%m-%d %H"),
    "formatted": lambda x, d: (d.strftime("%d/%m"), f"{d:%Y}", format(d, "%j")),
    "of a timestamp": lambda x, d: datetime.datetime.fromtimestamp(d.day, datetime.UTC),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_results_are_pythons(name):
    compiled = thunder.jit(COMPUTED[name])
    for size, day in ((2, date(2020, 1, 2)), (3, date(2020, 1, 2)), (2, date(2020, 1, 5))):
        x = torch.ones(size)
        assert text(compiled(x, day)) == text(COMPUTED[name](x, day))


IN_A_LOCALE = {
    "f-string": lambda x, d: f"{d:%B} {d:%{'A'}}",
    "format": lambda x, d: (format(d, "%B"), list(map(format, [d], ["%x"]))),
    "fields": lambda x, d: (
        "{:%B}".format(*[d]),
        "{a:{b}}".format(a=d, b="%c"),
        "{a:%B}".format_map({"a": d}),
    ),
    "methods": lambda x, d: (d.__format__(""), d.strftime("%d"), locale.setlocale(locale.LC_TIME)),
    "numbers": lambda x, d: (f"{d.year * 1000:n}", format(1e6, "n")),
    "fields of numbers": lambda x, d: ("{:n}".format(*[d.year * 1000]), "{:{}}".format(1e6, "n")),
}


@pytest.mark.parametrize("name", IN_A_LOCALE)
def test_a_text_depends_on_the_locale(name):
    program, x, day = IN_A_LOCALE[name], torch.ones(2), date(2020, 1, 2)
    compiled, before = thunder.jit(program), locale.setlocale(locale.LC_ALL)
    try:
        for there in ("C", "C.UTF-8", "C"):
            locale.setlocale(locale.LC_ALL, there)
            assert compiled(x, day) == program(x, day)
    finally:
        locale.setlocale(locale.LC_ALL, before)
    assert thunder.cache_misses(compiled) == 2


def test_a_program_that_sets_the_locale_is_refused():
    with pytest.raises(UnsupportedProgram, match="setlocale is implemented in C"):
        thunder.jit(lambda x: locale.setlocale(locale.LC_ALL, "C"))(torch.ones(2))


def test_the_strftime_of_a_class_of_ones_own_is_refused():
    class Day(date):
        pass

    with pytest.raises(UnsupportedProgram, match="strftime is implemented in C"):
        thunder.jit(lambda x, d: (x, d.strftime("%d")))(torch.ones(2), Day(2020, 1, 2))


@pytest.mark.parametrize(
    "read", [lambda: NOON.timestamp(), lambda: str(NOON.astimezone()), lambda: str(NOON_IN_UTC.astimezone())]
)
def test_a_time_depends_on_the_time_zone_of_the_process(monkeypatch, read):
    def program(x):
        return x, read()

    compiled, x = thunder.jit(program), torch.ones(2)
    try:
        for zone in ("UTC0", "XYZ-3", "UTC0"):
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            assert compiled(x)[1] == program(x)[1]
        assert thunder.cache_misses(compiled) == 2
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("made", [lambda v: v, lambda v: (v, 1), lambda v: {v: 1}, lambda v: {v}])
def test_a_time_in_a_zone_that_may_change_is_refused(made):
    program = thunder.jit(lambda x, value: (x, str(value)))
    with pytest.raises(UnsupportedProgram, match="time zone of another class"):
        program(torch.ones(2), made(NOON.replace(tzinfo=Changing())))


def test_the_process_and_its_folder_are_facts(tmp_path, monkeypatch):
    compiled, x = thunder.jit(lambda x: (x, os.getpid(), os.getcwd())), torch.ones(2)
    assert compiled(x)[1:] == (os.getpid(), os.getcwd())
    monkeypatch.chdir(tmp_path)
    assert compiled(x)[1:] == (os.getpid(), os.getcwd())
    assert thunder.cache_misses(compiled) == 2
