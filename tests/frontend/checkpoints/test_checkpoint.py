"""``torch.utils.checkpoint``: values and gradients as without it, and as little kept as eager keeps."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)

import thunder
from comparison.derivatives import assert_as_eager
from comparison.inputs import leaf
from thunder.base.tags import OpTags
from thunder.ir.proxies import ProxyTag, TensorProxy
from thunder.ir.symbol import BoundSymbolTag


def again(fn, *args):
    return checkpoint(fn, *args, use_reentrant=False)


def block(x, w):
    h = torch.relu(x @ w).sin()
    return h @ w + x


def inplace_block(x, w):
    h = x @ w
    h.relu_()
    h.mul_(2)
    return h.sin().add_(1) @ w


def two_results(x, w):
    h = (x @ w).sin()
    return h, h.cos() @ w


def dropped(x, w):
    return nn.functional.dropout((x @ w).sin(), 0.5).cos() @ w


def called_with(x, *, w, scale):
    return (x @ w).sin() * scale


#: whether ``checkpoint`` without a function is a decorator, as it is since torch 2.15
DECORATES = inspect.signature(checkpoint).parameters["function"].default is None


def wrapped(fn):
    return checkpoint(use_reentrant=False)(fn) if DECORATES else functools.partial(again, fn)


wrapped_block = wrapped(block)

PROGRAMS = {
    "a decorated function": lambda x, w: wrapped_block(x, w).tanh(),
    "decorated in the program": lambda x, w: wrapped(block)(x, w).tanh(),
    "one region": lambda x, w: again(block, x, w).tanh(),
    "two regions": lambda x, w: again(block, again(block, x, w), w),
    "a closure": lambda x, w: again(lambda y: block(y, w), x * 2),
    "several results": lambda x, w: again(two_results, x, w),
    "one result of several": lambda x, w: again(two_results, x, w)[1],
    "in-place operators": lambda x, w: again(inplace_block, again(inplace_block, x, w), w),
    "a region in a region": lambda x, w: again(lambda y: again(block, y, w).cos() @ w, x).tanh(),
    "keywords": lambda x, w: checkpoint(called_with, x, use_reentrant=False, w=w, scale=2.0),
    "its argument": lambda x, w: again(lambda y: y, x * w),
    "random numbers": lambda x, w: again(dropped, x, w),
    "options": lambda x, w: checkpoint(
        block, x, w, use_reentrant=False, preserve_rng_state=False, determinism_check="none", early_stop=False
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_derivatives_are_eagers(name):
    assert_as_eager(PROGRAMS[name], leaf(4, 4), leaf(4, 4, seed=1))


@pytest.mark.parametrize("name", PROGRAMS)
def test_without_gradients(name):
    with torch.no_grad():
        assert_as_eager(PROGRAMS[name], leaf(4, 4), leaf(4, 4, seed=1), order=0)


def test_a_sequence_in_segments():
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.GELU()) for _ in range(4))).double()
    assert_as_eager(lambda x: checkpoint_sequential(model, 2, x, use_reentrant=False), leaf(3, 4))


def kept(fn: Callable[..., Any], *args: Any) -> int:
    """How many bytes beside the arguments a call keeps for its backward."""
    seen: dict[int, int] = {}

    def pack(t: torch.Tensor) -> torch.Tensor:
        seen[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        result = fn(*args)
    del result
    given = {a.untyped_storage().data_ptr() for a in args}
    return sum(size for pointer, size in seen.items() if pointer not in given)


#: where eager draws random numbers twice, and where a region reads its own result: thunder keeps those
KEEPS_MORE = ("random numbers", "several results", "one result of several")


@pytest.mark.parametrize("name", [n for n in PROGRAMS if n not in KEEPS_MORE])
def test_no_more_is_kept_than_by_eager(name):
    x, w = leaf(4, 4), leaf(4, 4, seed=1)
    program = PROGRAMS[name]
    assert kept(thunder.jit(program), x, w) <= kept(program, x, w)


def test_a_tower_keeps_one_tensor_a_region():
    def tower(x, w):
        for _ in range(5):
            x = again(block, x, w)
        return x.sum()

    x, w = leaf(4, 4), leaf(4, 4, seed=1)
    assert kept(thunder.jit(tower), x, w) == 4 * x.nbytes


def test_what_is_computed_again_has_its_name_in_the_backward():
    compiled = thunder.jit(lambda x, w: again(block, x, w))
    compiled(leaf(4, 4), leaf(4, 4, seed=1)).sum().backward()
    assert "bw_h = torch.sin(" in str(thunder.last_backward_traces(compiled)[-1])


def test_the_error_messages_of_debug_have_nothing_to_say():
    compiled = thunder.jit(lambda x, w: checkpoint(block, x, w, use_reentrant=False, debug=True))
    x, w = leaf(4, 4), leaf(4, 4, seed=1)
    (have,) = torch.autograd.grad(compiled(x, w).sum(), x)
    assert torch.allclose(have, torch.autograd.grad(block(x, w).sum(), x)[0])


def tags_of(compiled):
    """Name of each value as acquired → whether it is computed again, and whether its call is tagged so."""
    return {
        p.name: (ProxyTag.RECOMPUTE_IN_BACKWARD in p.tags, BoundSymbolTag.RECOMPUTE_IN_BACKWARD in b.tags)
        for b in thunder.last_traces(compiled)[0].bound_symbols
        for p in b.flat_proxy_outs
        if isinstance(p, TensorProxy)
    }


def test_values_of_a_region_are_tagged_and_its_results_are_not():
    def region(y):
        a = y.sin()
        b = a.cos()
        return b * a

    def program(x):
        before = x * 2
        inside = again(region, before)
        return inside.tanh()

    compiled = thunder.jit(program)
    compiled(leaf(3))
    tags = tags_of(compiled)
    assert tags["before"] == (False, False)
    assert (tags["a"], tags["b"]) == ((True, True), (True, True))
    assert tags["inside"] == (False, False)


def test_random_operators_of_a_region_are_not_tagged():
    def program(x):
        def region(y):
            a = y.sin()
            b = nn.functional.dropout(a, 0.5)
            c = b.cos()
            return c * 2

        return again(region, x)

    compiled = thunder.jit(program)
    compiled(leaf(3))
    tags = tags_of(compiled)
    assert (tags["a"], tags["b"], tags["c"]) == ((True, True), (False, False), (True, True))


def test_without_gradients_nothing_is_tagged():
    compiled = thunder.jit(lambda x, w: again(block, x, w))
    with torch.no_grad():
        compiled(leaf(4, 4), leaf(4, 4, seed=1))
    assert not any(any(pair) for pair in tags_of(compiled).values())


def test_what_the_region_reads_is_guarded():
    scale = {"by": 2.0}
    compiled = thunder.jit(lambda x: again(lambda y: y.sin() * scale["by"], x))
    x = leaf(3)
    for by in (2.0, 5.0):
        scale["by"] = by
        (gradient,) = torch.autograd.grad(compiled(x).sum(), x)
        assert torch.allclose(gradient, x.cos() * by)
    assert thunder.cache_misses(compiled) == 2


def _policy(ctx, op, *args, **kwargs):
    is_product = op == torch.ops.aten.mm.default
    return CheckpointPolicy.MUST_SAVE if is_product else CheckpointPolicy.PREFER_RECOMPUTE


@pytest.mark.parametrize("policy", [_policy, [torch.ops.aten.mm.default]])
def test_selective_checkpointing_has_eagers_gradients(policy):
    contexts = functools.partial(create_selective_checkpoint_contexts, policy)

    def program(x, w):
        return checkpoint(lambda x: (x @ w).sin().cos(), x, use_reentrant=False, context_fn=contexts)

    gradients = []
    for call in (program, thunder.jit(program)):
        x, w = leaf(3, 3), leaf(3, 3, seed=1)
        gradients.append(torch.autograd.grad(call(x, w).sum(), (x, w)))
    torch.testing.assert_close(gradients[1], gradients[0])


def test_effects_under_selective_checkpointing_are_refused():
    norm = torch.nn.BatchNorm1d(3).double()
    contexts = functools.partial(create_selective_checkpoint_contexts, [torch.ops.aten.mm.default])
    with pytest.raises(thunder.UnsupportedProgram, match="effects under selective checkpointing"):
        thunder.jit(lambda x: checkpoint(norm, x, use_reentrant=False, context_fn=contexts))(leaf(4, 3))


@pytest.mark.parametrize("fn", [block, inplace_block])
def test_what_replaces_a_call_of_a_region_has_no_tags_of_its_symbol(fn):
    compiled = thunder.jit(lambda x, w: again(fn, x, w))
    compiled(leaf(4, 4), leaf(4, 4))
    tagged = [
        b for trace in thunder.last_traces(compiled) for b in trace.bound_symbols if b.own_tags and b.sym.tags
    ]
    assert any(BoundSymbolTag.RECOMPUTE_IN_BACKWARD in b.own_tags for b in tagged)
    for b in tagged:
        assert b.own_tags.isdisjoint({OpTags.MATMUL_OP, OpTags.POINTWISE_OP, OpTags.IN_PLACE, OpTags.VIEW})


REFUSED = {
    "context_fn": (
        {"use_reentrant": False, "context_fn": lambda: (nullcontext(), nullcontext())},
        "context_fn",
    ),
    "random numbers not preserved": (
        {"use_reentrant": False, "preserve_rng_state": False},
        "preserve_rng_state=False",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_options_are_refused_by_name(name):
    options, words = REFUSED[name]
    with pytest.raises(thunder.UnsupportedProgram) as caught:
        thunder.jit(lambda x, w: checkpoint(dropped, x, w, **options))(leaf(4, 4), leaf(4, 4))
    assert words in str(caught.value)
    assert "test_checkpoint.py" in str(caught.value)


def test_an_unknown_determinism_check_raises_as_eager():
    def program(x):
        return checkpoint(torch.sin, x, use_reentrant=False, determinism_check="strict")

    texts = []
    for fn in (program, thunder.jit(program)):
        with pytest.raises(ValueError, match="determinism_check") as caught:
            fn(leaf(3))
        texts.append(str(caught.value))
    assert texts[0] == texts[1]
