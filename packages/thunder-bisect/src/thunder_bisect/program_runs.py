"""A program that is run several times from the same state."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

import thunder
from thunder.core.pytree import tree_iter
from thunder.core.transforms import add_transform
from thunder_bisect.judgement import Expected, expected_of, fault_of
from thunder_bisect.ranks import Ranks
from thunder_bisect.shadows import Shadows
from thunder_bisect.statement_checks import scale_of

__all__ = ["ProgramCall", "differences"]


@dataclass(frozen=True, kw_only=True)
class ProgramCall:
    """One call of a program, and how it is compiled.

    `fn` is a function, a module, or an object that `thunder.jit` returned, which has its own settings.
    `backward` says whether gradients of the results are computed; None means where a result requires grad.
    """

    fn: Callable[..., Any]
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    executors: Any = None
    transforms: Sequence[Any] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    backward: bool | None = None
    seed: int = 0
    ranks: Ranks = field(default_factory=Ranks)

    @property
    def eager(self) -> Callable[..., Any]:
        """The program as it was written."""
        data = thunder.compile_data(self.fn)
        return self.fn if data is None else data.fn

    @property
    def used_executors(self) -> Any:
        """The executors of the compile."""
        data = thunder.compile_data(self.fn)
        return self.executors if data is None else data.executors_list

    def compiled(self, fn: Callable[..., Any], *extra: Any) -> Any:
        """Return a compiled object with more transforms, which come last."""
        if thunder.compile_data(self.fn) is not None:
            return add_transform(self.fn, transform=list(extra))
        transforms = [*copy.deepcopy(list(self.transforms)), *extra]
        return thunder.jit(fn, executors=self.executors, transforms=transforms, **self.options)

    # -- runs

    def expected(self, reference: Any = "eager") -> dict[str, Expected]:
        """Return the right values of everything that the call computes or writes.

        `reference` is ``"eager"``, or executors: their results then are the reference, beside the exact ones.
        """
        whole = self.ranks.whole_tensors(self.fn)
        with self._copies() as (fn, args, kwargs), Shadows() as shadows:
            run = fn if whole is None else partial(_called_with, fn, whole)
            tensors = dict(_module_tensors(fn)) if whole is None else whole
            scale = scale_of({**tensors, **dict(_named_arguments(args, kwargs))})
            found = self._outcome(run, args, kwargs, tensors)
            expected = {name: expected_of(x, shadows, scale) for name, x in found.items()}
        expected = {name: self._of_process(name, e, whole or {}) for name, e in expected.items()}
        if reference == "eager":
            return expected
        other = self.run(lambda fn: thunder.jit(fn, executors=reference))
        return {
            name: Expected(other[name], e.others, e.scale) if name in other else e
            for name, e in expected.items()
        }

    def run(self, compile: Callable[[Any], Any]) -> dict[str, torch.Tensor]:
        """Return everything that a call of `compile(program)` computes or writes, by name."""
        with self._copies() as (fn, args, kwargs):
            run = compile(fn)
            tensors = dict(_module_tensors(fn if self.ranks.size == 1 else run))
            return {k: x.detach().clone() for k, x in self._outcome(run, args, kwargs, tensors).items()}

    def _of_process(self, name: str, right: Expected, whole: Collection[str]) -> Expected:
        """Return the right values of what this process has of a value of the whole program."""
        tensor = name.removeprefix("gradient of ").removesuffix(", afterwards")
        if tensor not in whole:
            return right
        is_gradient = name.startswith("gradient of ")
        part = self.ranks.gradient_of_process if is_gradient else self.ranks.of_process
        own, *others = (part(self.fn, tensor, x) for x in (right.own, *right.others))
        return Expected(own, others, right.scale)

    @contextmanager
    def _copies(self) -> Iterator[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
        """Enter the state before the call: copies of what it gets, and seeded generators.

        The module of a compiled object is used itself; its tensors, and those in use in their place, get
        their values back.
        """
        fn = self.eager
        is_shared = thunder.compile_data(self.fn) is not None or not isinstance(fn, torch.nn.Module)
        given = (None if is_shared else fn, tuple(self.args), dict(self.kwargs))
        memo = {
            id(x): x.detach().clone().requires_grad_()
            for x in tree_iter((given[1], given[2]))
            if isinstance(x, torch.Tensor) and not x.is_leaf
        }
        own, args, kwargs = copy.deepcopy(given, memo)
        shared = (fn, self.fn) if self.ranks.size == 1 else (self.fn,)
        state = [x for module in shared for _, x in _module_tensors(module)] if is_shared else []
        saved = [x.detach().clone() for x in state]
        devices = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
        with torch.random.fork_rng(devices):
            torch.manual_seed(self.seed)
            try:
                yield (fn if is_shared else own), args, kwargs
            finally:
                with torch.no_grad():
                    for x, before in zip(state, saved, strict=True):
                        x.copy_(before)

    def _outcome(
        self, run: Any, args: Any, kwargs: Any, own: Mapping[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        """Return what a call computes and writes; `own` has the tensors of the module by name."""
        tensors = {**dict(_named_arguments(args, kwargs)), **own}
        versions = {name: x._version for name, x in tensors.items()}
        result = run(*args, **kwargs)
        outputs = [x for x in tree_iter(result) if isinstance(x, torch.Tensor)]
        found = {f"result {i}": x for i, x in enumerate(outputs)}
        sources = [x for x in outputs if x.requires_grad and x.grad_fn is not None]
        leaves = {name: x for name, x in tensors.items() if x.requires_grad and x.is_leaf}
        if sources and leaves and self.backward is not False:
            cotangents = [_cotangent(x, i) for i, x in enumerate(sources)]
            gradients = torch.autograd.grad(sources, list(leaves.values()), cotangents, allow_unused=True)
            found |= {
                f"gradient of {name}": g for name, g in zip(leaves, gradients, strict=True) if g is not None
            }
        written = {
            f"{name}, afterwards": x
            for name, x in tensors.items()
            if x._version != versions[name] or not x.requires_grad
        }
        return found | written


def differences(
    expected: Mapping[str, Expected], found: Mapping[str, torch.Tensor], factor: float = 1.0
) -> dict[str, str]:
    """Return which results, gradients and written tensors of a run are wrong, and how."""
    wrong = {}
    for name, right in expected.items():
        if name not in found:
            wrong[name] = "there is none"
        elif (fault := fault_of(found[name], right, factor, whole=True)) is not None:
            wrong[name] = fault
    return wrong | {name: "eager has none" for name in found.keys() - expected.keys()}


def _cotangent(x: torch.Tensor, i: int) -> torch.Tensor:
    """Return the cotangent of a result: equal in all runs, of the order of 1."""
    with torch.utils._python_dispatch._disable_current_modes():
        generator = torch.Generator().manual_seed(i)
        values = torch.randn(x.shape, generator=generator, dtype=torch.float64)
        return values.to(dtype=x.dtype, device=x.device)


def _called_with(module: Any, tensors: Mapping[str, torch.Tensor], *args: Any, **kwargs: Any) -> Any:
    """Return the result of a module with other parameters and buffers."""
    return torch.func.functional_call(module, dict(tensors), args, kwargs)


def _named_arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    for i, value in enumerate(args):
        yield from _numbered(f"args[{i}]", value)
    for key, value in kwargs.items():
        yield from _numbered(f"kwargs[{key!r}]", value)


def _numbered(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    tensors = [x for x in tree_iter(value) if isinstance(x, torch.Tensor)]
    for i, x in enumerate(tensors):
        yield (name if len(tensors) == 1 else f"{name}, tensor {i}"), x


def _module_tensors(fn: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(fn, torch.nn.Module):
        yield from fn.named_parameters()
        yield from fn.named_buffers()
