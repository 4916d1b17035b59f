"""Writes in place: which memory a compiled program writes, and that explain says why."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from comparison.bytes_moved import bytes_of_computation, bytes_of_eager
from thunder.ops.operator import all_rows, row_of
from torch_language.database import op_db

ROWS, COLUMNS = 64, 32


def buffer() -> torch.Tensor:
    return torch.arange(float(ROWS * COLUMNS)).reshape(ROWS, COLUMNS)


def rows() -> torch.Tensor:
    return torch.full((2, COLUMNS), 0.5)


INDEX = torch.tensor([5, 9])


@torch.library.custom_op("write_in_place::put", mutates_args={"cache"})
def _put(cache: torch.Tensor, value: torch.Tensor, place: int) -> None:
    cache[place : place + 2] = value


@torch.library.custom_op("write_in_place::put_two", mutates_args={"a", "b"})
def _put_two(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a[0] += 1
    b[1] += 1
    return a.sum() + b.sum()


@_put_two.register_fake
def _(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a.new_empty(())


def slice_(cache, value, i):
    cache[3:5] = value
    return (cache * 2).sum()


def column(cache, value, i):
    cache[:, 3] = value[0, 0]
    return cache.sum(0)


def two_slices(cache, value, i):
    cache[3:5] = value
    cache[7:9] = value * 2
    return cache[4:8].sum()


def index_copy(cache, value, i):
    cache.index_copy_(0, i, value)


def index_add(cache, value, i):
    cache.index_add_(0, i, value)
    return cache[i]


def index_put(cache, value, i):
    cache[i] = value
    return cache.sum()


def accumulate(cache, value, i):
    cache.index_put_((i,), value, accumulate=True)


def scatter(cache, value, i):
    cache.scatter_(0, i[:, None].expand(2, COLUMNS), value)


def scatter_add(cache, value, i):
    cache.scatter_add_(0, i[:, None].expand(2, COLUMNS), value)


def index_fill(cache, value, i):
    cache.index_fill_(0, i, 2.0)


def diagonal(cache, value, i):
    cache.diagonal().copy_(value[0])


def elementwise(cache, value, i):
    cache.mul_(0.5).add_(1)


def zeroed(cache, value, i):
    cache.zero_()
    cache[1:3] = value


def filled(cache, value, i):
    cache.fill_(3)


def own_buffer(cache, value, i):
    y = torch.zeros(ROWS, COLUMNS)
    y[0:2] = value
    y[4:6] = value * 2
    return y


def operator_of_library(cache, value, i):
    torch.ops.write_in_place.put(cache, value, 7)
    return cache.sum()


def transposed(cache, value, i):
    cache.t().mul_(2)
    cache.t()[3:5] = 1.0


def part_elementwise(cache, value, i):
    cache[3:5].mul_(2).add_(value)
    cache[5] += 1
    cache[:, 2].sin_()
    cache[7][3:5] = 2.0


def two_written(cache, value, i):
    return torch.ops.write_in_place.put_two(cache, value)


IN_PLACE = [
    *(slice_, column, two_slices, index_copy, index_add, index_put, accumulate, scatter, scatter_add),
    *(
        index_fill,
        diagonal,
        transposed,
        part_elementwise,
        elementwise,
        zeroed,
        filled,
        operator_of_library,
        two_written,
    ),
]


def compiled(fn: Callable[..., Any]) -> Callable[..., Any]:
    return thunder.jit(fn, executors=["torch"])


def inputs() -> list[torch.Tensor]:
    return [buffer(), rows(), INDEX.clone()]


def called(fn: Callable[..., Any]) -> tuple[Any, list[torch.Tensor], list[int]]:
    values = inputs()
    result = fn(*values)
    return result, values, [x._version for x in values]


@pytest.mark.parametrize("fn", [*IN_PLACE, own_buffer], ids=lambda fn: fn.__name__)
def test_a_write_moves_what_eager_moves(fn) -> None:
    """Beside what eager moves it is less than two rows, of a buffer of 64."""
    ours = compiled(fn)
    (result, values, versions), theirs = called(ours), called(fn)
    for a, b in zip([result, *values], [theirs[0], *theirs[1]], strict=True):
        assert a is None or torch.equal(a, b)
    assert [v > 0 for v in versions] == [v > 0 for v in theirs[2]]
    entry = thunder.compile_stats(ours).last_entry
    eager, moved = bytes_of_eager(fn, inputs()), bytes_of_computation(entry, inputs())
    allowed = rows().nbytes
    assert moved.total <= eager.total + allowed, (moved.by_operator, eager.by_operator)


@pytest.mark.parametrize("fn", IN_PLACE, ids=lambda fn: fn.__name__)
def test_explain_says_that_a_write_is_in_place(fn) -> None:
    ours = compiled(fn)
    called(ours)
    for text in (str(thunder.explain(ours)), thunder.explain(ours).to_json()):
        assert "written: cache" in text or '"target": "cache"' in text
    assert [w.reason for w in thunder.explain(ours).writes] == [None] * len(thunder.explain(ours).writes)


def reads_the_old_elements(cache, value, i):
    old = cache[3:5]
    kept = old * 2
    new = cache + 1
    cache[3:5] = value
    return kept + new[3:5]


def returns_the_value(cache, value, i):
    new = cache * 2
    cache.copy_(new)
    return new


def writes_what_it_reads(cache, value, i):
    cache[0:2] = cache[4:6]
    return cache.sum()


def is_the_value_of_another(cache, value, i):
    cache.copy_(value[0].expand(ROWS, COLUMNS))


def is_computed(cache, value, i):
    cache.copy_(cache @ cache.t() @ cache)


COPIED = {
    returns_the_value: "a result, or what is saved for the backward, is the value",
    is_computed: "torch.matmul computes its value",
    is_the_value_of_another: "computes its value|is another input",
}


@pytest.mark.parametrize(
    "fn", [*COPIED, reads_the_old_elements, writes_what_it_reads], ids=lambda fn: fn.__name__
)
def test_a_write_whose_old_elements_or_value_are_read_is_as_in_eager(fn) -> None:
    (result, values, _), theirs = called(compiled(fn)), called(fn)
    assert result is None or torch.equal(result, theirs[0])
    assert all(map(torch.equal, values, theirs[1]))
    if result is not None and result.shape == values[0].shape:
        values[0].zero_()
        assert not torch.equal(result, values[0])


@pytest.mark.parametrize(("fn", "reason"), COPIED.items(), ids=lambda x: getattr(x, "__name__", ""))
def test_explain_says_why_a_write_is_a_copy(fn, reason) -> None:
    ours = compiled(fn)
    called(ours)
    (write,) = thunder.explain(ours).writes
    assert re.search(reason, write.reason), write.reason
    assert f"{write.target} ({__file__}:" in str(write)


def test_inputs_that_share_memory_are_written_by_copies() -> None:
    def fn(a, b):
        a[0:2] = 1.0
        return b.sum()

    ours, x, y = compiled(fn), buffer(), buffer()
    assert torch.equal(ours(x, x[0:4]), fn(y, y[0:4]))
    assert torch.equal(x, y)
    reasons = {w.reason for w in thunder.explain(ours).writes}
    assert reasons == {"it shares memory with another input"}
    assert torch.equal(ours(x, y), fn(y, x))
    assert [w.reason for w in thunder.explain(ours).writes] == [None]


def test_a_value_that_is_saved_for_the_backward_is_not_overwritten() -> None:
    def fn(cache, w):
        before = (cache * w).sum()
        cache[0:2] = 7.0
        return before

    w = torch.ones(ROWS, COLUMNS, requires_grad=True)
    ours, cache = compiled(fn), buffer()
    ours(cache, w).backward()
    assert torch.equal(w.grad, buffer())
    assert cache[0, 0] == 7


def test_a_write_beside_a_backward_is_in_place() -> None:
    def fn(cache, w):
        cache[0:2] = w.detach()[0:2] * 2
        return (w * 3).sum() + cache.sum()

    w = torch.ones(ROWS, COLUMNS, requires_grad=True)
    ours, cache = compiled(fn), buffer()
    result = ours(cache, w)
    assert [write.reason for write in thunder.explain(ours).writes] == [None]
    assert result == w.sum() * 3 + cache.sum()
    assert cache[0, 0] == 2
    version = cache._version
    result.backward()
    assert torch.equal(w.grad, torch.full_like(w, 3))
    assert cache._version == version


def test_a_backward_that_has_saved_the_tensor_before_notices_the_write_as_in_eager() -> None:
    def fn(cache, i):
        cache[i] = 1.0

    cache, w = buffer(), torch.ones(ROWS, COLUMNS, requires_grad=True)
    saved = (cache * w).sum()
    compiled(fn)(cache, INDEX)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved.backward()


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop])
def test_steps_of_optimizers_are_as_in_eager(make) -> None:
    def trained(step_of):
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 3)
        optimizer = make(model.parameters(), lr=0.1)
        step = step_of(optimizer.step)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).square().sum().backward()
            step()
        return [*model.parameters(), *(v for s in optimizer.state.values() for v in s.values())]

    for a, b in zip(trained(compiled), trained(lambda step: step), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


# -- forms of torch's functions ----------------------------------------------------------------------------

WRITTEN = {row.id for row in all_rows() if row.in_place is not None}
FORMS = {op.name: op for op in op_db if f"torch.{op.name}" in WRITTEN and not op.variant_test_name}


@pytest.mark.parametrize("name", FORMS)
def test_a_form_computes_what_the_operator_does_and_puts_back_what_it_overwrote(name: str) -> None:
    row, compared = row_of(f"torch.{name}"), 0
    assert row is not None, "it was found by its row"
    form, dtype = row.in_place, next(d for d in (torch.float32, torch.int64) if d in FORMS[name].dtypes)
    for sample in itertools.islice(FORMS[name].sample_inputs("cpu", dtype), 30):
        args, kwargs = (sample.input, *sample.args), sample.kwargs
        expected = FORMS[name].op(*args, **kwargs)
        if expected.shape != sample.input.shape or expected.dtype != sample.input.dtype:
            continue
        base, before = sample.input.clone(), sample.input.clone()
        restore = form.restoring(base, *sample.args, **kwargs)
        form.run(base, *sample.args, **kwargs)
        torch.testing.assert_close(base, expected, rtol=0, atol=0, equal_nan=True)
        restore()
        assert torch.equal(base, before)
        compared += 1
    assert compared
