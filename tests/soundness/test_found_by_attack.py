"""Programs that once gave a stale or wrong result, found by attacking the guards."""

from __future__ import annotations

import collections
import functools
import logging

import pytest
import torch

import thunder
from soundness.harness import Bag, Cases, arg, check_case, ramp, world

cases = Cases()


class Slotted:
    __slots__ = ("k",)


@cases(filled=lambda w: setattr(w.args[1], "k", 4.0))
def slot_that_holds_nothing():
    return world(lambda x, o: x * getattr(o, "k", 7.0), ramp(3), Slotted())


@cases(hits=False, factory=arg(1, collections.defaultdict(float, a=2.0)))
def factory_of_a_defaultdict():
    return world(lambda x, d: x * d["b"] + d["a"], ramp(3), collections.defaultdict(int, a=2.0))


@cases(longer=arg(1, collections.deque([1.0, 2.0], 3)))
def length_limit_of_a_deque():
    return world(lambda x, q: x * sum(q) * q.maxlen, ramp(3), collections.deque([1.0, 2.0], 2))


@cases(order=arg(1, {8, 0}))
def order_of_a_set():
    return world(lambda x, s: x * next(iter(s)) + list(s)[-1], ramp(3), {0, 8})


@cases(step=arg(1, range(0, 4, 2)))
def end_of_a_range():
    return world(lambda x, r: x * r.stop, ramp(3), range(0, 3, 2))


@cases.parametrize()
def test_result_equals_eager(case, change):
    check_case(case, change, thunder)


def test_a_region_of_enable_grad_inside_no_grad_gives_gradients():
    def program(x):
        with torch.enable_grad():
            return x * 2

    x = ramp(3).requires_grad_()
    with torch.no_grad():
        result = thunder.jit(program)(x)
    assert result.requires_grad
    assert torch.equal(torch.autograd.grad(result.sum(), x)[0], torch.full((3,), 2.0))


def test_a_container_is_printed_as_it_was(capsys: pytest.CaptureFixture[str]):
    def program(x):
        seen = [1]
        print(seen)
        seen.append(2)
        return x

    thunder.jit(program)(ramp(3))
    assert capsys.readouterr().out == "[1]\n"


def test_a_changed_base_is_noticed():
    class A:
        pass

    class B(Bag):
        pass

    compiled, x = thunder.jit(lambda x, o: x * isinstance(o, A)), ramp(3)
    assert torch.equal(compiled(x, B()), x * 0)
    B.__bases__ = (A, Bag)
    assert torch.equal(compiled(x, B()), x)


def test_a_method_that_reads_the_whole_object_unseen_is_refused():
    with pytest.raises(thunder.UnsupportedProgram, match="__getstate__"):
        thunder.jit(lambda x, o: x * object.__getstate__(o)["k"])(ramp(3), Bag(k=2.0))


def test_a_cached_function_answers_from_its_cache_as_in_eager():
    state = {"k": 2.0}

    @functools.lru_cache
    def cached(n):
        return state["k"] * n

    compiled, x = thunder.jit(lambda x, n: x * cached(n)), ramp(3)
    assert torch.equal(compiled(x, 3), x * 6.0)
    state["k"] = 5.0
    assert torch.equal(compiled(x, 3), x * 6.0)
    assert torch.equal(compiled(x, 4), x * 20.0)
    cached.cache_clear()
    assert torch.equal(compiled(x, 3), x * 15.0)


def test_a_loggers_cached_method_asks_its_cache_at_each_call(monkeypatch, caplog):
    @functools.lru_cache(None)
    def warning_once(self, text):
        self.warning(text)

    monkeypatch.setattr(logging.Logger, "warning_once", warning_once, raising=False)
    logger = logging.getLogger(__name__)

    def program(x):
        logger.warning_once("said once")
        return x * 2

    compiled = thunder.jit(program)
    for _ in range(2):
        assert torch.equal(compiled(ramp(3)), ramp(3) * 2)
    assert [record.message for record in caplog.records] == ["said once"]
    assert thunder.cache_hits(compiled) == 1
    warning_once.cache_clear()
    compiled(ramp(3))
    assert [record.message for record in caplog.records] == ["said once"] * 2


def sets_and_dicts_by_statement(a, b):
    counts = {}
    counts[a] = 1
    counts[b] = 2
    names = {a}
    names |= {b}
    return len(counts) + 10 * len(names)


#: questions that native code answers by comparing two objects of the user's
WHICH_OBJECTS = {
    "index": lambda a, b: [b, a].index(a),
    "count": lambda a, b: [b, b].count(a),
    "dict": lambda a, b: len({a: 1, b: 2}),
    "dict of pairs": lambda a, b: len(dict(zip([a, b], [1, 2], strict=True))),
    "keys": lambda a, b: len(dict.fromkeys([a, b])),
    "get": lambda a, b: {a: 1}.get(b, 5),
    "values": lambda a, b: a in {1: b}.values(),
    "set": lambda a, b: len({a, b}),
    "set of a list": lambda a, b: len(set([a, b])),
    "set with a star": lambda a, b: len({*[a, b]}),
    "set by comprehension": lambda a, b: len({i for i in (a, b)}),
    "dict by comprehension": lambda a, b: len({i: 1 for i in (a, b)}),  # noqa: C420, RUF100
    "statements": sets_and_dicts_by_statement,
}


@pytest.mark.parametrize("make", [Bag, torch.Generator])
@pytest.mark.parametrize("question", WHICH_OBJECTS)
def test_which_objects_are_one_is_a_fact_where_native_code_asks(question, make):
    def program(x, a, b):
        return x * WHICH_OBJECTS[question](a, b)

    x, a, b = ramp(3), make(), make()
    compiled = thunder.jit(program)
    for first, second in ((a, b), (a, a), (b, b), (b, a), (make(), make())):
        assert torch.equal(compiled(x, first, second), program(x, first, second))
