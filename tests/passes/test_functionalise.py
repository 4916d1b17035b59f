"""Functionalisation against eager: results, inputs after the call, and shared memory."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import thunder
from ops.trace_evaluator import evaluated, traced
from passes.functionalised import assert_as_eager, assert_same_effects, functional
from passes.random_instructions import OPERATORS, Instruction, accepted, program
from thunder.base.errors import OperatorError, UnsupportedProgram
from thunder.ir.proxies import TensorProxy
from thunder.ir.recorder import FixedLocation
from thunder.ir.trace import Source, TraceCtx, tracectx
from thunder.ops import prims
from thunder.passes.functionalise import functionalise

numbers = st.integers(0, 7)
instructions = st.lists(st.tuples(st.integers(0, len(OPERATORS) - 1), numbers, numbers, numbers), max_size=10)


def matrix() -> torch.Tensor:
    """``(3, 4)``: 0, 1, 2 …, less 5, so that some are negative."""
    return torch.arange(12.0).reshape(3, 4) - 5


def separate_inputs() -> list[torch.Tensor]:
    """One contiguous, one transposed."""
    return [matrix(), torch.arange(12.0).reshape(4, 3).t()]


def overlapping_inputs() -> list[torch.Tensor]:
    """Windows onto one storage, and one tensor by itself."""
    memory = torch.arange(24.0)
    return [memory[2:14].view(3, 4), memory[8:20].view(4, 3).t(), memory[1:7:2], matrix()]


# -- random programs ------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(instructions, st.integers(0, 2**12 - 1))
def test_a_random_program_does_what_eager_does(steps: list[Instruction], returned: int) -> None:
    assert_same_effects(program(accepted(steps, separate_inputs()), returned), separate_inputs)


@settings(max_examples=150, deadline=None)
@given(instructions, st.integers(0, 2**14 - 1))
def test_a_random_program_on_overlapping_inputs_does_what_eager_does(
    steps: list[Instruction], returned: int
) -> None:
    assert_same_effects(program(accepted(steps, overlapping_inputs()), returned), overlapping_inputs)


# -- views, one by one: a write through each, a write below each ----------------------------------------

View = Callable[[torch.Tensor], torch.Tensor]
VIEWS: dict[str, View] = {
    "view": lambda x: x.view(2, 6),
    "view_as": lambda x: x.view_as(x),
    "view of another dtype": lambda x: x.view(torch.int32),
    "reshape": lambda x: x.reshape(-1),
    "flatten": lambda x: x.flatten(),
    "unflatten": lambda x: x.unflatten(1, (2, 2)),
    "transpose": lambda x: x.transpose(0, 1),
    "t": lambda x: x.t(),
    "T": lambda x: x.T,
    "mT": lambda x: x.mT,
    "permute": lambda x: x.permute(1, 0),
    "movedim": lambda x: x.movedim(0, 1),
    "select": lambda x: x.select(1, 2),
    "narrow": lambda x: x.narrow(1, 1, 2),
    "split": lambda x: x.split(2, 1)[1],
    "split by sizes": lambda x: x.split([1, 2], 0)[1],
    "chunk": lambda x: x.chunk(2, 1)[0],
    "tensor_split": lambda x: x.tensor_split(2)[1],
    "unbind": lambda x: x.unbind(0)[2],
    "squeeze": lambda x: x[1:2].squeeze(0),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "diagonal": lambda x: x.diagonal(1),
    "expand that adds a dimension of one": lambda x: x.expand(1, 3, 4),
    "an integer": lambda x: x[1],
    "a slice with a step": lambda x: x[:, ::2],
    "None and Ellipsis": lambda x: x[None, ..., 1],
    "detach": lambda x: x.detach(),
    "data": lambda x: x.data,
    "contiguous": lambda x: x.contiguous(),
    "to": lambda x: x.to(torch.float32),
    "views of views": lambda x: x.view(-1)[3:9].view(2, 3).t(),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("own", [True, False], ids=["of a value", "of an input"])
def test_a_write_through_a_view_reaches_its_base_and_other_views(view: View, own: bool) -> None:
    def run(x: torch.Tensor) -> Any:
        base = x * 1 if own else x
        seen, written = view(base), view(base)
        written.add_(1)
        return base * 2, seen, written, base

    assert_as_eager(run, matrix())


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("own", [True, False], ids=["of a value", "of an input"])
def test_a_write_to_the_base_is_seen_through_a_view(view: View, own: bool) -> None:
    def run(x: torch.Tensor) -> Any:
        base = x * 1 if own else x
        seen = view(base)
        before = seen * 1
        base.mul_(3)
        return before, seen * 1, seen

    assert_as_eager(run, matrix())


def test_parts_of_complex_numbers_are_views() -> None:
    def run(c: torch.Tensor) -> Any:
        imaginary = c.imag
        c.real.add_(1)
        torch.view_as_real(c)[..., 1].mul_(2)
        return imaginary, c * 1

    assert_as_eager(run, torch.tensor([1 + 2j, 3 - 1j]))


def test_a_reshape_that_copies_is_no_view() -> None:
    def run(x: torch.Tensor) -> Any:
        turned = (x * 1).t()
        flat = turned.reshape(-1)
        turned.add_(1)
        flat.mul_(2)
        return turned, flat

    assert_as_eager(run, matrix())


def test_whether_reshape_is_a_view_depends_on_the_strides_of_the_input() -> None:
    def run(x: torch.Tensor) -> Any:
        flat = x.reshape(-1)
        flat.add_(1)
        return flat, x * 1

    assert_as_eager(run, matrix())
    assert_as_eager(run, matrix().t())


def test_view_works_on_a_value_that_lies_otherwise() -> None:
    def run(x: torch.Tensor, y: torch.Tensor) -> Any:
        z = x * 1
        z.copy_(y.t())  # the value has y's strides; z keeps its own
        return z.view(-1) * 2, z.view(-1), z

    assert_as_eager(run, matrix(), torch.ones(4, 3))


def test_a_view_made_before_a_write_is_made_again_on_a_value_that_lies_otherwise() -> None:
    def run(x: torch.Tensor, y: torch.Tensor) -> Any:
        z = x * 1
        flat = z.view(-1)
        z.copy_(y.t())
        return flat * 2

    assert_as_eager(run, matrix(), torch.arange(12.0).reshape(4, 3))


PARTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "rows": lambda y: y[1:],
    "a column": lambda y: y[:, 1],
    "every second": lambda y: y[:, ::2],
    "turned": lambda y: y.t(),
    "real parts": lambda y: torch.view_as_complex(y.view(3, 2, 2)).real,
}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_a_written_part_leaves_with_the_strides_and_offset_that_eager_gives_it(
    part: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        return part(x * 1).mul_(2)

    found = evaluated(functional(run, matrix()), [matrix()])
    expected = run(matrix())
    assert torch.equal(found, expected)
    assert (found.stride(), found.storage_offset()) == (expected.stride(), expected.storage_offset())


def test_a_copy_whose_decomposition_is_a_view_is_a_copy() -> None:
    def run(x: torch.Tensor) -> Any:
        y = x * 1
        cut = F.pad(y[None], (-1, 0), mode="replicate")
        y.add_(1)
        return y, cut

    assert_as_eager(run, matrix())


# -- inputs ---------------------------------------------------------------------------------------------


def test_a_program_without_writes_stays_the_same_object() -> None:
    trace = traced(lambda x: x[0] * 2, matrix())
    assert functionalise(trace) is trace


def test_an_input_is_written_once_at_the_end() -> None:
    def run(x: torch.Tensor) -> Any:
        x.add_(1)
        x.mul_(2)
        x[0].zero_()
        return x * 1

    trace = assert_as_eager(run, matrix())
    assert [b.sym.id for b in trace.bound_symbols].count("prims.copy_") == 1
    assert trace.bound_symbols[-2].sym.id == "prims.copy_"
    assert trace.provenance is not None
    assert trace.provenance.pss == "Functionalisation"


def test_an_output_that_is_a_written_input_is_that_input() -> None:
    trace = assert_as_eager(lambda x: x.add_(1), matrix())
    assert trace.output is trace.args[0]


def test_inputs_can_swap_their_values() -> None:
    def run(x: torch.Tensor, y: torch.Tensor) -> None:
        kept = x.clone()
        x.copy_(y)
        y.copy_(kept)

    assert_as_eager(run, matrix(), matrix() * 2)


def test_a_result_does_not_share_memory_with_the_input_that_it_was_copied_from() -> None:
    def run(x: torch.Tensor, y: torch.Tensor) -> Any:
        z, w = x * 1, x * 2
        z.copy_(y)
        w.copy_(y)
        return z, w

    assert_as_eager(run, matrix(), matrix() * 2)


def test_a_value_taken_before_a_write_stays() -> None:
    def run(x: torch.Tensor, y: torch.Tensor) -> Any:
        y.copy_(x[0])
        x.add_(1)
        return x[1:], y

    assert_as_eager(run, matrix(), torch.zeros(4))


def test_an_in_place_argument_is_an_in_place_operator() -> None:
    def run(x: torch.Tensor) -> Any:
        y = x * 1
        return F.relu(y, inplace=True), y, F.hardtanh(x, -1, 1, inplace=True)

    assert_as_eager(run, matrix())


@pytest.mark.parametrize("norm", [F.batch_norm, F.instance_norm])
def test_running_statistics_are_updated_as_eager_updates_them(norm: Callable[..., Any]) -> None:
    def run(x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor) -> Any:
        return norm(norm(x, mean, var, None, None, True) + 1, mean, var, None, None, True)

    assert_as_eager(run, torch.randn(2, 4, 5), torch.zeros(4), torch.ones(4))


def test_an_embedding_with_max_norm_scales_its_weight() -> None:
    def run(index: torch.Tensor, weight: torch.Tensor) -> Any:
        return F.embedding(index, weight, max_norm=1.0), weight.sum()

    assert_as_eager(run, torch.tensor([0, 2]), torch.randn(3, 4) * 3)


# -- refusals -------------------------------------------------------------------------------------------


def test_a_write_to_an_expanded_tensor_is_refused_with_torchs_text() -> None:
    with pytest.raises(OperatorError, match="more than one element of the written-to tensor"):
        functional(lambda x: x.unsqueeze(0).expand(2, 3, 4).add_(1), matrix())


def test_a_write_through_a_window_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedProgram, match="unfold"):
        functional(lambda x: x.unfold(0, 2, 1).add_(1), matrix())


def test_overlapping_inputs_of_two_dtypes_are_refused() -> None:
    memory = torch.zeros(4)
    with pytest.raises(UnsupportedProgram, match="another dtype"):
        functional(lambda x, y: x.add_(y), memory, memory.view(torch.int32))


def on_line_seven(fn: Callable[..., Any], *inputs: torch.Tensor) -> TraceCtx:
    """The trace of ``fn``, all of whose calls are on line 7 of ``model.py``."""
    trace = traced(fn, *inputs)
    for bsym in trace.bound_symbols:
        bsym.source = Source("model.py", 7)
    return trace


OVERLAPPING: dict[str, Callable[[torch.Tensor], Any]] = {
    "the same tensor": lambda s: (s[0], s[0]),
    "one tensor": lambda s: (s.view(-1)[:4],) * 2,
    "windows": lambda s: (s.view(-1)[:4], s.view(-1)[3:7]),
}


@pytest.mark.parametrize("parts", OVERLAPPING.values(), ids=OVERLAPPING)
def test_a_call_that_writes_two_tensors_that_overlap_is_refused_with_the_line(
    parts: Callable[[torch.Tensor], Any],
) -> None:
    def run(x: torch.Tensor, statistics: torch.Tensor) -> Any:
        return F.batch_norm(x, *parts(statistics), None, None, True)

    with pytest.raises(UnsupportedProgram, match=r"two tensors that overlap in memory\n  at  model.py:7"):
        functionalise(on_line_seven(run, torch.randn(2, 4, 5), torch.ones(2, 4)))


def test_inputs_that_overlap_are_not_written_by_one_call() -> None:
    memory = torch.ones(8)
    with pytest.raises(UnsupportedProgram, match="two tensors that overlap in memory"):
        functional(
            lambda x, mean, var: F.batch_norm(x, mean, var, None, None, True),
            torch.randn(2, 4, 5),
            memory[:4],
            memory[2:6],
        )


def test_a_call_may_write_two_parts_of_one_tensor() -> None:
    def run(x: torch.Tensor, statistics: torch.Tensor) -> Any:
        return F.batch_norm(x, statistics[0], statistics[1], None, None, True)

    assert_as_eager(run, torch.randn(2, 4, 5), torch.ones(2, 4))


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_view_that_eager_refuses_is_refused_with_torchs_text(before: bool) -> None:
    def run(x: torch.Tensor) -> Any:
        turned = (x * 1).t()
        flat = turned.view(12) if before else None
        turned.add_(1)
        return turned.view(12) if flat is None else flat

    with pytest.raises(
        OperatorError, match=r"^view size is not compatible with input tensor's size and stride"
    ):
        functional(run, matrix())


def with_grad(fn: Callable[[TensorProxy], Any]) -> TraceCtx:
    """The trace of ``fn`` on a leaf that requires grad, under grad mode, on line 7 of ``model.py``."""
    trace = TraceCtx()
    trace.grad_enabled = True
    with tracectx(trace, recorder=FixedLocation(Source("model.py", 7))), torch.enable_grad():
        x = TensorProxy("x", shape=(3, 4), device="cpu", dtype=torch.float32, requires_grad=True)
        trace.args = [x]
        prims.python_return(fn(x))
    return trace


def test_a_write_to_a_leaf_that_requires_grad_is_refused_with_torchs_text() -> None:
    with pytest.raises(
        OperatorError, match=r"^a leaf Variable that requires grad is being used in an in-place"
    ):
        with_grad(lambda x: x.add_(1))


def test_a_write_to_a_view_of_a_leaf_is_refused_with_torchs_text_and_the_line() -> None:
    text = r"^a view of a leaf Variable that requires grad is being used .*\.\n  at  model.py:7"
    with pytest.raises(OperatorError, match=text):
        functionalise(with_grad(lambda x: x[0].add_(1)))


def test_a_write_to_one_of_several_views_is_refused_as_torch_refuses_it() -> None:
    with pytest.raises(OperatorError, match="function that returns multiple views"):
        functionalise(with_grad(lambda x: (x * 2).unbind(0)[0].add_(1)))


def test_a_write_without_grad_keeps_the_history_of_the_tensor() -> None:
    def run(x: TensorProxy) -> Any:
        y = x * 2
        with torch.no_grad():
            y.add_(1)
        return y * 3

    trace = functionalise(with_grad(run))
    (kept,) = [b for b in trace.bound_symbols if b.sym.id == "prims.replace_data"]
    assert [p.requires_grad for p in (*kept.args, kept.output)] == [False, True, True]


def test_a_leaf_may_be_written_without_grad_if_nobody_differentiates_it_after() -> None:
    def run(x: TensorProxy) -> Any:
        y = x * 2
        with torch.no_grad():
            x.add_(1)
        return y

    trace = functionalise(with_grad(run))
    assert [b.sym.id for b in trace.bound_symbols[-2:]] == ["prims.copy_", "prims.python_return"]
    assert trace.bound_symbols[-2].kwargs == {"grad_enabled": False}


def _in_turn(r: random.Random, leaves: list[torch.Tensor]) -> None:
    """Give each parameter the numbers of another one."""
    order = r.sample(range(len(leaves)), len(leaves))
    first = leaves[order[0]].clone()
    for i, j in itertools.pairwise(order):
        leaves[i].copy_(leaves[j])
    leaves[order[-1]].copy_(first)


def _at_random(r: random.Random, leaves: list[torch.Tensor]) -> None:
    for _ in range(6):
        i, j = r.sample(range(len(leaves)), 2)
        getattr(leaves[i], r.choice(["copy_", "copy_", "add_"]))(leaves[j])


@pytest.mark.parametrize("move", [_in_turn, _at_random])
@pytest.mark.parametrize("seed", range(6))
def test_leaves_that_are_written_with_each_other_get_eagers_numbers(
    move: Callable[[random.Random, list[torch.Tensor]], None], seed: int
) -> None:
    """What is copied to a parameter may be the memory of another one, which is written too."""

    def program(*leaves: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            move(random.Random(seed), list(leaves))
        return sum(leaf.sum() for leaf in leaves).detach()  # type: ignore[union-attr]

    ours = [torch.nn.Parameter(torch.arange(3.0) + 10**n) for n in range(4)]
    theirs = [torch.nn.Parameter(p.detach().clone()) for p in ours]
    compiled = thunder.jit(program)
    for _ in range(2):
        torch.testing.assert_close(compiled(*ours), program(*theirs))
        torch.testing.assert_close(ours, theirs)


def test_a_leaf_that_is_written_twice_around_its_use_has_the_gradient_of_that_use() -> None:
    def program(leaf: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            leaf[-1] = leaf[0] * 2
        picked = leaf[[0, 1]]
        with torch.no_grad():
            leaf[-1] = leaf[0] * 3
        return (picked * 2).sum()

    ours, theirs = (torch.ones(3, 4).requires_grad_() for _ in range(2))
    thunder.jit(program)(ours).backward()
    program(theirs).backward()
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(ours.grad, theirs.grad)
