"""Lists of the caller are as in eager whatever the program does with them, and are read by use alone."""

from __future__ import annotations

import copy
import itertools
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

import thunder
from frontend.objects.lists_of_callers import Holder, made, program, shown, state
from thunder.base.errors import InternalError
from thunder.frontend.objects.shadow_copies import UNREAD
from thunder.frontend.tracing_policy import Tracer

CALLS = 4


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return shown(call())
    except (IndexError, TypeError, ValueError) as error:  # of the program
        return repr(error)


def compared(text: str, draw: random.Random, *, becomes_one: bool) -> Any:
    """Call a program compiled and eager, compare results and lists, and return the compiled function."""
    ours = state(draw)
    theirs = copy.deepcopy(ours)
    eager, compiled = made(text, theirs[-1]), thunder.jit(made(text, ours[-1]))
    for call in range(CALLS):
        if becomes_one and call == CALLS - 1:
            ours[0].b, theirs[0].b = ours[0].a, theirs[0].a
        x = torch.full((2,), float(call))
        expected = outcome(lambda: (eager(x, *theirs[:-1]), theirs))  # noqa: B023
        assert outcome(lambda: (compiled(x, *ours[:-1]), ours)) == expected, text  # noqa: B023
    return compiled


@pytest.mark.parametrize("seed", range(24))
def test_programs_on_lists_are_as_in_eager(seed: int) -> None:
    draw = random.Random(seed)
    compared(program(draw, grows=False), draw, becomes_one=draw.random() < 0.3)


@pytest.mark.parametrize("seed", range(16))
def test_programs_that_read_no_item_are_compiled_at_most_three_times_while_lists_grow(seed: int) -> None:
    draw = random.Random(1000 + seed)
    compiled = compared(program(draw, grows=True), draw, becomes_one=False)
    assert thunder.cache_misses(compiled) <= 3  # the first, with lengths as inputs, the other answer


def of_calls(fn: Callable[..., Any], make: Callable[[], Any], calls: int = CALLS) -> int:
    """Call a function compiled and eager on lists that grow, compare, and return the number of compiles."""
    ours, theirs, compiled = make(), make(), thunder.jit(fn)
    for call in range(calls):
        x = torch.full((2,), float(call + 1), requires_grad=True)
        assert outcome(lambda: (compiled(x, ours), ours)) == outcome(lambda: (fn(x, theirs), theirs))  # noqa: B023
    return thunder.cache_misses(compiled)


def keeps_a_name(x: torch.Tensor, log: list[Any]) -> Any:
    names = {"log": log, "both": (log, [log])}
    for items in (log, names["log"], names["both"][1][0]):
        items.append(1)
    del names
    return x, log


def passes_on(x: torch.Tensor, log: list[Any]) -> Any:
    def add(items: list[Any], *values: Any, times: int = 1) -> list[Any]:
        for _ in range(times):
            items.extend(values)
        return items

    return x + len(add(add(log, 1, times=2), x.sum())), log


def uses_as_a_stack(x: torch.Tensor, log: list[Any]) -> Any:
    log.append(x * 2)
    log.append(x * 3)
    top = log.pop()
    log[-1] = log[-1] + top
    return log.pop() + len(log)


def decides(x: torch.Tensor, log: list[Any]) -> Any:
    if x.sum() > 3:
        log.append("more")
    else:
        log += ["less"]
    return x


def remembers(x: torch.Tensor, log: list[Any]) -> Any:
    if not log:
        log.append("first")
    return x if log else x + 1


def raises_midway(x: torch.Tensor, log: list[Any]) -> Any:
    log.append(1)
    if len(log) % 3 == 2:
        raise ValueError(len(log))
    log.append(2)
    return x


def is_caught(x: torch.Tensor, log: list[Any]) -> Any:
    try:
        log.append(3)
        log.nothing  # noqa: B018
    except AttributeError:
        log.append(4)
    return x


def checkpoints(x: torch.Tensor, log: list[Any]) -> Any:
    log.append(1)
    y = torch.utils.checkpoint.checkpoint(lambda t: t.sin() * 2, x, use_reentrant=False)
    log.append(2)
    return y


def differentiates(x: torch.Tensor, log: list[Any]) -> Any:
    log.append(0)
    y = Doubled.apply(x)
    return y + torch.func.grad(lambda t: t.sin().sum())(x)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] * 2


def is_stored(x: torch.Tensor, log: list[Any]) -> Any:
    holder = Holder()
    holder.log, holder.copies = log, {1: [log]}
    log.append(1)
    return holder, x


def within_a_mode(x: torch.Tensor, log: list[Any]) -> Any:
    with torch.device("cpu"):
        log.append(x.sum())
        return torch.ones(2) + x


def asks_what_it_is(x: torch.Tensor, log: list[Any]) -> Any:
    holder = Holder()
    setattr(holder, "log", log)  # noqa: B010
    getattr(holder, "log").append(1)  # noqa: B009
    kinds = isinstance(log, Sequence), callable(log), type(log) is list, hasattr(log, "append")
    return x, log is None, kinds, holder.log is log


def measures(x: torch.Tensor, log: list[Any]) -> Any:
    count, has = len(log), bool(log)
    log.append(count)
    return x * count + len([log, log]), has


ONCE = [keeps_a_name, within_a_mode, is_caught, checkpoints, differentiates, asks_what_it_is]
GROWS = [*ONCE, passes_on, uses_as_a_stack, decides, is_stored]


@pytest.mark.parametrize("fn", [*GROWS, remembers, raises_midway, measures], ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("items", [[], [5], [[1], "a", torch.ones(2)]], ids=["empty", "number", "mixed"])
def test_a_list_that_only_grows_is_read_by_no_use(fn: Any, items: list[Any]) -> None:
    compiles = of_calls(fn, lambda: copy.deepcopy(items))
    if fn is not raises_midway:  # Python runs it where it raises
        assert compiles <= (1 if fn in ONCE else 3)


def reads_in_a_region(x: torch.Tensor, log: list[Any]) -> Any:
    log.append(2)

    def region(t: torch.Tensor) -> torch.Tensor:
        return t.sin() * len(log) + sum(v for v in log if type(v) is int)

    return torch.utils.checkpoint.checkpoint(region, x, use_reentrant=False)


def returns_from_functions(x: torch.Tensor, log: list[Any]) -> Any:
    tensors = [t for t in log if isinstance(t, torch.Tensor)]
    mapped = torch.func.vmap(lambda t: t * len(log))(x)
    return mapped, torch.func.grad(lambda t: (t.sum(), log)[0])(x), tensors


def mapped_functions_return_a_list(x: torch.Tensor, log: list[Any]) -> Any:
    return torch.func.jvp(lambda t: (t * 2, [t]), (x,), (x,)), torch.func.vmap(lambda t: [t, *log])(x)[0]


def shows(x: torch.Tensor, log: list[Any]) -> Any:
    text = f"{log} {len(log)}"
    return x, text, "%s" % (log,), "{}".format(log), repr([log]), str({"log": log})  # noqa: UP031, UP032


def iterates(x: torch.Tensor, log: list[Any]) -> Any:
    first = next(iter(log), None)
    pairs = [*zip(log, range(9)), *enumerate(log)]  # noqa: B905
    return (
        x,
        first,
        pairs,
        list(map(str, log)),
        dict(enumerate(log)),
        [v for v in log if v],
        list(reversed(log)),
    )


def matches(x: torch.Tensor, log: list[Any]) -> Any:
    match log:
        case [first, *_]:
            return x, first
        case _:
            return x


def computes(x: torch.Tensor, log: list[Any]) -> Any:
    numbers = torch.tensor([len(log)]) + torch.as_tensor(log[:1] if log and type(log[0]) is int else [1])
    return torch.stack([x, x]).sum(dim=[0]), numbers, x.new_tensor([float(len(log))])


READS = [
    reads_in_a_region,
    returns_from_functions,
    mapped_functions_return_a_list,
    shows,
    iterates,
    matches,
    computes,
]


@pytest.mark.parametrize("fn", READS, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("items", [[], [5], [4, 3]], ids=["empty", "number", "numbers"])
def test_what_reads_a_list_sees_its_items(fn: Any, items: list[Any]) -> None:
    of_calls(fn, lambda: copy.deepcopy(items), calls=2)


def test_an_iterator_of_the_caller_over_an_unread_list_has_its_items() -> None:
    def fn(x: torch.Tensor, pair: tuple[list[Any], Any]) -> Any:
        items, iterator = pair
        items.append(3)
        return x * next(iterator), len(items)

    def make() -> Any:
        items = [1, 2]
        iterator = iter(items)
        next(iterator)
        return items, iterator

    ours, theirs, compiled = make(), make(), thunder.jit(fn)
    for _ in range(2):
        assert shown(compiled(torch.ones(1), ours)) == shown(fn(torch.ones(1), theirs))
        assert ours[0] == theirs[0]


@pytest.mark.parametrize("parts", [([1], [2, 3]), ([],), ((1, [2]), [3])], ids=str)
def test_an_iterator_of_the_caller_over_lists_in_a_tuple_has_their_items(parts: Any) -> None:
    def fn(x: torch.Tensor, iterator: Any) -> Any:
        return x, list(iterator)

    chained = (itertools.chain(*parts), itertools.chain.from_iterable(parts))
    assert [shown(thunder.jit(fn)(torch.ones(1), i)) for i in chained] == [
        shown(fn(torch.ones(1), itertools.chain(*parts)))
    ] * 2


@pytest.mark.parametrize("length", [0, 1, 2, 3, None])
def test_a_deque_keeps_its_length(length: int | None) -> None:
    def fn(x: torch.Tensor, recent: deque[Any]) -> Any:
        recent.append(x.sum().item())
        recent.extend([1])
        return x

    def reads(x: torch.Tensor, recent: deque[Any]) -> Any:
        recent.append(5)
        return x * len(recent), list(recent)

    assert of_calls(fn, lambda: deque([7, 8], length)) == 1
    of_calls(reads, lambda: deque([7, 8, 9], length))


def test_the_marker_of_unread_items_gives_no_value() -> None:
    uses: list[Callable[[Any], Any]] = [
        *(bool, len, iter, hash, repr, str, list, int, float, lambda v: v.name, lambda v: v()),
        *(lambda v: v == 1, lambda v: v != 1, lambda v: v < 1, lambda v: [v] == [1], lambda v: 1 in [v]),
        *(lambda v: v[0], lambda v: f"{v}", lambda v: isinstance(v, int), lambda v: {v: 1}, sorted),
    ]
    for use in uses:
        with pytest.raises(InternalError, match="before they have been read"):
            use(UNREAD)


def test_the_program_raises_where_a_marker_reaches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tracer, "read_items", lambda self, items: None)
    with pytest.raises(InternalError, match="before they have been read"):
        thunder.jit(lambda x, items: torch.stack([x, *items]))(torch.ones(1), [1])
