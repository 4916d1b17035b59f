"""Programs, each with calls of which some miss: what a compile is tried with, and what becomes of it.

`describe` runs the calls of one and says, for each, whether it was a hit, how often it was compiled, what
Python ran, the reasons, and why sizes are numbers. ``misses.txt`` has all of them; it is written anew by
``python tests/compiler/miss_programs.py``.
"""

import copy
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils import _pytree as pytree

import thunder

RECORD = Path(__file__).with_name("misses.txt")

#: by name, what makes a program and its calls, and the options of `thunder.jit`
PROGRAMS: dict[
    str, tuple[Callable[[], tuple[Callable[..., Any], list[tuple[Any, ...]]]], dict[str, Any]]
] = {}


def program(**options: Any) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Enter a function that returns a program and its calls into the table."""

    def enter(make: Callable[[], Any]) -> Callable[[], Any]:
        PROGRAMS[make.__name__] = (make, options)
        return make

    return enter


def _ones(*lengths: int) -> list[tuple[torch.Tensor]]:
    return [(torch.arange(3.0 * n).reshape(n, 3) - 2,) for n in lengths]


# -- sizes of inputs -----------------------------------------------------------------------------------------


@program()
def one_size_varies():
    return lambda x: x.sum(0) * x.shape[0], _ones(4, 4, 5, 6, 4, 1)


@program()
def two_sizes_vary():
    def f(x, y):
        return x @ y

    shapes = [(2, 3, 4), (5, 3, 4), (5, 3, 6), (7, 3, 2), (7, 4, 2), (2, 9, 9)]
    return f, [(torch.ones(a, b), torch.ones(b, c)) for a, b, c in shapes]


@program()
def a_size_is_needed():
    return lambda x: x.reshape(2, -1, 3) if x.shape[0] == 4 else x + x.shape[0], _ones(4, 5, 6, 4, 7)


@program()
def a_size_is_a_length_of_a_loop():
    def f(x):
        total = x[0]
        for row in range(x.shape[0]):
            total = total + x[row]
        return total

    return f, _ones(2, 3, 4, 2, 3)


@program()
def a_size_and_a_dtype_vary():
    calls = _ones(4, 5, 6)
    return lambda x: x * x.shape[0], [*calls, (calls[0][0].double(),), (calls[1][0].double(),)]


@program()
def raises_for_small_sizes():
    def f(x):
        if x.shape[0] < 3:
            raise ValueError("too few rows")
        return x + 1

    return f, _ones(4, 5, 2, 6, 1)


@program()
def a_text_of_a_size():
    return lambda x: (x + 1, f"{x.shape[0]} rows"), _ones(4, 5, 6)


@program()
def a_new_cache_has_sizes_that_varied():
    def f(x, state):
        old = state.rows
        state.rows = x if old is None else torch.cat([old, x])
        return state.rows.sum(0)

    state = SimpleNamespace(rows=None)
    return f, [(torch.ones(n, 3), state) for n in (4, 1, 1, 1, 1)]


@program(cache="symbolic values")
def every_size_is_a_symbol():
    def f(x, scale):
        return x * scale + x.shape[0]

    return f, [(x, k) for (x,), k in zip(_ones(4, 5, 1, 4), (2, 3, 4, 2.5), strict=True)]


@program(cache="symbolic values")
def every_size_is_a_symbol_and_one_is_needed():
    return lambda x: x.reshape(2, 2, 3) if x.shape[0] == 4 else x * 2, _ones(4, 5, 6)


@program(cache="constant values")
def constant_values():
    return lambda x: x + x.shape[0], _ones(4, 5, 6, 4)


@program(cache="no caching")
def no_caching():
    return lambda x: x + 1, _ones(4, 4)


@program(dynamic_sizes={"x": {0: (2, 8)}})
def a_wish():
    return lambda x: x + x.shape[0], _ones(4, 5, 8)


@program(dynamic_sizes={"x": [0]})
def a_wish_that_cannot_be_kept():
    return lambda x: x.reshape(4, 3) * 2, _ones(4)


@program(dynamic_sizes={"x": [0]})
def a_wish_of_a_program_that_raises():
    def f(x):
        raise ValueError("no")

    return f, _ones(4)


# -- numbers -------------------------------------------------------------------------------------------------


@program()
def an_integer_varies():
    return lambda x, n: x * n + n // 2, [(torch.ones(3), n) for n in (3, 4, 5, 0, 1, -7)]


@program()
def a_float_varies():
    return lambda x, a: x * a, [(torch.ones(3), a) for a in (0.5, 0.25, 3.0, 0.0, 2.0)]


@program()
def an_integer_is_needed():
    def f(x, n):
        return x * len("ab" * n)

    return f, [(torch.ones(3), n) for n in (3, 4, 5)]


@program()
def a_text_varies():
    return lambda x, mode: x + 1 if mode == "add" else x * 2, [
        (torch.ones(3), m) for m in ("add", "mul", "add")
    ]


@program()
def a_counter():
    def f(x, state):
        state.steps += 1
        return x * state.steps

    state = SimpleNamespace(steps=0)
    return f, [(torch.ones(3), state)] * 5


@program()
def a_counter_that_is_asked():
    def f(x, state):
        state.steps += 1
        return x * 2 if state.steps % 2 else x

    state = SimpleNamespace(steps=0)
    return f, [(torch.ones(3), state)] * 5


@program()
def two_counters_of_which_one_is_asked():
    def f(x, state):
        state.steps += 1
        state.seen += x.shape[0]
        return x * state.seen if state.steps < 3 else x

    state = SimpleNamespace(steps=0, seen=0)
    return f, [(torch.ones(n), state) for n in (3, 3, 3, 4, 5)]


@program()
def a_float_that_grows():
    def f(x, state):
        state.rate = state.rate * 0.5
        return x * state.rate

    state = SimpleNamespace(rate=1.0)
    return f, [(torch.ones(3), state)] * 4


@program()
def a_counter_in_native_code():
    def f(x, state):
        state.steps += 1
        return x * len([0] * state.steps)

    state = SimpleNamespace(steps=0)
    return f, [(torch.ones(3), state)] * 4


@program()
def a_position_and_a_length():
    def f(x, state):
        end = state.position + x.shape[0]
        state.buffer[state.position : end] = x
        state.position = end
        return state.buffer[:end].sum()

    state = SimpleNamespace(position=0, buffer=torch.zeros(32))
    return f, [(torch.ones(n), state) for n in (4, 1, 1, 3, 1)]


# -- data ----------------------------------------------------------------------------------------------------


@program()
def a_decision():
    return lambda x: x * 2 if x.sum() > 0 else x - 1, [
        (torch.full((3,), v),) for v in (1.0, 2.0, -1.0, 1.0, -3.0)
    ]


@program()
def a_loop_on_data():
    def f(x):
        while x.sum() < 10:
            x = x * 2
        return x

    return f, [(torch.full((2,), v),) for v in (4.0, 1.0, 8.0, 2.0, 4.0)]


@program(recompile_limit=1)
def more_answers_than_the_limit():
    def f(x):
        while x.sum() < 10:
            x = x * 2
        return x

    return f, [(torch.full((2,), v),) for v in (4.0, 1.0, 8.0, 2.0, 4.0)]


@program()
def raises_for_an_answer():
    def f(x):
        if x.sum() < 0:
            raise ValueError("negative")
        return x + 1

    return f, [(torch.full((3,), v),) for v in (1.0, -1.0, -2.0, 2.0)]


@program(data_dependent="refuse")
def questions_are_refused():
    return lambda x: x * 2 if x.sum() > 0 else x, [(torch.ones(3),)]


@program()
def a_number_of_data_is_used():
    return lambda x, i: x[int(i)] * i.item(), [(torch.arange(4.0), torch.tensor(i)) for i in (0, 1, 3)]


@program()
def a_size_of_data():
    return lambda x: x[x > 0] * 2, [
        (torch.tensor(v),) for v in ([1.0, -1.0], [1.0, 2.0], [-1.0, -1.0], [3.0, 4.0])
    ]


@program()
def a_size_of_data_that_is_needed():
    def f(x):
        rows = x.nonzero()
        return [row + 1 for row in rows]

    return f, [(torch.tensor(v),) for v in ([1.0, 0.0], [1.0, 2.0], [0.0, 0.0], [0.0, 4.0])]


@program()
def a_size_of_data_and_a_size():
    return lambda x: x[x > 0].sum() + x.shape[0], [(torch.arange(float(n)) - 2,) for n in (4, 5, 6, 7)]


@program()
def a_decision_and_a_size():
    def f(x):
        y = x.sum(0)
        return y * 2 if y[0] > 0 else y - x.shape[0]

    return f, [(k * x,) for (x,), k in zip(_ones(4, 5, 6, 6, 4), (1, -1, 1, -1, 1), strict=True)]


@program()
def a_tensor_indexes_modules():
    layers = [lambda x: x + 1, lambda x: x * 2, lambda x: x - 3]
    return lambda x, i: layers[i.item()](x), [(torch.ones(2), torch.tensor(i)) for i in (0, 2, 1, 2)]


# -- state ---------------------------------------------------------------------------------------------------


@program()
def a_table_that_fills():
    table: dict[int, torch.Tensor] = {}

    def f(x):
        key = x.shape[0]
        if key not in table:
            table[key] = torch.arange(float(key))
        return x.sum(1) + table[key]

    return f, _ones(4, 4, 5, 4, 5)


@program()
def none_becomes_a_tensor():
    def f(x, mask):
        return x if mask is None else x * mask

    return f, [(torch.ones(3), None), (torch.ones(3), torch.ones(3)), (torch.ones(3), None)]


@program()
def a_lazy_module():
    module = torch.nn.LazyLinear(2)

    def f(x):
        return module(x).shape

    return f, [(torch.ones(2, 3),)] * 3


@program()
def a_generator_is_read_in_part():
    def numbers():
        yield from range(100)

    source = numbers()
    return lambda x: x + next(source), [(torch.ones(2),)] * 3


@program()
def training_and_evaluation():
    module = torch.nn.Dropout(0.0)

    def f(x, training):
        module.training = training
        return module(x) * 2

    return f, [(torch.ones(2), t) for t in (True, False, True)]


# -- the record ----------------------------------------------------------------------------------------------


def describe(name: str) -> Iterator[str]:
    """Yield a line for each call of a program: what the dispatcher did. Results are as eager's."""
    make, options = PROGRAMS[name]
    expected = _eager(make)
    fn, calls = make()
    compiled = thunder.jit(fn, executors=["torch"], **options)
    stats = thunder.compile_stats(compiled)
    for number, (call, (value, error)) in enumerate(zip(calls, expected, strict=True)):
        before = stats.cache_hits, stats.cache_misses, stats.runs_by_python
        outcome = _outcome(compiled, call)
        hits, misses, python = (
            now - then
            for now, then in zip(
                (stats.cache_hits, stats.cache_misses, stats.runs_by_python), before, strict=True
            )
        )
        refused = isinstance(outcome[1], thunder.ThunderError)
        if not refused:
            assert repr(outcome[1]) == repr(error)
            assert _leaves(outcome[0]) == _leaves(value)
        what = f"hits {hits}, compiles {misses}, by Python {python}, entries {len(stats.interpreter_cache)}"
        raised = "" if outcome[1] is None else f", raises {type(outcome[1]).__name__}"
        yield f"  call {number}: {what}{raised}"
        if misses:
            reasons = (r for r in stats.last_recompile_reasons if r.source != "plugins")  # what was imported
            yield from (f"    because {_one_line(reason)}" for reason in reasons)
            if stats.last_static_reason is not None:
                yield f"    numbers since {_one_line(stats.last_static_reason)}"


def _eager(make: Callable[[], Any]) -> list[tuple[Any, BaseException | None]]:
    fn, calls = make()
    return [copy.deepcopy(_outcome(fn, call)) for call in calls]


def _leaves(value: Any) -> list[Any]:
    return [x.tolist() if isinstance(x, torch.Tensor) else x for x in pytree.tree_leaves(value)]


def _outcome(fn: Callable[..., Any], call: tuple[Any, ...]) -> tuple[Any, BaseException | None]:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return fn(*call), None
        except Exception as error:
            return None, error.with_traceback(None)


def _one_line(reason: object) -> str:
    """Return a reason without what depends on the place of this file, and of its lines."""
    text = " ".join(str(reason).split()).replace(f"{Path(__file__).parent}/", "")
    return re.sub(rf"{Path(__file__).name}:\d+", "line", text)


def record() -> str:
    """Return the text of all programs."""
    return "".join(f"{line}\n" for name in PROGRAMS for line in (name, *describe(name)))


if __name__ == "__main__":
    RECORD.write_text(record(), encoding="utf-8")
