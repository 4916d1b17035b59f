"""Calls with faults in them: where torch refuses one, so does a program, with an error of the same class;
where torch takes it, the program gives what eager gives, or refuses.
"""

from __future__ import annotations

import itertools
import math
import random
import re
import types
from collections.abc import Callable
from typing import Any
from zlib import crc32

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import thunder
from recorded_refusals import Refusals, refusals_as_recorded
from thunder.base.errors import UnsupportedProgram
from thunder.base.langctx import TORCH
from thunder.ir.proxies import TensorProxy
from thunder.torch.argument_parser import _JUDGE, SILENT, parse
from torch_language import surface
from torch_language.mutations import Mutant, mutants
from torch_language.test_surface import difference

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, about deprecated functions and spellings

X = torch.rand(2, 3)
N = torch.arange(6).reshape(2, 3)

#: differences that other tests are about
LEFT_OUT = ("requires_grad ", "strides ")
NAMES = [name for name in surface.names() if callable(surface.attribute(name))]
#: parts of a run, and of how many parts they are; a name is in the same part with every version of torch
PARTS, ALL_PARTS = 3, 40


def outcome(mutant: Mutant, fn: Callable[..., Any]) -> Any:
    args, kwargs = mutant.inputs()
    torch.manual_seed(0)
    try:
        return fn(*args, **kwargs)
    except Exception as error:  # each fault has its own
        return error


def fault(mutant: Mutant, refusals: Refusals) -> str | None:
    """Return what is wrong with the compiled program's outcome, or None; note a refusal."""
    theirs = outcome(mutant, mutant.call)
    ours = outcome(mutant, thunder.jit(lambda *args, **kwargs: mutant.call(*args, **kwargs)))
    if isinstance(ours, UnsupportedProgram):
        refusals.add(mutant, ours)
        return None
    if "Please look up dimensions by name" in str(theirs):  # torch 2.11: None is the name of a dimension
        return None
    if isinstance(theirs, Exception):
        classes = (IndexError, TypeError, ValueError, AttributeError, AssertionError, RuntimeError)
        kind = next(c for c in classes if isinstance(theirs, c))
        return None if isinstance(ours, kind) else f"{mutant}: {ours!r}, and eager raises {theirs!r}"
    if isinstance(ours, Exception):
        return f"{mutant}: {ours!r}"
    found = difference(mutant.name, ours, theirs)
    return None if found is None or found.startswith(LEFT_OUT) else f"{mutant}: {found}"


@pytest.mark.parametrize("part", range(PARTS))
def test_a_fault_in_a_call_is_found_where_torch_finds_one(part: int) -> None:
    found = []
    for name in NAMES:
        called = surface.found(name) if crc32(name.encode()) % ALL_PARTS == part else None
        if called is not None:
            chosen = random.Random(name).sample(list(mutants(called)), 5)
            with refusals_as_recorded("calls with a fault", name) as refusals:
                found += [fault(mutant, refusals) for mutant in chosen]
    assert [f for f in found if f is not None] == []


def test_torch_parses_the_calls_of_every_function_of_the_language(whole_run: bool) -> None:
    """A function that computed instead would be given proxies, and its arguments would go unchecked.

    A default run has one function in three.
    """
    natives = types.FunctionType | types.BuiltinFunctionType | types.MethodDescriptorType
    silent = []
    for fn in itertools.islice(TORCH.functions, 0, None, 1 if whole_run else 3):
        of_torch = (getattr(fn, "__module__", None) or "torch").startswith("torch")
        if not isinstance(fn, natives) or fn in SILENT or not of_torch:
            continue
        answers = (_answer(fn, args) for args in surface.arguments())
        if next((a for a in answers if a is not None and a is not NotImplemented), _JUDGE) is not _JUDGE:
            silent.append(fn)
    assert silent == []


def test_a_native_function_of_a_package_is_not_run_to_be_parsed() -> None:
    x = TensorProxy("x", shape=(), dtype=torch.float32, device="cpu")
    assert parse(math.sqrt, (x,), {}) is None
    with pytest.raises(TypeError, match="add\\(\\): argument 'other'"):
        parse(torch.add, (x, "1"), {})


def _answer(fn: Any, args: tuple[Any, ...]) -> Any:
    torch._C._push_on_torch_function_stack(_JUDGE)
    try:
        return fn(*args)
    except Exception:  # these arguments are not for it
        return None
    finally:
        torch._C._pop_torch_function_stack()


TWO, HALF = np.int64(2), np.float32(0.5)
TAKEN: list[Callable[[torch.Tensor], Any]] = [
    lambda x: (x.to(float), x.to(bool), x.to(int), x.to(complex), x.to(dtype=float)),
    lambda x: (
        x.type(torch.LongTensor),
        x.type("torch.DoubleTensor"),
        x.type(torch.half),
        x.type(torch.Tensor),
    ),
    lambda x: (
        x.to(N),
        x.to(True),
        x.to(1.5),
        x.to(tensor=N),
        x.to("cpu", float, False, True),
        x.to(torch.int8, copy=True),
    ),
    lambda x: (x.any(keepdim=True), x.all(keepdim=True), x.sum(axis=0, keepdims=True)),
    lambda x: (
        torch.add(2, 3),
        torch.mul(2, 3.0),
        torch.sub(3, 2),
        torch.div(7, 2, rounding_mode="floor"),
    ),
    lambda x: (
        torch.add(x, TWO),
        x.mul(HALF),
        x.clamp(max=HALF),
        torch.mul(TWO, x),
        torch.full((TWO,), HALF),
    ),
    lambda x: (torch.movedim(x.sum(), 0, 0), x.sum().unfold(0, 1, 1)),
    lambda x: (torch.is_tensor(x), torch.is_tensor(3), torch.is_tensor([x]), torch.is_tensor(x.shape)),
    lambda x: (torch.promote_types(torch.int8, torch.half), torch.can_cast(torch.float, torch.int)),
]


@pytest.mark.parametrize("program", TAKEN)
def test_what_torch_takes_means_what_it_means_in_eager(program: Callable[[torch.Tensor], Any]) -> None:
    assert difference("", thunder.jit(program)(X), program(X)) is None


REFUSED: list[Callable[[torch.Tensor], Any]] = [
    lambda x: x.type("nonsense"),
    lambda x: x.type(float),
    lambda x: x.to(other=N),
    lambda x: x.prod(None, keepdim=True),
    lambda x: x.sum(0, 1, 2, 3),
    lambda x: x.sum(0, foo=1),
    lambda x: x.sum(0, dim=0),
    lambda x: torch.add(x, x, 2, 3),
    lambda x: torch.full((2,), x),
    lambda x: x.float(3),
    lambda x: x + "a",
    lambda x: x ** [2],
    lambda x: ~x,
    lambda x: F.dropout(x, q=1),
    lambda x: F.dropout(x, "a", training=False),
    lambda x: F.alpha_dropout([1]),
    lambda x: F.dropout1d(x[0], training=False),
    lambda x: F.cross_entropy(x, N[:, 0], x.sum()),
    lambda x: torch.is_floating_point(3),
    lambda x: torch.is_conj(3),
    lambda x: torch.is_tensor(obj=x),
    lambda x: torch.get_default_device(1),
    lambda x: x.igamma_(x, out=None),
]


@pytest.mark.parametrize("program", REFUSED)
def test_what_torch_refuses_raises_its_class(program: Callable[[torch.Tensor], Any]) -> None:
    with pytest.raises(Exception) as theirs:  # noqa: PT011  (each has its own class)
        program(X.clone())
    with pytest.raises(Exception) as ours:  # noqa: PT011
        thunder.jit(program)(X.clone())
    assert isinstance(ours.value, theirs.type)
    assert not isinstance(ours.value, UnsupportedProgram)


def test_a_number_that_requires_grad_is_no_number() -> None:
    number = torch.tensor(2.0, requires_grad=True)
    text = r"full\(\): argument 'fill_value' \(position 2\) must be Number, not Tensor"
    with pytest.raises(TypeError, match=text):
        torch.full((2,), number)
    with pytest.raises(TypeError, match=text):
        thunder.jit(lambda t: torch.full((2,), t))(number)


FILLED = (2.5, torch.tensor(2.5), torch.tensor(2.5, dtype=torch.float64), torch.tensor(3, dtype=torch.int32))


@pytest.mark.parametrize("value", [*FILLED, torch.tensor(True), torch.tensor(1 + 2j)], ids=str)
@pytest.mark.parametrize("dtype", [None, torch.float64, torch.int8])
def test_a_tensor_is_filled_with_the_number_in_another(value: Any, dtype: torch.dtype | None) -> None:
    named = {} if dtype is None else {"dtype": dtype}
    programs: tuple[Callable[[Any], torch.Tensor], ...] = (
        lambda t: torch.full((2,), t, **named),
        lambda t: torch.full((2,), t, **named).to(torch.float64),
        lambda t: torch.full_like(N, t, **named),
        lambda t: X.new_full((2,), t, **named),
        lambda t: torch.scalar_tensor(t, **named),
    )
    for program in programs:
        try:
            theirs = program(value)
        except RuntimeError as error:
            with pytest.raises(RuntimeError, match=re.escape(str(error))):
                thunder.jit(program)(value)
            continue
        assert difference("", thunder.jit(program)(value), theirs) is None


def test_a_number_that_a_tensor_cannot_hold_is_found_when_the_program_runs() -> None:
    program = thunder.jit(lambda t: torch.full((2,), t, dtype=torch.int8))
    assert program(torch.tensor(100)).tolist() == [100, 100]
    with pytest.raises(RuntimeError, match="overflow"):
        program(torch.tensor(1000))


@pytest.mark.parametrize("alpha", [torch.tensor(2.0), torch.tensor(3)], ids=str)
def test_a_tensor_of_one_number_is_taken_as_the_number(alpha: torch.Tensor) -> None:
    program = thunder.jit(lambda x, t: torch.add(x, x, alpha=t))
    assert torch.equal(program(X, alpha), torch.add(X, X, alpha=alpha))


@pytest.mark.parametrize("alpha", [torch.ones(2), torch.tensor(2.0, requires_grad=True)], ids=["two", "grad"])
def test_another_tensor_in_the_place_of_a_number_raises_torchs_error(alpha: torch.Tensor) -> None:
    with pytest.raises(TypeError, match="argument 'alpha' must be Number, not Tensor"):
        thunder.jit(lambda x, t: torch.add(x, x, alpha=t))(X, alpha)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_parameter_may_be_a_number_in_a_tensor_that_requires_grad(requires_grad: bool) -> None:
    x, y, variance = torch.randn(4), torch.randn(4), torch.tensor(0.5, requires_grad=requires_grad)

    def loss(x: torch.Tensor, y: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        return F.gaussian_nll_loss(x, y, variance)

    found = thunder.jit(loss)(x, y, variance)
    expected = loss(x, y, variance)
    torch.testing.assert_close(found, expected)
    if requires_grad:
        (gradient,) = torch.autograd.grad(found, variance)
        torch.testing.assert_close(gradient, torch.autograd.grad(expected, variance)[0])
    with pytest.raises(ValueError, match="var has negative entry"):
        thunder.jit(loss)(x, y, -variance)


def test_a_length_that_a_tensor_holds_is_refused() -> None:
    with pytest.raises(UnsupportedProgram, match=r"torch\.range does not take these arguments here"):
        thunder.jit(lambda t: torch.range(0, t))(torch.tensor(3))


def test_functions_composed_of_rows_take_names_of_numpy() -> None:
    x = torch.arange(6.0).view(2, 3)

    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.linalg.norm(x, axis=1, keepdims=True), torch.linalg.norm(x, ord=1, axis=0)

    torch.testing.assert_close(thunder.jit(program)(x), program(x))
    with pytest.raises(TypeError, match="axes"):
        thunder.jit(lambda x: torch.linalg.norm(x, axes=1))(x)
