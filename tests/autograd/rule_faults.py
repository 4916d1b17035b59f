"""Operators with correct gradient rules, and the faults that are seeded into these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import thunder
from comparison.inputs import leaf
from thunder import TensorProxy
from thunder.core.transforms import get_grad, put_grad, put_grads
from thunder.extend import OperatorExecutor

ltorch: Any = thunder.torch


@dataclass(frozen=True)
class Example:
    """An operator: its meta function, the function that runs it, its arguments, and its gradients.

    ``backward(cotangents, *args)`` returns the gradients of the tensors among the arguments, None for those
    of integers.
    """

    meta: Callable[..., Any]
    fn: Callable[..., Any]
    arguments: Callable[[], tuple[Any, ...]]
    backward: Callable[..., Sequence[Any]]


def _like(x: Any, *others: Any) -> Any:
    return TensorProxy(like=x)


EXAMPLES = {
    "pointwise": Example(
        _like, torch.mul, lambda: (leaf(3), leaf(3, seed=1)), lambda g, x, w: (g[0] * w, g[0] * x)
    ),
    "reduction": Example(
        lambda x: TensorProxy(like=x, shape=x.shape[:-1]),
        lambda x: x.square().sum(-1),
        lambda: (leaf(2, 3),),
        lambda g, x: (ltorch.unsqueeze(g[0], -1) * x * 2,),
    ),
    "two outputs": Example(
        lambda x: (TensorProxy(like=x), TensorProxy(like=x, shape=x.shape[1:])),
        lambda x: (x.sin(), x.square().sum(0)),
        lambda: (leaf(2, 3),),
        lambda g, x: (g[0] * ltorch.cos(x) + g[1] * x * 2,),
    ),
    "integer argument": Example(
        lambda x, i, n: TensorProxy(like=x, shape=(*i.shape, *x.shape[1:])),
        lambda x, i, n: x[i] * n,
        lambda: (leaf(4, 2), torch.tensor([0, 2, 2]), 3),
        lambda g, x, i, n: (ltorch.index_add(ltorch.zeros_like(x), 0, i, g[0] * n), None),
    ),
}


@dataclass(frozen=True)
class Parts:
    """The parts of a rule that a fault replaces."""

    result: Callable[[Any], Any] = lambda result: result
    gradient: Callable[[Any], Any] = lambda gradient: gradient
    cotangents: Callable[[Any, Sequence[Any], Sequence[Any]], Sequence[Any]] = (
        lambda executor, results, args: [get_grad(r) for r in results]
    )
    put: Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], None] = lambda args, gradients, results: (
        put_grads(args, gradients)
    )


def flat(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def tensors(args: Sequence[Any]) -> list[Any]:
    return [x for x in args if isinstance(x, TensorProxy)]


class Extension:
    """An executor with one of the examples, whose rule has some parts replaced."""

    def __init__(self, name: str, example: Example, parts: Parts) -> None:
        self.executor = OperatorExecutor(name)
        self.symbol = self.executor.register_operator("op", meta=example.meta, fn=example.fn, replace=True)
        self.elsewhere = self.executor.register_operator(
            "elsewhere", meta=lambda x: TensorProxy(like=x, device="meta"), fn=torch.clone, replace=True
        )
        self.example, self.parts = example, parts

    def rule(self, *args: Any) -> Any:
        parts, result = self.parts, self.symbol(*args)
        results = flat(result)
        cotangents = parts.cotangents(self, results, args)
        gradients = [
            parts.gradient(g) if g is not None else None for g in self.example.backward(cotangents, *args)
        ]
        parts.put(tensors(args), gradients, results)
        return parts.result(result)


def _in_result(change: Callable[[Any], Any]) -> Parts:
    """Return the parts of a rule that changes the first tensor of the result."""

    def changed(result: Any) -> Any:
        return (change(result[0]), *result[1:]) if isinstance(result, tuple) else change(result)

    return Parts(result=changed)


def _first_only(args: Sequence[Any], gradients: Sequence[Any], results: Sequence[Any]) -> None:
    put_grads(args[1:], gradients[1:])


def _raise(*args: Any) -> Any:
    raise KeyError("kernels")


#: fault → the parts of the rule, and words of the error
FAULTS: dict[str, tuple[Parts, str]] = {
    "result of another shape": (_in_result(lambda x: ltorch.unsqueeze(x, 0)), "something else than"),
    "result of another dtype": (_in_result(lambda x: ltorch.to(x, torch.float32)), "something else than"),
    "result on another device": (_in_result(lambda x: TensorProxy(like=x, device="meta")), "something else"),
    "result in a tuple": (Parts(result=lambda r: (r,)), "something else than"),
    "result with another one": (Parts(result=lambda r: (*flat(r), flat(r)[0])), "something else than"),
    "result that is a number": (_in_result(lambda x: 1.0), "something else than"),
    "no result": (Parts(result=lambda r: None), "something else than"),
    "gradient of another shape": (Parts(gradient=lambda g: ltorch.sum(g)), "does not fit"),
    "gradient not summed": (Parts(gradient=lambda g: ltorch.unsqueeze(g, 0)), "does not fit"),
    "gradient of another dtype": (Parts(gradient=lambda g: ltorch.to(g, torch.float32)), "does not fit"),
    "gradient on another device": (
        Parts(gradient=lambda g: TensorProxy(like=g, device="meta")),
        "does not fit",
    ),
    "gradient that is a number": (Parts(gradient=lambda g: 1.0), "not a tensor of the program"),
    "put_grad never called": (Parts(put=lambda *a: None), "puts no gradient for tensor"),
    "put_grad not for the first argument": (Parts(put=_first_only), "puts no gradient for tensor"),
    "put_grad for a result": (
        Parts(put=lambda args, gradients, results: put_grad(results[0], get_grad(results[0]))),
        "put_grad for .*, a result of the rule",
    ),
    "put_grad for another value": (
        Parts(put=lambda args, gradients, results: put_grads((args[0] * 1,), gradients[:1])),
        "put_grad for .*, not an argument",
    ),
    "put_grad for an attribute": (
        Parts(put=lambda args, gradients, results: put_grads((args[0].shape,), gradients[:1])),
        "not a tensor of the program",
    ),
    "get_grad never called": (
        Parts(cotangents=lambda ex, results, args: [ltorch.ones_like(r) for r in results]),
        "does not read the gradient of result 0",
    ),
    "get_grad of an argument": (
        Parts(
            cotangents=lambda ex, results, args: [
                get_grad(args[0]) * 0 + 1 if r.shape == args[0].shape else get_grad(args[0]).sum() + r
                for r in results
            ]
        ),
        "get_grad of .*, an argument of the rule",
    ),
    "get_grad of another value": (
        Parts(cotangents=lambda ex, results, args: [get_grad(r * 1) for r in results]),
        "get_grad of .*, a value that the rule does not return",
    ),
    "in-place write": (Parts(gradient=lambda g: ltorch.mul_(g, 2)), "writes in place, with mul_"),
    "exception": (Parts(gradient=_raise), "raised KeyError: 'kernels'"),
}
