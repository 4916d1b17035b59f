"""``out=``: what a function computes is written where the program says, as eager writes it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any
from zlib import crc32

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import thunder
from comparison.errors import assert_same_error, stripped
from recorded_refusals import refusals_as_recorded
from sweeping import one_in
from thunder.base.errors import OperatorError, UnsupportedProgram
from thunder.base.pytree import tree_iter, tree_map
from thunder.ir.proxies import TensorProxy
from thunder.ops.meta_kernels import eager_error, eager_error_on_identity
from torch_language.database import op_db
from torch_language.samples import SEED, SKIPPED, UNINITIALISED, copied, name_of

#: entries of which torch itself does not keep what ``out=`` promises, and why
NOT_JUDGED: dict[str, str] = {
    "equal": "gives no tensor",
    "sparse.sampled_addmm": "gives no strided tensor",
    "torch._scaled_mm": "takes the memory of out for that of another dtype",
    "torch._scaled_mm_v2": "takes an object of C's",
    "split_with_sizes_copy": "returns None",
    "unbind_copy": "returns None",
    **dict.fromkeys(
        ["bernoulli", "multinomial", "normal", "normal.number_mean", "randn"],
        "is called through a Python function that sets the seed; below",
    ),
    **dict.fromkeys(
        ["narrow_copy", "nn.functional.avg_pool3d", "nn.functional.gelu"],
        "does not write to an out that is not contiguous",
    ),
    **dict.fromkeys(["nn.functional.linear", "cholesky_inverse"], "changes the strides of out"),
}

ENTRIES = {
    name_of(op): op
    for op in op_db
    if op.supports_out and not op.name.startswith(SKIPPED) and name_of(op) not in NOT_JUDGED
}


def like(dtype: torch.dtype | None = None, strided: bool = False) -> Callable[[torch.Tensor], torch.Tensor]:
    """Makes tensors of the shape of a result, of its dtype or another, contiguous or not."""

    def make(t: torch.Tensor) -> torch.Tensor:
        shape = (*t.shape[:-1], 2 * t.shape[-1]) if strided and t.dim() else t.shape
        made = torch.full(shape, 1, dtype=dtype or t.dtype)
        return made[..., ::2] if strided and t.dim() else made

    return make


KINDS = {
    "contiguous": like(),
    "strided": like(strided=True),
    "float64": like(torch.float64),
    "complex128": like(torch.complex128),
    "int64": like(torch.int64),
}


def outcome(fn: Callable[..., Any], op: Any, sample: Any, make: Any) -> Any:
    """What a call with ``out=`` made by ``make`` gives, and what is in ``out`` then; or the error."""
    args, kwargs = copied((sample.input, *sample.args)), copied(sample.kwargs)
    torch.manual_seed(SEED)
    out = tree_map(make, op.op(*copied(args), **copied(kwargs)))
    torch.manual_seed(SEED)
    try:
        result, same = fn(op.op, out, args, kwargs)
    except (RuntimeError, TypeError, UnsupportedProgram) as error:
        return error
    return result, same, list(tree_iter(out)), args


def called(fn: Any, out: Any, args: Any, kwargs: Any) -> Any:
    result = fn(*args, **kwargs, out=out)
    same = [a is b for a, b in zip(tree_iter(result), tree_iter(out), strict=True)]
    return list(tree_iter(result)), same


def kind_of(name: str) -> str:
    """The kind of ``out`` with which an entry is tested, the same with every version of torch."""
    return list(KINDS)[crc32(name.encode()) % len(KINDS)]


@pytest.mark.parametrize(("kind", "name"), one_in(4, [(kind_of(name), name) for name in ENTRIES]))
def test_out_of_every_entry(name: str, kind: str) -> None:
    op, make = ENTRIES[name], KINDS[kind]
    dtype = torch.float32 if op.supports_dtype(torch.float32, "cpu") else torch.int64
    sample = next(iter(op.sample_inputs("cpu", dtype)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = outcome(called, op, sample, make)
        found = outcome(thunder.jit(called), op, sample, make)
    with refusals_as_recorded("out=", name) as refusals:
        if isinstance(found, UnsupportedProgram):
            refusals.add(kind, found)
            return
    if isinstance(expected, Exception):
        assert isinstance(found, Exception), f"eager refuses it: {expected}"
        assert_same_error(expected, found, stripped)
    else:
        assert not isinstance(found, Exception), str(found)
        assert found[1] == expected[1]
        assert all(found[1]), "another tensor is returned"
        # a kernel of torch's adds up in another order where its result is not contiguous
        exact = {} if kind == "strided" else {"rtol": 0, "atol": 0}
        if op.name not in UNINITIALISED:
            torch.testing.assert_close(tensors(found), tensors(expected), equal_nan=True, **exact)
        assert [t.stride() for t in found[0]] == [t.stride() for t in expected[0]]


def tensors(tree: Any) -> list[torch.Tensor]:
    return [t for t in tree_iter(tree) if isinstance(t, torch.Tensor)]


def assert_as_eager(fn: Callable[..., Any], *args: Any) -> None:
    """Asserts that a program does what eager does: its results, its writes, twice."""
    jitted = thunder.jit(fn)
    for _ in range(2):
        theirs, ours = copied(args), copied(args)
        torch.manual_seed(SEED)
        expected = fn(*theirs)
        torch.manual_seed(SEED)
        found = jitted(*ours)
        torch.testing.assert_close((found, ours), (expected, theirs), rtol=0, atol=0)
    assert thunder.cache_misses(jitted) == 1


X, Y = torch.randn(3, 4), torch.randn(3, 4)


def test_out_may_be_an_input_or_a_view() -> None:
    assert_as_eager(lambda a, b: (torch.add(a, b, out=a), a * 2), X, Y)
    assert_as_eager(lambda a, buffer: (torch.mul(a, 2, out=buffer[0]), buffer + 1), X, torch.zeros(2, 3, 4))
    assert_as_eager(lambda a, buffer: torch.mul(a, 2, out=buffer.mT) + 1, X, torch.zeros(4, 3))


def test_the_tensors_that_were_given_are_returned() -> None:
    def program(a: Any, v: Any, i: Any) -> Any:
        r = torch.sort(a, dim=0, out=(v, i))
        assert r.values is v
        assert r[1] is i
        s = torch.max(a, 1, out=(v[:, 0], i[:, 1]))
        return r, s, v, i

    assert_as_eager(program, X, torch.zeros(3, 4), torch.zeros(3, 4, dtype=torch.int64))


def test_out_of_functions_that_are_no_rows() -> None:
    assert_as_eager(lambda a, out: F.normalize(a, dim=1, out=out) is out, X, torch.zeros(3, 4))
    assert_as_eager(lambda a, out: torch.special.airy_ai(a, out=out), X, torch.zeros(3, 4))
    assert_as_eager(lambda a, out: torch.ops.aten.add(a, a, out=out), X, torch.zeros(3, 4))


def test_out_decides_the_dtype_of_what_is_made() -> None:
    assert_as_eager(lambda out: torch.arange(4, out=out), torch.zeros(4, dtype=torch.float64))
    assert_as_eager(lambda out: torch.randn(4, out=out), torch.zeros(4, dtype=torch.float64))
    assert_as_eager(
        lambda p, out: torch.bernoulli(p, out=out), X.sigmoid(), torch.zeros(3, 4, dtype=torch.float64)
    )
    assert_as_eager(lambda m, out: torch.normal(m, 2.0, out=out), X, torch.zeros(3, 4))
    assert_as_eager(
        lambda p, out: torch.multinomial(p, 2, out=out), X.sigmoid(), torch.zeros(3, 2, dtype=torch.int64)
    )
    assert_as_eager(lambda a, out: torch.sum(a, 0, out=out), 1e8 * X, torch.zeros(4, dtype=torch.float64))


def test_random_numbers_into_strided_memory_are_refused() -> None:
    with pytest.raises(UnsupportedProgram, match=r"torch\.randn draws random numbers into an out="):
        thunder.jit(lambda out: torch.randn(3, 4, out=out.mT))(torch.zeros(4, 3))


def test_another_shape_is_refused_with_the_way_out() -> None:
    with pytest.raises(UnsupportedProgram, match=r"another shape, \[3, 4\][^$]*Make out with that shape"):
        thunder.jit(lambda a, out: torch.sin(a, out=out))(X, torch.zeros(0))


@pytest.mark.parametrize(
    ("fn", "out"),
    [
        (lambda a, out: torch.add(a, a, out=out), torch.zeros(3, 4, dtype=torch.int64)),
        (lambda a, out: F.relu6(a, out=out), torch.zeros(3, 4)),
        (lambda a, out: torch.linalg.inv(a[:, :3], out=out), torch.zeros(3, 3, dtype=torch.float64)),
    ],
)
def test_what_torch_refuses_is_refused_with_its_text(fn: Any, out: torch.Tensor) -> None:
    with pytest.raises((RuntimeError, TypeError)) as theirs:
        fn(X, out)
    with pytest.raises(theirs.type) as ours:
        thunder.jit(fn)(X, out)
    assert_same_error(theirs.value, ours.value, stripped)


class Devices(TorchDispatchMode):
    """The devices on which a function of torch ran."""

    def __init__(self, fn: Any) -> None:
        super().__init__()
        self.fn, self.seen = fn, set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket is self.fn:
            self.seen.add(args[0].device.type)
        return func(*args, **kwargs or {})


def test_a_kernel_that_trusts_pivots_is_not_run_on_others() -> None:
    factors, pivots, _ = torch.linalg.ldl_factor_ex(X[:, :3] @ X[:, :3].mT)
    program = thunder.jit(lambda *args, out: torch.linalg.ldl_solve(*args, out=out))
    with Devices(torch.ops.aten.linalg_ldl_solve) as devices:
        args = {"LD": factors, "pivots": pivots, "B": Y}
        proxies = [
            TensorProxy(name, shape=t.shape, dtype=t.dtype, device=t.device) for name, t in args.items()
        ]
        for judge in (eager_error, eager_error_on_identity):
            assert judge(torch.linalg.ldl_solve, tuple(proxies), {}) is None
    assert devices.seen == {"meta"}
    out = torch.zeros(3, 4)
    assert torch.equal(program(factors, pivots, Y, out=out), torch.linalg.ldl_solve(factors, pivots, Y))


@pytest.mark.parametrize("which", [0, 1])
def test_gradients_through_out_are_refused_as_eager_does(which: int) -> None:
    args = [X.clone(), torch.zeros(3, 4)]
    args[which].requires_grad_()
    with pytest.raises(RuntimeError) as theirs:
        torch.mul(args[0], 2, out=args[1])
    with pytest.raises(OperatorError) as ours:
        thunder.jit(lambda a, out: torch.mul(a, 2, out=out))(*args)
    assert str(ours.value).startswith(str(theirs.value))


def test_without_gradients_out_is_written() -> None:
    def program(a: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            torch.mul(a, 2, out=out)
        return a * out

    a, out = X.clone().requires_grad_(), torch.zeros(3, 4)
    thunder.jit(program)(a, out).sum().backward()
    assert torch.equal(a.grad, 2 * X)
    assert torch.equal(out, 2 * X)


def test_autocast_leaves_calls_alone_that_write() -> None:
    def program(a: torch.Tensor, out: torch.Tensor) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return torch.mm(a, a.mT, out=out), out.addmm_(a, a.mT), out.exp_()

    assert_as_eager(program, X, torch.zeros(3, 3))
