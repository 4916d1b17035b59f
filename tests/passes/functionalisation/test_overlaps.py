"""Writes to memory that the same call reads: eager's result, or a refusal, whatever the two views are."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from thunder.base.errors import ThunderError, UnsupportedProgram

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, about writes to expanded tensors

VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "y": lambda y: y,
    "y[1:]": lambda y: y[1:],
    "y[:-1]": lambda y: y[:-1],
    "y[:, 1:]": lambda y: y[:, 1:],
    "y[:, :-1]": lambda y: y[:, :-1],
    "y[0]": lambda y: y[0],
    "y[:1]": lambda y: y[:1],
    "y[:, :1]": lambda y: y[:, :1],
    "y[0, 0]": lambda y: y[0, 0],
    "y[::2]": lambda y: y[::2],
    "y[1::2]": lambda y: y[1::2],
    "t": lambda y: y.t(),
    "flat": lambda y: y.view(-1),
    "window": lambda y: y.view(-1)[2:7],
    "diagonal": lambda y: y.diagonal(),
    "expanded": lambda y: y.expand(2, 4, 4),
    "unfolded": lambda y: y.unfold(1, 2, 1)[:, 0],
    "clone": lambda y: y.clone(),
}


def rows(x: torch.Tensor) -> torch.Tensor:
    return torch.zeros(x.shape, dtype=torch.long)


first = torch.tensor([0])
WRITES: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "add_": lambda v, o: v.add_(o),
    "copy_": lambda v, o: v.copy_(o),
    "[:] =": lambda v, o: v.__setitem__(slice(None), o),
    "[0] =": lambda v, o: v.__setitem__(0, o),
    "[[0]] =": lambda v, o: v.__setitem__([0], o),
    "[mask] =": lambda v, o: v.__setitem__(v > 0, o),
    "clamp_": lambda v, o: v.clamp_(min=o),
    "lerp_": lambda v, o: v.lerp_(o, 0.5),
    "addcmul_": lambda v, o: v.addcmul_(o, o),
    "sub_ of a copy": lambda v, o: v.sub_(o * 1),
    "fill_": lambda v, o: v.fill_(o),
    "masked_fill_": lambda v, o: v.masked_fill_(v > 0, o),
    "masked_scatter_": lambda v, o: v.masked_scatter_(v > 0, o),
    "scatter_": lambda v, o: v.scatter_(0, rows(o), o),
    "index_add_": lambda v, o: v.index_add_(0, first, o),
    "index_copy_": lambda v, o: v.index_copy_(0, first, o),
    "index_put_": lambda v, o: v.index_put_((first,), o),
    "index_reduce_": lambda v, o: v.index_reduce_(0, first, o, "prod"),
    "put_": lambda v, o: v.put_(rows(o), o),
    "addmm_": lambda v, o: v.addmm_(o, o),
    "add(out)": lambda v, o: torch.add(o, 1, out=v),
    "mul(out)": lambda v, o: torch.mul(v, o, out=v),
    "add(out) of another dtype": lambda v, o: torch.add(o.double(), 1, out=v),
    "cat(out)": lambda v, o: torch.cat([o], out=v),
    "gather(out)": lambda v, o: torch.gather(o, 0, rows(v), out=v),
    "scatter(out)": lambda v, o: torch.scatter(v, 0, rows(o), o, out=v),
    "index_add(out)": lambda v, o: torch.index_add(v, 0, first, o, out=v),
    "mm(out)": lambda v, o: torch.mm(v, o, out=v),
}


def memory() -> torch.Tensor:
    return torch.arange(16.0).reshape(4, 4) / 7


def outcome(fn: Callable[..., Any], inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor] | None:
    """The results and the inputs after the call; None if it raises what it may raise."""
    try:
        return [*fn(*inputs), *inputs]
    except (RuntimeError, IndexError, ThunderError):
        return None


def case(written: str, read: str, write: str, as_inputs: bool) -> tuple[Any, Any]:
    """The program, and what makes its inputs: the two views, or the memory that they are views of."""

    def on_inputs(v: torch.Tensor, o: torch.Tensor) -> Any:
        WRITES[write](v, o)
        return (v * 1,)

    def on_views(y: torch.Tensor) -> Any:
        y = y * 1
        v = VIEWS[written](y)
        WRITES[write](v, VIEWS[read](y))
        return y, v

    def views() -> tuple[torch.Tensor, ...]:
        y = memory()
        return VIEWS[written](y), VIEWS[read](y)

    return (on_inputs, views) if as_inputs else (on_views, lambda: (memory(),))


CASES = [
    (written, read, write, as_inputs)
    for written in VIEWS
    for read in VIEWS
    for write in WRITES
    for as_inputs in (False, True)
]


@pytest.mark.parametrize("seed", range(8))
def test_what_a_call_writes_and_reads_is_eagers_or_refused(seed: int) -> None:
    compared = 0
    for which in random.Random(seed).sample(CASES, 60):
        program, inputs = case(*which)
        expected, found = outcome(program, inputs()), outcome(thunder.jit(program), inputs())
        if found is None:
            continue
        assert expected is not None, f"eager refuses {which}"
        assert all(map(torch.equal, expected, found)), which
        compared += 1
    assert compared > 0


WORKING = {
    "an item put back": lambda y: y[1:3].add_(1),
    "the same row": lambda y: y.__setitem__(0, y[0] * 2),
    "one row to all": lambda y: y.__setitem__(slice(None), y[0]),
    "other rows": lambda y: y[::2].add_(y[1::2]),
    "itself": lambda y: y.mul_(y),
    "an element": lambda y: y.fill_(y[1, 1]),
    "a product added": lambda y: torch.addmm(y, y * 1, y * 2, out=y),
    "cumsum into itself": lambda y: torch.cumsum(y, 0, out=y),
}


@pytest.mark.parametrize("write", WORKING.values(), ids=WORKING)
def test_a_write_whose_order_does_not_show_is_compiled(write: Callable[[torch.Tensor], Any]) -> None:
    def program(y: torch.Tensor) -> torch.Tensor:
        write(y)
        return y + 1

    expected, found = memory(), memory()
    assert torch.equal(program(expected), thunder.jit(program)(found))
    assert torch.equal(expected, found)


def test_a_write_whose_order_shows_is_refused_where_eager_goes_on() -> None:
    def shifted(y: torch.Tensor) -> torch.Tensor:
        y[:, 1:].add_(y[:, :-1])
        return y

    with pytest.raises(UnsupportedProgram, match="refer to a single memory location"):
        thunder.jit(shifted)(memory())


@pytest.mark.parametrize("second", [slice(0, 4), slice(1, 5)])
def test_two_results_are_not_written_to_one_memory(second: slice) -> None:
    """Eager writes both in an order of its own, or raises, by the version of torch."""
    program = thunder.jit(lambda x, out: torch.aminmax(x, dim=0, out=(out[:4], out[second])))
    with pytest.raises(UnsupportedProgram, match="one operator writes two tensors that overlap in memory"):
        program(memory(), torch.zeros(5))


def test_results_of_two_calls_may_be_written_to_one_memory() -> None:
    def program(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        torch.aminmax(x, dim=0, out=(out[:4], out[4:]))
        return torch.sum(x, 0, out=out[2:6])

    expected, found = torch.zeros(8), torch.zeros(8)
    assert torch.equal(program(memory(), expected), thunder.jit(program)(memory(), found))
    assert torch.equal(expected, found)


def test_an_unused_view_raises_nothing() -> None:
    def program(y: torch.Tensor) -> torch.Tensor:
        y.t().view(-1)
        return y + 1

    with pytest.raises(RuntimeError, match="view size is not compatible"):
        program(memory())
    assert torch.equal(thunder.jit(program)(memory()), memory() + 1)


@pytest.mark.parametrize("key", [lambda k: k, lambda k: (k, 0), lambda k: (slice(None), k), lambda k: (k, k)])
def test_an_augmented_assignment_at_a_position_in_a_tensor(key: Any) -> None:
    def program(y: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        for k in positions:
            y[key(k)] += 1
            y[key(k)] = y[key(k)] * 2
        return y

    compiled = thunder.jit(program)
    for positions in ([1, 1, 2], [0, 2, -1]):
        expected, found = torch.zeros(3, 3), torch.zeros(3, 3)
        program(expected, torch.tensor(positions))
        compiled(found, torch.tensor(positions))
        assert torch.equal(expected, found)
