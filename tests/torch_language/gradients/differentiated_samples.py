"""Torch's operator samples, differentiated, and what it means that thunder's gradients are right.

A sample is recorded, its program differentiated, given to the eager executors and run; results and gradients
are compared with eager's. For second derivatives the joint program is differentiated once more: results and
first gradients get random cotangents, and what comes back for the inputs and the first cotangents is compared
with what eager's ``create_graph=True`` gives.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torchgen

import thunder
from thunder.autograd.joint_trace import differentiable_outputs, differentiate, joint_trace
from thunder.base.langctx import TORCH
from thunder.base.pytree import tree_flatten, tree_map
from thunder.executors import pythonex, torchex
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx, from_trace, tracectx
from thunder.ir.verify import check_trace
from thunder.ops import prims
from thunder.passes.claim import claim
from thunder.passes.functionalise import functionalise
from torch_language.database import seed_cpu
from torch_language.entries_without_rows import INTERPRETED, REFUSED
from torch_language.sample_traces import Recording, SizesOfValues
from torch_language.samples import SEED, SKIPPED, UNINITIALISED, name_of

EXECUTORS = (torchex.ex, pythonex.ex)

#: the table from which torch's gradients are generated, as the installed torch ships it
DERIVATIVES = Path(torchgen.__file__).parent / "packaged" / "autograd" / "derivatives.yaml"

#: relative and absolute tolerance; float32 is compared with eager's float32, so both round
TOLERANCES = {torch.float64: (1e-7, 1e-8), torch.complex128: (1e-7, 1e-8), torch.float32: (2e-3, 2e-3)}

#: entries whose gradients are not compared, and why
LEFT_OUT: dict[str, str] = {
    **dict.fromkeys(UNINITIALISED, "its values are undefined"),
    **dict.fromkeys(
        ("svd_lowrank", "pca_lowrank"), "Python code, random, which is interpreted in a program and not here"
    ),
    "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu": "a kernel of torch's own: refused by name",
    "as_strided.partial_views": "reads memory outside of its argument, which copies of it do not have",
}

#: entries whose second derivatives are not compared, and why
FIRST_ORDER_ONLY: dict[str, str] = {
    **dict.fromkeys(
        ("linalg.eig", "svd"),
        "torch refuses the part of a loss that depends on a phase, though not the whole",
    ),
}

#: entries whose results eager lets require grad, which is always 0, and thunder does not
NOT_CLAIMED = frozenset({"fill", "zero_"})

#: what eager raises for samples that it does not differentiate
REFUSED_BY_EAGER = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError)


@dataclass(frozen=True)
class Sample:
    """A call of an operator: what it computes, and the arguments, some of which require grad."""

    op: Any
    wrapped: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def call(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """The operator as torch's own gradient tests call it, where ``fn`` stands for its function."""
        return self.wrapped(self.op.gradcheck_wrapper(fn, *args, **kwargs))


@dataclass(frozen=True)
class Derivatives:
    """Results of a call that require grad, and gradients: of the inputs, and, for the second order, of the
    inputs and the first cotangents. None where a value has no influence.
    """

    results: Sequence[torch.Tensor]
    first: Sequence[torch.Tensor | None]
    second: Sequence[torch.Tensor | None] = ()


def sample_of(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Sample:
    """A sample that is not of the database."""
    return Sample(_entry(fn, fn.__name__), lambda out: out, args, kwargs)


def _entry(fn: Callable[..., Any], name: str) -> Any:
    """What is read of an entry of the database."""

    def as_it_is(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return f(*args, **kwargs)

    return SimpleNamespace(op=fn, name=name, variant_test_name="", gradcheck_wrapper=as_it_is)


def in_place(sample: Sample) -> Sample:
    """The sample for the in-place twin of its operator, applied to a copy of the argument."""

    def fn(input: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        out = sample.op.inplace_variant(input.clone(), *args, **kwargs)
        if tuple(out.shape) != tuple(input.shape):
            raise RuntimeError("the twin resized its argument")
        return out

    return replace(sample, op=_entry(fn, sample.op.name))


def is_judged(op: Any) -> bool:
    """Whether the gradients of an entry are compared."""
    left_out = op.name.startswith(SKIPPED) or name_of(op) in REFUSED or name_of(op) in LEFT_OUT
    return bool(op.supports_autograd) and not left_out


def has_second_order(op: Any) -> bool:
    """Whether the second derivatives of an entry are compared."""
    return bool(op.supports_gradgrad) and name_of(op) not in FIRST_ORDER_ONLY


def gradient_samples(op: Any, dtype: torch.dtype, limit: int | None = None) -> Iterator[Sample]:
    """The samples with an argument that requires grad."""
    if dtype not in op.supported_backward_dtypes("cpu"):
        return
    made = op.sample_inputs("cpu", dtype, requires_grad=True)
    samples = (Sample(op, s.output_process_fn_grad, (s.input, *s.args), dict(s.kwargs)) for s in made)
    yield from islice((s for s in samples if _requiring_grad((s.args, s.kwargs))), limit)


def _tensors(tree: Any) -> list[torch.Tensor]:
    """The distinct tensors of a tree, in order."""
    return list({id(x): x for x in tree_flatten(tree)[0] if isinstance(x, torch.Tensor)}.values())


def _requiring_grad(tree: Any) -> list[torch.Tensor]:
    return [x for x in _tensors(tree) if x.requires_grad]


def as_leaves(tree: Any) -> Any:
    """A copy in which tensors are leaves, with their strides, and one object stays one object."""
    seen: dict[int, torch.Tensor] = {}

    def copy(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        if id(x) not in seen:
            seen[id(x)] = (
                x.detach().clone(memory_format=torch.preserve_format).requires_grad_(x.requires_grad)
            )
        return seen[id(x)]

    return tree_map(copy, tree)


class Cotangents:
    """Random cotangents, the n-th the same for the n-th question."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def like(self, x: torch.Tensor) -> torch.Tensor:
        """A random tensor of this shape and dtype."""
        return torch.randn(x.shape, dtype=x.dtype, generator=self.generator)


# -- eager's -------------------------------------------------------------------------------------------------


def eager_derivatives(sample: Sample, second: bool) -> Derivatives:
    """What torch's autograd gives. Raises one of REFUSED_BY_EAGER for a sample that it does not take."""
    args, kwargs = as_leaves((sample.args, sample.kwargs))
    inputs = _requiring_grad((args, kwargs))
    seed_cpu(SEED)
    out = sample.call(sample.op.op, args, kwargs)
    results = [x for x in _leaves(out) if isinstance(x, torch.Tensor) and x.requires_grad]
    if not results:
        return Derivatives([], [None] * len(inputs))
    draw = Cotangents(1)
    given = [draw.like(x).requires_grad_() for x in results]
    first = torch.autograd.grad(results, inputs, given, create_graph=second, allow_unused=True)
    if not second:
        return Derivatives(results, first)
    draw = Cotangents(2)
    drawn = [draw.like(x) for x in (*results, *inputs)]
    pairs = [
        (x, g) for x, g in zip((*results, *first), drawn, strict=True) if x is not None and x.requires_grad
    ]
    again = torch.autograd.grad(
        [x for x, _ in pairs], [*inputs, *given], [g for _, g in pairs], allow_unused=True
    )
    return Derivatives(results, first, again)


def _leaves(tree: Any) -> list[Any]:
    return tree_flatten(tuple(tree) if isinstance(tree, tuple) else tree)[0]


# -- thunder's -----------------------------------------------------------------------------------------------


def recorded(sample: Sample) -> tuple[TraceCtx, list[torch.Tensor]]:
    """The program of a sample, which returns the results that require grad, and the tensors it takes."""
    trace, tensors = TraceCtx(), _tensors((sample.args, sample.kwargs))
    values: dict[str, torch.Tensor] = {}
    with tracectx(trace, recorder=SizesOfValues(trace, values)):
        proxies = {id(x): _proxy(x) for x in tensors}
        values |= {proxies[id(x)].name: x.detach() for x in tensors}
        trace.args = list(proxies.values())
        args, kwargs = tree_map(lambda x: proxies.get(id(x), x), (sample.args, sample.kwargs))
        with Recording():
            out = sample.call(TORCH.resolve(sample.op.op) or sample.op.op, args, kwargs)
        prims.python_return(tuple(x for x in _leaves(out) if isinstance(x, TensorProxy) and x.requires_grad))
    return functionalise(trace), tensors


def taken_apart(trace: TraceCtx) -> TraceCtx:
    """The program in primitives alone: in place of composites, which have rules of their own, their parts."""
    new = from_trace(trace)
    new.bound_symbols = list(_parts(trace.bound_symbols))
    return new


def _parts(bsyms: Iterable[BoundSymbol]) -> Iterator[BoundSymbol]:
    for bsym in bsyms:
        if bsym.sym.is_prim or not bsym.subsymbols:
            yield bsym
        else:
            yield from _parts(bsym.subsymbols)


def _proxy(x: torch.Tensor) -> TensorProxy:
    return TensorProxy(like=x, strides=x.stride())


def joint_of(trace: TraceCtx) -> TraceCtx:
    """The joint trace of a program, with a cotangent for each place among its results that requires grad."""
    trace = _with_own_results(trace)
    return joint_trace(differentiate(trace), differentiable_outputs(trace))


def _with_own_results(trace: TraceCtx) -> TraceCtx:
    """The program, which returns a flat tuple; results that are inputs, or repeated, become copies."""
    new = from_trace(trace)
    new.bound_symbols = [b for b in trace.bound_symbols if b.sym.id != prims.python_return.id]
    taken = {a.name for a in trace.args}
    results = []
    with tracectx(new):
        for x in tree_flatten(trace.output)[0]:
            if isinstance(x, TensorProxy):
                x = prims.clone(x) if x.name in taken else x
                taken.add(x.name)
            results.append(x)
        prims.python_return(tuple(results))
    return new


def run(trace: TraceCtx, values: Sequence[torch.Tensor]) -> Any:
    """What the program returns, run by the eager executors."""
    check_trace(trace)
    fn = claim(trace, EXECUTORS)[0].python_callable()
    seed_cpu(SEED)
    return fn(*(x.detach() for x in values))


def thunders_derivatives(sample: Sample, second: bool, apart: bool = False) -> Derivatives:
    """What thunder's autograd gives, for the program as it is or for its primitives."""
    if name_of(sample.op) in INTERPRETED:
        program = thunder.jit(lambda *args, **kwargs: sample.op.op(*args, **kwargs))
        return eager_derivatives(replace(sample, op=_entry(program, sample.op.name)), second)
    trace, tensors = recorded(sample)
    trace = taken_apart(trace) if apart else trace
    wanted = [i for i, x in enumerate(tensors) if x.requires_grad]
    if not differentiable_outputs(_with_own_results(trace)):
        return Derivatives([], [None] * len(wanted))
    joint = joint_of(trace)
    draw = Cotangents(1)
    given = [draw.like(_example(p)) for p in joint.args[len(tensors) :]]
    results, gradients = run(joint, [*tensors, *given])
    first = [gradients[i] for i in wanted]
    if not second:
        return Derivatives(results, first)
    draw = Cotangents(2)
    more = [draw.like(x) for x in (*results, *(tensors[i] for i in wanted))]
    proxies = tree_flatten(joint.output)[0]
    asked = [*proxies[: len(results)], *(proxies[len(results) + i] for i in wanted)]
    more = [g for p, g in zip(asked, more, strict=True) if isinstance(p, TensorProxy) and p.requires_grad]
    once_more, again = run(joint_of(joint), [*tensors, *given, *more])
    for i, (x, y) in enumerate(zip(once_more, (*results, *gradients), strict=True)):
        _assert_close(f"decomposed[{i}]", x, y)  # what has no rule of its own is taken apart here
    return Derivatives(results, first, [again[i] for i in (*wanted, *range(len(tensors), len(joint.args)))])


def _example(proxy: TensorProxy) -> torch.Tensor:
    return torch.empty(tuple(proxy.shape), dtype=proxy.dtype.torch_dtype)


# -- the verdict ---------------------------------------------------------------------------------------------


def check_gradients(sample: Sample, second: bool = False, apart: bool = False) -> bool:
    """Asserts that gradients are eager's, to second order if asked. False if eager refuses the sample.

    ``apart`` asks it of the primitives that the program consists of.
    """
    try:
        expected = eager_derivatives(sample, second)
    except REFUSED_BY_EAGER:
        return False
    found = thunders_derivatives(sample, second, apart)
    if name_of(sample.op) in NOT_CLAIMED and not found.results:
        return all(g is None or not g.any() for g in (*expected.first, *expected.second))
    assert len(found.results) == len(expected.results), (
        f"{len(found.results)} results require grad, not {len(expected.results)}"
    )
    for what in ("results", "first", "second"):
        pairs = zip(getattr(found, what), getattr(expected, what), strict=True)
        for i, (ours, theirs) in enumerate(pairs):
            _assert_close(f"{what}[{i}]", ours, theirs)
    return True


@functools.cache
def is_differentiated_by_torch(operator: str) -> bool:
    """Whether the installed torch has a formula for a gradient of an operator of aten."""
    entries = DERIVATIVES.read_text(encoding="utf-8").split("- name: ")
    found = [entry for entry in entries if entry.startswith(f"{operator}(")]
    return any("not_implemented" not in e and "non_differentiable" not in e for e in found)


def _assert_close(what: str, ours: torch.Tensor | None, theirs: torch.Tensor | None) -> None:
    """Asserts that two gradients are close; none is as good as zeros."""
    if ours is None and theirs is None:
        return
    known = ours if ours is not None else theirs
    assert known is not None, "one of them is there"
    ours = torch.zeros_like(known) if ours is None else ours
    theirs = torch.zeros_like(known) if theirs is None else theirs
    rtol, atol = TOLERANCES.get(theirs.dtype, (6e-2, 6e-2))
    torch.testing.assert_close(
        ours.detach().resolve_conj(),
        theirs.detach().resolve_conj(),
        rtol=rtol,
        atol=atol,
        equal_nan=True,
        check_stride=False,
        msg=lambda text: f"{what}: {text}",
    )
