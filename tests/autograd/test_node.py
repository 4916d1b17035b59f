"""What torch's autograd sees of a compiled program: one node, and tensors saved as torch saves them."""

from __future__ import annotations

import copy
import pickle
import weakref

import pytest
import torch

import thunder
from comparison.derivatives import assert_as_eager
from comparison.inputs import leaf
from thunder.autograd.saved_tensors import get_saved_for_backward_tensors


def product(x, w):
    h = torch.sin(x)
    return h * w, h + w


def same_memory(a, b):
    return a.data_ptr() == b.data_ptr()


def test_all_results_of_a_call_share_one_node_with_saved_tensors():
    x, w = leaf(3), leaf(3, seed=1)
    first, second = thunder.jit(product)(x, w)
    assert type(first.grad_fn).__name__ == "ThunderFunctionBackward"
    assert "grad_fn=<ThunderFunctionBackward" in repr(first)
    assert first.grad_fn is second.grad_fn
    assert any(same_memory(t, x) for t in first.grad_fn.saved_tensors)


def test_two_calls_have_two_nodes():
    compiled, x, w = thunder.jit(product), leaf(3), leaf(3, seed=1)
    assert compiled(x, w)[0].grad_fn is not compiled(x, w)[0].grad_fn


def test_saved_tensors_are_those_of_the_trace():
    compiled, x, w = thunder.jit(product), leaf(3), leaf(3, seed=1)
    result = compiled(x, w)[0]
    named = get_saved_for_backward_tensors(thunder.last_traces(compiled)[-1])
    assert [tuple(t.shape) for t in result.grad_fn.saved_tensors] == [p.shape for p in named]


def test_saved_tensors_hooks_see_every_saved_tensor():
    compiled, x, w = thunder.jit(product), leaf(3), leaf(3, seed=1)
    packed, unpacked = [], []

    def pack(t):
        packed.append(tuple(t.shape))
        return t.numpy(force=True).copy()

    def unpack(array):
        unpacked.append(array.shape)
        return torch.from_numpy(array)

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        result = compiled(x, w)[0]
    found = torch.autograd.grad(result.sum(), (x, w))
    saved = get_saved_for_backward_tensors(thunder.last_traces(compiled)[-1])
    assert len(packed) == len(unpacked) == len(saved) > 0
    expected = torch.autograd.grad(product(x, w)[0].sum(), (x, w))
    torch.testing.assert_close(found, expected)


def test_save_on_cpu_gives_equal_gradients():
    x, w = leaf(3), leaf(3, seed=1)
    with torch.autograd.graph.save_on_cpu():
        result = thunder.jit(product)(x, w)[0]
    found = torch.autograd.grad(result.sum(), (x, w))
    torch.testing.assert_close(found, torch.autograd.grad(product(x, w)[0].sum(), (x, w)))


@pytest.mark.parametrize("changed", ["input", "result"])
def test_a_saved_tensor_that_is_modified_afterwards_is_torchs_error(changed):
    def program(x):
        return torch.exp(x) * x

    def exponential(x):
        return torch.exp(x) + 0

    fn = program if changed == "input" else torch.exp
    for run in (fn, thunder.jit(lambda x: fn(x))):
        leaf_ = leaf(3)
        x = leaf_ * 1
        result = run(x)
        with torch.no_grad():
            (x if changed == "input" else result).add_(1)
        with pytest.raises(RuntimeError, match="has been modified by an inplace operation"):
            result.sum().backward()
    assert exponential(x) is not None


def test_retain_graph_gives_equal_gradients_any_number_of_times():
    x, w = leaf(3), leaf(3, seed=1)
    result = thunder.jit(product)(x, w)[0].sum()
    found = [torch.autograd.grad(result, (x, w), retain_graph=True) for _ in range(3)]
    expected = torch.autograd.grad(product(x, w)[0].sum(), (x, w))
    for gradients in found:
        torch.testing.assert_close(gradients, expected)


def test_a_second_backward_without_retain_graph_is_torchs_error():
    for run in (product, thunder.jit(product)):
        x, w = leaf(3), leaf(3, seed=1)
        result = run(x, w)[0].sum()
        result.backward()
        with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
            result.backward()


def test_a_retained_backward_can_be_followed_by_a_last_one():
    x, w = leaf(3), leaf(3, seed=1)
    result = thunder.jit(product)(x, w)[0].sum()
    result.backward(retain_graph=True)
    result.backward()
    expected = torch.autograd.grad(product(x, w)[0].sum(), (x, w))
    torch.testing.assert_close((x.grad / 2, w.grad / 2), expected)


def test_a_result_does_not_keep_what_only_the_forward_used():
    probes: list[weakref.ref] = []

    def program(x):
        return torch.sin(x).sum()

    compiled = thunder.jit(program)
    x = leaf(4)
    result = compiled(x * 2)
    probes = [weakref.ref(t) for t in (result,)]
    assert len(result.grad_fn.saved_tensors) == 1
    del result
    assert probes[0]() is None, "the compiled function holds a result"


def test_the_compiled_function_holds_no_argument_and_no_result():
    compiled, x = thunder.jit(product), leaf(3)
    argument = x * 2
    results = compiled(argument, x)
    torch.autograd.grad(results[0].sum(), x)
    held = [weakref.ref(argument), weakref.ref(results[0]), weakref.ref(results[1])]
    del argument, results
    assert [h() for h in held] == [None, None, None]


def test_results_can_be_pickled_and_detached_ones_copied():
    compiled, x, w = thunder.jit(product), leaf(3), leaf(3, seed=1)
    result = compiled(x, w)[0]
    torch.testing.assert_close(copy.deepcopy(result.detach()), result.detach())
    for t in (product(x, w)[0], result):
        with pytest.raises(RuntimeError, match="Only Tensors created explicitly by the user"):
            copy.deepcopy(t)
    again = pickle.loads(pickle.dumps(result.detach()))
    torch.testing.assert_close(again, result.detach())


def test_a_node_is_the_same_for_next_functions_as_eagers_leaves():
    x, w = leaf(3), leaf(3, seed=1)
    result = thunder.jit(product)(x, w)[0]
    variables = [n.variable for n, _ in result.grad_fn.next_functions if hasattr(n, "variable")]
    assert [id(v) for v in variables] == [id(x), id(w)]


def test_results_and_gradients_are_eagers():
    assert_as_eager(product, leaf(3), leaf(3, seed=1))


def test_an_input_that_no_call_reads_is_no_part_of_the_graph():
    class Holder:
        last = None
        count = 0

    def keep(x, holder):
        before = holder.last  # a result of the call before, whose graph is freed by now
        holder.last = (x * 2).sin()
        return holder.last.sum() * (2 if before is None or before.ndim else 3)

    compiled, holder, x = thunder.jit(keep), Holder(), torch.ones(3, requires_grad=True)
    for _ in range(3):
        (found,) = torch.autograd.grad(compiled(x, holder), x)
        assert torch.equal(found, 4 * (x * 2).cos())
    results = [compiled(x, holder) for _ in range(3)]
    assert [len(r.grad_fn.next_functions) for r in results] == [1, 1, 1]
