"""Hooks, accumulation, shared parameters, errors: the rest of torch's autograd around a compiled program."""

from __future__ import annotations

import threading

import pytest
import torch

import thunder
from comparison.inputs import leaf


def product(x, w):
    return torch.sin(x) * w, x + w


def test_hooks_on_results_see_and_change_cotangents():
    def run(f):
        x, w, seen = leaf(3), leaf(3, seed=1), []
        first, second = f(x, w)
        first.register_hook(lambda g: seen.append(g.clone()))
        second.register_hook(lambda g: g * 3)
        (first.sum() + second.sum()).backward()
        return seen, x.grad, w.grad

    torch.testing.assert_close(run(thunder.jit(product)), run(product))


def test_retain_grad_on_results():
    def run(f):
        x, w = leaf(3), leaf(3, seed=1)
        first, _ = f(x, w)
        first.retain_grad()
        (first * first).sum().backward()
        return first.grad, x.grad

    torch.testing.assert_close(run(thunder.jit(product)), run(product))


def test_hooks_on_parameters_and_after_accumulation():
    def run(jit):
        torch.manual_seed(0)
        model, log = torch.nn.Linear(3, 2).double(), []
        model.weight.register_hook(lambda g: g * 2)
        for name, p in model.named_parameters():
            p.register_post_accumulate_grad_hook(lambda p, name=name: log.append((name, p.grad.clone())))
        (thunder.jit(model) if jit else model)(leaf(4, 3)).sum().backward()
        return sorted(log, key=lambda entry: entry[0])

    found, expected = run(True), run(False)
    assert [name for name, _ in found] == [name for name, _ in expected]
    torch.testing.assert_close([g for _, g in found], [g for _, g in expected])


def test_hooks_on_the_node_itself():
    compiled, x, w, seen = thunder.jit(product), leaf(3), leaf(3, seed=1), []
    result = compiled(x, w)[0]
    result.grad_fn.register_hook(lambda inputs, outputs: seen.append((len(inputs), len(outputs))))
    result.sum().backward()
    assert len(seen) == 1


def test_gradients_accumulate_over_calls():
    def run(f):
        x, w = leaf(3), leaf(3, seed=1)
        for _ in range(3):
            f(x, w)[0].sum().backward()
        return x.grad, w.grad

    torch.testing.assert_close(run(thunder.jit(product)), run(product))


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = torch.nn.Linear(3, 3).double(), torch.nn.Linear(3, 3).double()
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))


def test_a_shared_parameter_gets_the_sum_once():
    def grads(jit):
        model, calls = Tied(), []
        model.a.weight.register_hook(lambda g: calls.append(1))
        (thunder.jit(model) if jit else model)(leaf(4, 3)).square().sum().backward()
        return len(calls), [p.grad for p in model.parameters()]

    found, expected = grads(True), grads(False)
    assert found[0] == expected[0] == 1
    torch.testing.assert_close(found[1], expected[1])


def test_the_same_tensor_as_two_arguments():
    def grad(f):
        x = leaf(3)
        f(x, x)[0].sum().backward()
        return x.grad

    torch.testing.assert_close(grad(thunder.jit(product)), grad(product))


def test_training_with_an_optimizer_follows_eager():
    def trained(jit):
        model = Tied()
        run, optimizer = (thunder.jit(model) if jit else model), torch.optim.Adam(model.parameters(), lr=0.1)
        for seed in range(5):
            optimizer.zero_grad()
            run(leaf(4, 3, seed=seed, grad=False)).square().mean().backward()
            optimizer.step()
        return run, [p.detach() for p in model.parameters()]

    (compiled, found), (_, expected) = trained(True), trained(False)
    torch.testing.assert_close(found, expected)
    assert (thunder.cache_misses(compiled), thunder.cache_hits(compiled)) == (1, 4)


def test_compiled_programs_in_one_graph():
    def run(jit):
        f, g = (thunder.jit(product), thunder.jit(torch.tanh)) if jit else (product, torch.tanh)
        x, w = leaf(3), leaf(3, seed=1)
        a, b = f(g(x), w)
        c, d = f(a * 2, torch.exp(b))
        return torch.autograd.grad((c * d).sum(), (x, w))

    torch.testing.assert_close(run(True), run(False))


def test_a_module_as_a_part_of_a_larger_one():
    def grads(jit):
        torch.manual_seed(1)
        first, second = torch.nn.Linear(3, 3).double(), Tied()
        x = leaf(4, 3)
        (thunder.jit(second) if jit else second)(torch.relu(first(x))).sum().backward()
        return [x.grad, *(p.grad for p in first.parameters()), *(p.grad for p in second.parameters())]

    torch.testing.assert_close(grads(True), grads(False))


def test_several_threads_run_forward_and_backward_at_once():
    compiled, results, errors = thunder.jit(product), {}, []
    barrier = threading.Barrier(4)

    def work(seed):
        try:
            barrier.wait()
            for _ in range(5):
                x, w = leaf(3, seed=seed), leaf(3, seed=seed + 1)
                first, second = compiled(x, w)
                (g,) = torch.autograd.grad((first * second).sum(), x, create_graph=True)
                (h,) = torch.autograd.grad(g.sum(), x)
                results[seed] = (g.detach(), h)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert errors == []
    for seed, found in results.items():
        x, w = leaf(3, seed=seed), leaf(3, seed=seed + 1)
        first, second = product(x, w)
        (g,) = torch.autograd.grad((first * second).sum(), x, create_graph=True)
        (h,) = torch.autograd.grad(g.sum(), x)
        torch.testing.assert_close(found, (g.detach(), h))
    assert thunder.cache_misses(compiled) == 1


def test_one_graph_is_differentiated_by_several_threads():
    compiled, x, w = thunder.jit(product), leaf(3), leaf(3, seed=1)
    result, found = compiled(x, w)[0].sum(), []

    def work():
        found.append(torch.autograd.grad(result, (x, w), retain_graph=True))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    expected = torch.autograd.grad(product(x, w)[0].sum(), (x, w))
    assert len(found) == 4
    for gradients in found:
        torch.testing.assert_close(gradients, expected)


def test_batched_cotangents_give_a_jacobian():
    compiled, x, w = thunder.jit(product), leaf(3), leaf(3, seed=1)
    eye = torch.eye(3, dtype=torch.float64)
    found = torch.autograd.grad(compiled(x, w)[0], x, eye, is_grads_batched=True)
    torch.testing.assert_close(found, torch.autograd.grad(product(x, w)[0], x, eye, is_grads_batched=True))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_anomaly_mode_names_the_node_of_a_nan():
    compiled, x = thunder.jit(torch.sqrt), torch.zeros(3, dtype=torch.float64, requires_grad=True)
    with torch.autograd.detect_anomaly(check_nan=True):
        result = compiled(x) * 0
        with pytest.raises(RuntimeError, match="ThunderFunctionBackward"):
            result.sum().backward()
