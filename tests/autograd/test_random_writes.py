"""Random programs of views and writes do what eager does, to the layout and the flags of each tensor."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

import thunder
from autograd.random_programs import built
from autograd.random_writes import KINDS, program_of_writes
from comparison.bytes_moved import bytes_of_computation, bytes_of_eager
from comparison.derivatives import _drawn, _leaves
from sweeping import one_in
from thunder.core.proxies import TensorProxy
from thunder.passes import below_autograd
from thunder.passes.placed_writes import own_memory

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, about writes to expanded tensors


@pytest.fixture(autouse=True)
def _small_programs_are_as_large_ones(monkeypatch):
    """Memory of the programs is reused, and calls run below torch's autograd, although both are few."""
    monkeypatch.setattr(own_memory, "SMALLEST", 0)
    monkeypatch.setattr(below_autograd, "SHORTEST", 1)


#: programs a test, and tests a kind, of which a default run has one
PROGRAMS, BLOCKS = 7, 40

#: what may be refused although eager runs it
REFUSALS = (
    "overlaps another in memory is written where gradients are tracked",
    "written where gradients are off, and read where they are on",  # of inputs that overlap
    "an in-place operator writes through (as_strided|unfold)",
    "read through as_strided, which shows memory",
    "some elements of the input tensor and the written-to tensor refer to a single memory location",
    "would give its out= another shape",
    "a detached tensor was written with a value that requires grad",
    "more than one element of the written-to tensor refers to a single memory location",
    "an input is written that shares memory with an input of another dtype",
)
#: what eager raises for views whose results are not used (docs/differences.md)
UNUSED = (
    "view size is not compatible",
    "setStorage",
    "must have a last dimension with stride 1",
    "must be divisible",
)


@dataclass
class Effects:
    """What a call does: values, facts of its tensors, changed inputs, gradients, or its error."""

    error: Exception | None = None
    facts: list[dict[str, Any]] = field(default_factory=list)
    values: list[torch.Tensor] = field(default_factory=list)
    changed: list[bool] = field(default_factory=list)
    #: results and inputs, and the leaves of their graphs
    tensors: list[torch.Tensor] = field(default_factory=list)
    leaves: list[torch.Tensor] = field(default_factory=list)


def effects(fn: Callable[..., Any], make: Callable[[], list[torch.Tensor]]) -> Effects:
    """Call a program, and look at its results and inputs."""
    seen, inputs = Effects(), make()
    seen.leaves, versions = _leaves(inputs), [x._version for x in inputs]
    try:
        results = fn(*inputs)
    except (RuntimeError, IndexError, TypeError, NotImplementedError) as error:
        seen.error = error
        return seen
    seen.tensors = [*results, *inputs]
    seen.changed = [x._version != version for x, version in zip(inputs, versions, strict=True)]
    seen.facts = [facts(t, seen.tensors) for t in seen.tensors]
    seen.values = [t.detach().clone() for t in seen.tensors]
    return seen


def facts(t: torch.Tensor, others: list[torch.Tensor]) -> dict[str, Any]:
    """Return the facts of a tensor that its caller can see, in relation to the tensors before it."""
    storage = t.untyped_storage()._cdata
    first = next(i for i, o in enumerate(others) if o.untyped_storage()._cdata == storage)
    return {
        "dtype": t.dtype,
        "shape": tuple(t.shape),
        "strides": [s for s, n in zip(t.stride(), t.shape, strict=True) if n != 1] if t.numel() else [],
        "requires grad": t.requires_grad,
        "has a grad_fn": graph_of(t),
        "object": next(i for i, o in enumerate(others) if o is t),
        "storage": first,
        "distance (bytes)": t.data_ptr() - others[first].data_ptr()
        if t.numel() * others[first].numel()
        else 0,
        "conjugate": t.is_conj(),
    }


def graph_of(t: torch.Tensor) -> bool | None:
    """Return whether a tensor has a node in torch's graph; None if torch refuses to answer."""
    try:
        return t.grad_fn is not None or (t.requires_grad and t.is_leaf and not t._is_view())
    except RuntimeError:
        return None


def gradients(seen: Effects, tracked: list[int]) -> list[torch.Tensor | None] | Exception:
    """Return the gradients of the leaves from some of the tensors, or the error of the backward."""
    if not tracked or not seen.leaves:
        return [None] * len(seen.leaves)
    sources = [seen.tensors[i] for i in tracked]
    cotangents = [_drawn(t, seed=i) for i, t in zip(tracked, sources, strict=True)]
    try:
        return list(torch.autograd.grad(sources, seen.leaves, cotangents, allow_unused=True))
    except RuntimeError as error:
        return error


def check_facts(theirs: Effects, ours: Effects, text: str) -> None:
    """Fail where facts differ, except those of views that were created where gradients are off.

    Eager's require grad if their base does, and so does what is computed from them; nothing flows through.
    """
    has_regions = "no_grad" in text or "inference" in text or "enabled(False)" in text
    for i, (t, o) in enumerate(zip(theirs.facts, ours.facts, strict=True)):
        ignored = {"has a grad_fn"} if t["has a grad_fn"] is None else set()
        if has_regions and t["requires grad"] and not o["has a grad_fn"]:
            ignored |= {"requires grad", "has a grad_fn"}
        different = {k: (t[k], o[k]) for k in t if t[k] != o[k] and k not in ignored}
        assert not different, f"tensor {i}: {different}"


def compare(theirs: Effects, ours: Effects, text: str) -> bool:
    """Fail where a compiled program differs from eager; return False if it is refused."""
    if ours.error is not None:
        if theirs.error is not None:
            return True
        reason = str(ours.error).splitlines()[0]
        assert isinstance(ours.error, thunder.UnsupportedProgram | thunder.OperatorError), reason
        assert any(re.search(allowed, reason) for allowed in REFUSALS), reason
        return False
    if theirs.error is not None:
        assert any(t in str(theirs.error) for t in UNUSED), f"eager raises: {theirs.error}"
        return True
    assert all(t or not o for t, o in zip(theirs.changed, ours.changed, strict=True)), "an input was written"
    check_facts(theirs, ours, text)
    for i, (t, o) in enumerate(zip(theirs.values, ours.values, strict=True)):
        assert torch.allclose(t, o, equal_nan=True), f"the value of tensor {i}"
    compare_gradients(theirs, ours)
    return True


def compare_gradients(theirs: Effects, ours: Effects) -> None:
    """Fail where gradients differ; eager refuses to differentiate what was overwritten."""
    both = zip(theirs.facts, ours.facts, strict=True)
    in_graph = [(i, o["has a grad_fn"]) for i, (t, o) in enumerate(both) if t["has a grad_fn"]]
    expected = gradients(theirs, [i for i, _ in in_graph])
    found = gradients(ours, [i for i, is_here in in_graph if is_here])
    if isinstance(expected, Exception):
        return
    assert not isinstance(found, Exception), f"the backward raises: {found!r}"
    for i, (t, o) in enumerate(zip(expected, found, strict=True)):
        t, o = (g if g is not None else torch.zeros(()) for g in (t, o))
        assert torch.allclose(*torch.broadcast_tensors(t, o), equal_nan=True), f"gradient {i}: {t} {o}"


CASES = [(kind, block) for kind in KINDS for block in range(BLOCKS)]


@pytest.mark.parametrize(("kind", "block"), one_in(BLOCKS, CASES))
def test_random_writes_do_what_eager_does(kind: str, block: int) -> None:
    compared = 0
    for number in range(PROGRAMS):
        seed = f"{kind} {block} {number}"
        text = program_of_writes(seed, KINDS[kind])
        program = built(text, seed)
        try:
            compared += compare(
                effects(program, KINDS[kind]), effects(thunder.jit(program), KINDS[kind]), text
            )
        except Exception as error:
            error.add_note(f"{seed}\n{text}")
            raise
    assert compared or "overlapping" in kind, "no program was compared"


# -- bytes that are moved ------------------------------------------------------------------------------------

#: statements that eager lacks, and why they are left; the bytes of their results are allowed
EXCEPTIONS = {
    "prims.full": "a number that is written becomes a tensor",
    "torch.full": "a number that is written becomes a tensor",
    "prims.copy_with_setitem": "an own tensor is written through a view, or its old elements are read",
    "prims.index_put": "the same",
    "prims.diagonal_scatter": "the same",
    "prims.as_strided_scatter": "inputs that overlap have one storage, which is copied",
    "prims.clone": "a value that leaves with memory of its own; what inference mode writes",
    "prims.stride_order": "a value that has other strides than eager's",
    "prims.replace_data": "a tensor that requires grad is written where gradients are off",
    "prims.overwrite": "a tensor that requires grad is overwritten",
    "prims.copy_": "an input that is written by a copy: explain says why",
    "prims.where_in_place": "elements are written by a mask: all are read and written",
    "torch.reshape": "a value whose strides permit no view",
    "prims.reshape": "the same",
}
#: kinds whose inputs are counted without their gradients
COUNTED = ("frozen", "strided", "square", "complex numbers", "one twice", "overlapping")


@pytest.mark.parametrize(
    ("kind", "block"), one_in(BLOCKS * 3, [(kind, block) for kind in COUNTED for block in range(BLOCKS)])
)
def test_random_writes_move_no_more_bytes_than_eager(kind: str, block: int) -> None:
    """No more than eager moves, and what ``EXCEPTIONS`` allows; without what a call keeps to be undone."""
    compared = 0

    def make() -> list[torch.Tensor]:
        return [x.detach() for x in KINDS[kind]()]

    for number in range(PROGRAMS):
        seed = f"bytes {kind} {block} {number}"
        text = program_of_writes(seed, make)
        program = built(text, seed)
        compiled = thunder.jit(program, executors=["torch"])
        try:
            eager = bytes_of_eager(program, make())
            compiled(*make())
        except (RuntimeError, IndexError, TypeError, NotImplementedError, thunder.ThunderError):
            continue
        entry = thunder.compile_stats(compiled).last_entry
        if entry is None:  # the program raises, and Python has run it
            continue
        ours = bytes_of_computation(entry, make())
        allowed = exceptions(thunder.last_traces(compiled)[-1])
        # the value for an ``out=`` is computed beside it
        allowed += [count for name, count in eager.by_operator.items() if name.endswith("out")]
        assert ours.total <= eager.total + sum(allowed), f"{seed}\n{text}\n{ours.by_operator}"
        compared += 1
    assert compared or "overlapping" in kind, "no program was compared"


def exceptions(trace: Any) -> list[int]:
    """Return the bytes of the results of statements in ``EXCEPTIONS``."""
    statements = [b for b in trace.bound_symbols if b.sym.id in EXCEPTIONS]
    written = [p for b in statements for p in (b.flat_proxy_outs or b.flat_proxy_args[-1:])]
    # a copy, and what is written to it
    return [
        2 * math.prod(p.shape) * p.dtype.torch_dtype.itemsize for p in written if isinstance(p, TensorProxy)
    ]
