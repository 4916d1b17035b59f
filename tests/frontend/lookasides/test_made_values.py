"""Dates, random bytes and UUIDs that a program makes: a value of each call, and what it computes of it."""

# ruff: noqa: UP031  (formatting by percent is what is tested)

from __future__ import annotations

import datetime
import logging
import os
import secrets
import time
import uuid
import zoneinfo
from typing import Any

import pytest
import torch

import thunder
from thunder.base.errors import ThunderError, UnsupportedProgram

#: name → an expression whose value differs from call to call
MADE = {
    "now": lambda: datetime.datetime.now(),
    "now in a zone": lambda: datetime.datetime.now(tz=datetime.UTC),
    "utcnow": lambda: datetime.datetime.utcnow(),
    "today with a time": lambda: datetime.datetime.today(),
    "uuid1": lambda: uuid.uuid1(),
    "uuid4": lambda: uuid.uuid4(),
    "bytes": lambda: os.urandom(8),
    "secret bytes": lambda: secrets.token_bytes(8),
    "secret text": lambda: secrets.token_hex(8),
    "secret text of a URL": lambda: secrets.token_urlsafe(),
}
VALUES = {name: make for name, make in MADE.items() if "text" not in name}

made = pytest.mark.parametrize("make", MADE.values(), ids=MADE)
value = pytest.mark.parametrize("make", VALUES.values(), ids=VALUES)


class Kept:
    """An object in which programs keep values."""

    last: Any = None

    def __init__(self) -> None:
        self.by_name: dict[str, Any] = {}


@made
@pytest.mark.parametrize("requires_grad", [False, True])
def test_each_call_makes_a_value_for_each_place(make, requires_grad):
    made, kept = [], Kept()

    def program(x):
        first, second = make(), make()
        made.append(first)
        kept.last, kept.by_name["second"] = second, second
        return x.sin(), {"both": [first, second]}, first

    compiled = thunder.jit(program)
    seen = set()
    for calls in range(1, 4):
        y, both, first = compiled(torch.ones(calls + 1, requires_grad=requires_grad))
        assert y.shape == (calls + 1,)
        assert len(made) == calls
        assert type(first) is type(make())
        assert both["both"] == [first, kept.last]
        assert made[-1] == first
        assert kept.by_name == {"second": kept.last}
        seen |= {first, kept.last}
    assert len(seen) == 6


def test_a_value_that_is_kept_is_no_fact_of_the_next_call():
    kept = Kept()

    def program(x):
        kept.last = uuid.uuid4()
        return x

    compiled = thunder.jit(program)
    seen = set()
    for _ in range(3):
        compiled(torch.ones(1))
        seen.add(kept.last)
    assert (len(seen), thunder.cache_misses(compiled)) == (3, 1)


def test_a_value_is_one_object_in_each_place():
    kept = []

    def program(x):
        made = uuid.uuid4()
        kept.append(made)
        return made, [made], x

    compiled = thunder.jit(program)
    for _ in range(2):
        first, (second,), _ = compiled(torch.ones(1))
        assert first is second is kept[-1]


def test_a_date_of_today_is_one_of_the_call():
    compiled = thunder.jit(lambda x: (x, datetime.date.today()))
    for _ in range(2):
        before = datetime.date.today()
        assert before <= compiled(torch.ones(1))[1] <= datetime.date.today()


@value
@pytest.mark.parametrize(
    "text", [str, repr, lambda v: f"{v}", lambda v: f"<{v!r}>", lambda v: "%s" % v, lambda v: str([v, 1])]
)
def test_its_texts_are_those_of_the_call(make, text):
    def program(x):
        made = make()
        x.add_(1)
        return made, text(made)

    compiled = thunder.jit(program)
    seen = set()
    for _ in range(3):
        made, shown = compiled(torch.ones(1))
        assert shown == text(made)
        assert type(shown) is str
        seen.add(shown)
    assert len(seen) == 3


def test_a_date_is_formatted_by_a_specification():
    compiled = thunder.jit(lambda x: (lambda now: (now, f"at {now:%Y %H:%M:%S.%f}"))(datetime.datetime.now()))
    for _ in range(2):
        now, text = compiled(torch.ones(1))
        assert text == f"at {now:%Y %H:%M:%S.%f}"


def test_it_is_printed_and_logged(capsys, caplog):
    def program(x):
        run = uuid.uuid4()
        print("run", run)
        logging.getLogger("runs").warning("run %s", run)
        return run

    compiled = thunder.jit(program)
    for _ in range(2):
        run = compiled(torch.ones(1))
        assert capsys.readouterr().out == f"run {run}\n"
        assert caplog.messages[-1] == f"run {run}"


@value
def test_its_class_is_the_callers(make):
    compiled = thunder.jit(lambda x: (isinstance(make(), datetime.date), type(make()), make() is None))
    expected = type(make())
    assert compiled(torch.ones(1)) == (issubclass(expected, datetime.date), expected, False)


#: what a program computes of a value; the results of two values are equal
COMPUTED = {
    "equality": lambda v: (v == 3, v != 3, 3 in [v], v == v),
    "truth": lambda v: 1 if v else 0,
    "attributes": lambda v: (hasattr(v, "year"), hasattr(v, "hex"), hasattr(v, "other")),
    "length of a text": lambda v: len(str(v)) > 3,
    "a part of a text": lambda v: len(f"run-{v}"[:6].upper()),
    "a padded text": lambda v: len("%200s" % str(v)),
    "its class": lambda v: (isinstance(v, datetime.date), type(v)),
}


@value
@pytest.mark.parametrize("use", COMPUTED.values(), ids=COMPUTED)
def test_what_is_computed_of_it_is_eagers(make, use):
    compiled = thunder.jit(lambda x: (x, use(make())))
    for _ in range(2):
        assert compiled(torch.ones(1))[1] == use(make())


#: what is computed of a value that the program returns as well
DERIVED = {
    "hex": (uuid.uuid4, lambda v: v.hex),
    "part of hex": (uuid.uuid4, lambda v: "run-" + v.hex[:8].upper()),
    "integer": (uuid.uuid4, lambda v: v.int),
    "year": (datetime.datetime.now, lambda v: v.year),
    "isoformat": (datetime.datetime.now, lambda v: v.isoformat()),
    "timestamp": (datetime.datetime.now, lambda v: v.timestamp()),
    "later": (datetime.datetime.now, lambda v: v + datetime.timedelta(days=400)),
    "elapsed": (datetime.datetime.now, lambda v: (v - datetime.datetime(2020, 1, 1)).total_seconds()),
    "before": (datetime.date.today, lambda v: datetime.date(2020, 1, 1) < v.replace(day=1)),
    "zone": (lambda: datetime.datetime.now(zoneinfo.ZoneInfo("Asia/Tokyo")), lambda v: v.strftime("%H %Z")),
    "sum of bytes": (lambda: os.urandom(8), lambda v: v + b"end"),
    "number of bytes": (lambda: os.urandom(8), lambda v: int.from_bytes(v, "big") + v[0]),
    "time": (time.localtime, lambda v: (v.tm_year, time.strftime("%Y", v))),
}


@pytest.mark.parametrize("name", DERIVED)
def test_what_is_computed_of_it_is_of_the_call(name):
    make, use = DERIVED[name]

    def program(x):
        made = make()
        return x + 1, made, use(made)

    compiled = thunder.jit(program)
    seen = set()
    for _ in range(3):
        _, made, computed = compiled(torch.ones(1))
        assert computed == use(made)
        assert type(computed) is type(use(made))
        seen.add(made)
    assert len(seen) == 3 or make() in seen
    assert thunder.cache_misses(compiled) == 1


def test_a_number_of_it_scales_a_tensor():
    compiled = thunder.jit(lambda x: (x * datetime.date.today().year, secrets.randbelow(1)))
    for _ in range(2):
        scaled, drawn = compiled(torch.ones(2))
        assert (scaled.tolist(), drawn) == ([float(datetime.date.today().year)] * 2, 0)


@value
@pytest.mark.parametrize(
    "use",
    [
        lambda v: {v: 1},
        lambda v: v in {3},
        lambda v: sorted([v, v]),
        lambda v: "%50s" % v,
        lambda v: set(map(str, [v])),
        lambda v: thunder.opaque(lambda passed: torch.ones(1))(v),
        lambda v: thunder.opaque(lambda passed: torch.ones(1))([str(v)]),
    ],
)
def test_what_looks_into_it_is_refused(make, use):
    with pytest.raises(UnsupportedProgram, match=r"each call makes anew"):
        thunder.jit(lambda x: (x, use(make())))(torch.ones(1))


@made
def test_in_a_special_place_it_is_refused(make):
    def region(x):
        make()
        return x.sin()

    def checkpointed(x):
        return torch.utils.checkpoint.checkpoint(region, x, use_reentrant=False)

    for program in (checkpointed, torch.vmap(region)):
        with pytest.raises(UnsupportedProgram, match=r"calls [\w.]+\(\) in a (checkpointed|mapped)"):
            thunder.jit(lambda x, program=program: program(x))(torch.ones(2, requires_grad=True))


def test_in_a_differentiated_function_it_is_made_once_in_a_call():
    made = []

    def loss(x):
        made.append(uuid.uuid4())
        return x.sin().sum()

    compiled = thunder.jit(lambda x: torch.func.grad(loss)(x))
    for calls in range(1, 4):
        x = torch.ones(2)
        assert torch.equal(compiled(x), x.cos())
        assert len(set(made)) == len(made) == calls


def test_an_item_of_a_tuple_is_passed_on():
    compiled = thunder.jit(lambda x: ((uuid.uuid4(), x)[0], (x, str(uuid.uuid4()))[-1]))
    results = [part for _ in range(3) for part in compiled(torch.ones(1))]
    assert len(set(results)) == 6


def test_arguments_are_facts_and_their_errors_are_pythons():
    compiled = thunder.jit(lambda x, n: os.urandom(n))
    for n in (3, 5, 3):
        assert len(compiled(torch.ones(1), n)) == n
    with pytest.raises(ValueError, match="negative argument not allowed"):
        compiled(torch.ones(1), -1)


def test_a_class_that_extends_a_date_is_refused():
    class Own(datetime.datetime):
        pass

    with pytest.raises(UnsupportedProgram, match=r"Own\.now\(\), of a class that extends"):
        thunder.jit(lambda x: Own.now())(torch.ones(1))


@pytest.mark.parametrize("template", ["%40s|", "%.3s", "%r", "%-40s|"])
def test_a_conversion_that_changes_a_text_reads_it(template):
    compiled = thunder.jit(lambda x: template % str(x.sum().item()))
    for n in (1, 20, 3):
        assert compiled(torch.ones(n)) == template % str(float(n))
    with pytest.raises(ThunderError, match="the text of a tensor shows its values"):
        thunder.jit(lambda x: template % str(x))(torch.ones(1))
