"""Questions about tensors that depend on no input are answered while tracing; others may be refused."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import thunder


def branch(x: Tensor) -> Tensor:
    return x * 2 if torch.arange(x.shape[0])[0] > 0 else x * 3


def numbers(x: Tensor) -> Any:
    places = torch.arange(x.shape[0])
    last = places.max()
    return x * int(last), x * last.item(), places.tolist(), x * (1 if 2 in places else 5), float(last)


def bounds(x: Tensor) -> Any:
    places = torch.arange(x.shape[0])
    return x[places[1] : places[3]], torch.arange(places[1], places[-1], places[2]), [*range(places[3])]


def made_of_parts(x: Tensor) -> Tensor:
    steps = torch.cat([torch.zeros(2, dtype=torch.long), torch.tensor([4, 5])]).cumsum(0)
    return x + 1 if (steps > 8).any() and bool((steps == steps.sort().values).all()) else x - 1


def written_and_asked(x: Tensor) -> Tensor:
    count = torch.zeros((), dtype=torch.long)
    count += 2
    return x if int(count) == 2 else -x


ANSWERED: list[Callable[[Tensor], Any]] = [branch, numbers, bounds, made_of_parts]


@pytest.mark.parametrize("fn", ANSWERED)
def test_the_answer_is_eagers_for_each_length(fn: Callable[[Tensor], Any]) -> None:
    compiled = thunder.jit(fn)
    for length in (5, 6, 5):
        x = torch.randn(length)
        torch.testing.assert_close(compiled(x), fn(x), rtol=0, atol=0)
    assert thunder.cache_misses(compiled) == 2, "a length has a program of its own"


def test_a_tensor_that_was_written_is_not_taken_for_what_it_was() -> None:
    """Not yet known; what counts is that the old value is not taken."""
    with pytest.raises(thunder.DataDependentControlFlow, match="eq asks for the value"):
        thunder.jit(written_and_asked, data_dependent="refuse")(torch.ones(2))


def test_a_view_that_was_written_is_seen_through_its_base() -> None:
    def fn(x: Tensor) -> Tensor:
        places = torch.arange(3)
        places[1:].add_(1)
        return x if int(places[0]) == 0 else -x

    with pytest.raises(thunder.DataDependentControlFlow, match="eq asks for the value"):
        thunder.jit(fn, data_dependent="refuse")(torch.ones(2))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x if x.argmax() > 0 else -x,
        lambda x: (
            x if torch.arange(3.0)[0] > 0 else -x
        ),  # floating point, which differs from device to device
        lambda x: x if torch.randint(0, 9, ())[None][0] > 3 else -x,
        lambda x: x if torch.empty(1, dtype=torch.long)[0] > 0 else -x,
        lambda x: x if torch.zeros(1 << 20, dtype=torch.long).sum() > 0 else -x,
    ],
)
def test_what_depends_on_data_chance_or_memory_is_refused(fn: Callable[[Tensor], Any]) -> None:
    with pytest.raises(thunder.DataDependentControlFlow, match=r"bool\(tensor\) asks"):
        thunder.jit(fn, data_dependent="refuse")(torch.ones(2))


@pytest.mark.parametrize("bound", [-0.5, 0, 0.0, 1, 1.0, 1.5])
@pytest.mark.parametrize("compare", [torch.lt, torch.le, torch.gt, torch.ge])
def test_fractions_are_drawn_and_never_leave_their_range(compare: Any, bound: float) -> None:
    def fn(x: Tensor) -> Tensor:
        if compare(torch.rand([]), bound):
            x = x + 1
        return x + torch.rand([])

    compiled = thunder.jit(fn, data_dependent="refuse")
    if (compare, bound) in ((torch.le, 0), (torch.gt, 0)):  # a fraction may be 0
        with pytest.raises(thunder.DataDependentControlFlow, match=r"bool\(tensor\) asks"):
            compiled(torch.zeros(2))
        return
    for _ in range(2):
        results = []
        for call in (fn, compiled):
            torch.manual_seed(3)
            results.append((call(torch.zeros(2)), torch.get_rng_state()))
        assert torch.equal(results[0][0], results[1][0])
        assert torch.equal(results[0][1], results[1][1]), "the number is drawn, though nobody uses it"


def test_a_fraction_that_may_be_on_either_side_is_refused() -> None:
    with pytest.raises(thunder.DataDependentControlFlow, match=r"bool\(tensor\) asks"):
        thunder.jit(lambda x: x if torch.rand([]) < 0.5 else -x, data_dependent="refuse")(torch.ones(2))


def written_through_a_view(drawn: Tensor) -> Tensor:
    drawn.view(1).add_(2)
    return drawn


@pytest.mark.parametrize("write", [written_through_a_view, lambda d: d.mul_(5)])
def test_a_fraction_that_was_written_to_is_none(write: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(thunder.DataDependentControlFlow, match=r"bool\(tensor\) asks"):
        thunder.jit(lambda x: x if write(torch.rand([])) < 1 else -x, data_dependent="refuse")(torch.ones(2))


def test_a_comparison_that_was_written_to_is_none() -> None:
    def fn(x: Tensor) -> Tensor:
        below = torch.rand([]) < 1
        below.view(-1).logical_not_()
        return x if below else -x

    with pytest.raises(thunder.DataDependentControlFlow, match=r"bool\(tensor\) asks"):
        thunder.jit(fn, data_dependent="refuse")(torch.ones(2))


def test_the_type_of_a_number_out_of_a_tensor_is_known_and_its_value_is_not() -> None:
    def kinds(x: Tensor) -> Any:
        total, positive = x.sum().item(), (x > 0).all().item()
        asked = isinstance(total, float), isinstance(total, int), isinstance(total, int | float)
        return asked, isinstance(positive, bool), type(total) is float, type(positive) is bool, total

    x = torch.ones(2)
    assert thunder.jit(kinds)(x) == kinds(x)
    with pytest.raises(thunder.DataDependentControlFlow, match="bool asks for the value of a number"):
        thunder.jit(lambda x: torch._check((x > 0).all().item()), data_dependent="refuse")(x)


def test_a_list_that_changes_after_a_tensor_was_made_of_it_is_not_looked_at_again() -> None:
    def fn(x: Tensor) -> Tensor:
        numbers = [1, 2]
        made = torch.tensor(numbers)
        numbers[0] = 5
        return x * int(made[0])

    assert torch.equal(thunder.jit(fn)(torch.ones(2)), torch.ones(2))


def test_an_item_that_was_assigned_is_not_taken_for_what_it_was() -> None:
    def fn(x: Tensor) -> Tensor:
        places = torch.arange(3)
        places[0] = 7
        return x if int(places[0]) == 0 else -x

    with pytest.raises(thunder.DataDependentControlFlow, match="eq asks for the value"):
        thunder.jit(fn, data_dependent="refuse")(torch.ones(2))


def test_operators_of_others_do_not_run_while_tracing() -> None:
    ran = []

    @torch.library.custom_op("thunder_tests::counted", mutates_args=())
    def counted(x: Tensor) -> Tensor:
        ran.append(x)
        return x + 1

    counted.register_fake(torch.empty_like)
    with pytest.raises(thunder.DataDependentControlFlow, match="eq asks for the value"):
        thunder.jit(lambda x: x * 2 if int(counted(torch.arange(3))[0]) == 1 else x, data_dependent="refuse")(
            torch.ones(2)
        )
    assert not ran
