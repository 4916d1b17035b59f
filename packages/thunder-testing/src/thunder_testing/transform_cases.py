"""The conformance cases of a transform: each property, for each of some small modules."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, starmap
from typing import Any
from unittest import SkipTest

import torch
from torch import nn

from thunder import cache_misses, compile_stats, jit, last_traces
from thunder.core.errors import Location
from thunder.core.pytree import tree_map
from thunder.core.transform import Transform
from thunder_testing.conformance_failure import (
    ConformanceFailure,
    definition_of,
    described,
    error_text,
    tensors_in,
)
from thunder_testing.global_state import changed, read_state
from thunder_testing.suite import Case, expecting

__all__ = ["TRANSFORM_PROPERTIES", "Program", "transform_conformance"]

#: the sizes of the arguments of successive calls
SIZES = (3, 5, 7, 4, 6, 3)
#: how often a program whose sizes all vary is compiled: for numbers, and for symbols
COMPILES = 2


@dataclass(frozen=True)
class Program:
    """A module, and the arguments of a call for each size: `module()` and `arguments(n)`."""

    module: Callable[[], nn.Module]
    arguments: Callable[[int], tuple[Any, ...]]


class _Block(nn.Module):
    """Attention and two layers, with an embedding whose weight is also that of the last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(12, 8)
        self.norm, self.query, self.key = nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, 8, bias=False)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)
        self.head = nn.Linear(8, 12, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        y = self.norm(x)
        scores = self.query(y) @ self.key(y).transpose(-1, -2) / y.shape[-2] ** 0.5
        x = x + torch.softmax(scores, -1) @ y
        return self.head(x + self.down(nn.functional.gelu(self.up(x))))  # type: ignore[no-any-return]


class _Scaled(nn.Module):
    """A layer with a buffer, numbers among its arguments, and another result in training and for float64."""

    scale: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 4)
        self.register_buffer("scale", torch.rand(8) + 0.5)

    def forward(self, x: torch.Tensor, factor: float, times: int) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.first((x * self.scale).float()) * factor + times
        if self.training:
            y = y.tanh()
        return self.second(y), y.sum(0)


def _tokens(n: int) -> tuple[Any, ...]:
    return (torch.arange(2 * n).view(2, n) % 12,)


def _rows(n: int) -> tuple[Any, ...]:
    return (torch.linspace(-1, 1, 8 * n).view(n, 8),)


#: the modules on which every transform is tested
PROGRAMS: Mapping[str, Program] = {
    "layers": Program(lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)), _rows),
    "attention": Program(_Block, _tokens),
    "numbers": Program(_Scaled, lambda n: (*_rows(n), 0.5 * n + 0.25, n)),
}


@dataclass(frozen=True)
class TransformSubject:
    """A transform and a program, with what the transformed program computes."""

    transform: Callable[[], Transform]
    program: Program
    reference: Callable[[nn.Module], Callable[..., Any]]
    tolerance: tuple[float, float]
    executors: Sequence[Any]

    def module(self) -> nn.Module:
        """Return the module; each has the same values."""
        torch.manual_seed(0)
        return self.program.module()

    def compiled(self, module: nn.Module, **options: Any) -> Any:
        """Return the module, compiled with a new transform; each draws the same random numbers."""
        torch.manual_seed(1)
        return jit(module, transforms=[self.transform()], executors=list(self.executors), **options)

    def with_numbers_of(self, n: int, other: int) -> list[Any]:
        """Return the arguments of one size, with the numbers of another one."""
        pairs = zip(self.program.arguments(n), self.program.arguments(other), strict=True)
        return [a if tensors_in(a) else b for a, b in pairs]

    def in_float64(self, n: int) -> list[Any]:
        """Return the arguments of a size, with floating-point tensors in float64."""

        def converted(x: Any) -> Any:
            return x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x

        return [tree_map(converted, a) for a in self.program.arguments(n)]

    def failure(self, asked: str, hint: str, **found: Any) -> ConformanceFailure:
        """Return the error for a property that does not hold."""
        place: list[Location] = definition_of(self.transform)
        name = getattr(self.transform, "__name__", repr(self.transform))
        return ConformanceFailure(f"{name}: {asked}", found=found, where=place, hint=hint)

    def compare(self, what: str, results: Any, expected: Any, hint: str, **found: Any) -> None:
        """Raise ConformanceFailure unless two results are alike."""
        relative, absolute = self.tolerance
        pairs = list(zip(tensors_in(results), tensors_in(expected), strict=False))
        if len(tensors_in(results)) == len(tensors_in(expected)) and all(
            a.dtype is b.dtype
            and a.shape == b.shape
            and torch.allclose(a.double(), b.double(), relative, absolute, equal_nan=True)
            for a, b in pairs
        ):
            return
        alike = [(a.double(), b.double()) for a, b in pairs if a.shape == b.shape and a.numel()]
        raise self.failure(
            f"{what} are wrong",
            hint,
            **found,
            results=described(results),
            expected=described(expected),
            differences=", ".join(str((a - b).abs().max().item()) for a, b in alike),
        )


_ORDER = "add_input and replace_input keep the inputs of prologue and computation in one order."
_ANY_SIZE = "Record operators that take any sizes, or leave out keeps_sizes = True."
_GRADIENT = "A transform that has the hook before autograd gets the gradient of what it records."
_ORIGINAL = "transform_state_dict_for_submodule and its reverse convert between the forms of all values."


def _loss(results: Any) -> torch.Tensor:
    return torch.stack([t.float().square().mean() for t in tensors_in(results)]).sum()


def _check_calls(subject: TransformSubject, *, training: bool, **options: Any) -> Any:
    """Compare the results of calls of many sizes with the reference's; return the compiled module."""
    module = subject.module().train(training)
    expected, compiled = subject.reference(module), subject.compiled(module, **options)
    with torch.set_grad_enabled(training):
        for n in SIZES:
            arguments = subject.program.arguments(n)
            subject.compare(
                "the results", compiled(*arguments), expected(*arguments), _ORDER, call=described(arguments)
            )
    return compiled


def check_values(subject: TransformSubject) -> None:
    """Check the results of calls with varying sizes, numbers and dtypes, without gradients."""
    compiled, module = _check_calls(subject, training=False), subject.module().eval()
    expected = subject.reference(module)
    calls = [*starmap(subject.with_numbers_of, pairwise(SIZES)), *map(subject.in_float64, SIZES[:2])]
    for arguments in calls:
        try:
            with torch.no_grad():
                right = expected(*arguments)
        except (RuntimeError, ValueError, IndexError, TypeError):  # numbers may be sizes, dtypes the module's
            continue
        with torch.no_grad():
            subject.compare("the results", compiled(*arguments), right, _ORDER, call=described(arguments))


def check_sizes(subject: TransformSubject) -> None:
    """Check the results where all sizes are symbols, and that a transform that keeps sizes fixes none."""
    _check_calls(subject, training=False, cache="symbolic values")
    _check_calls(subject, training=True, cache="symbolic values")
    compiled = _check_calls(subject, training=False)
    stats, misses = compile_stats(compiled), cache_misses(compiled)
    reason = None if stats is None else stats.last_static_reason
    if subject.transform().keeps_sizes and (reason is not None or misses > COMPILES):
        raise subject.failure(
            "it has keeps_sizes = True, and a program with it is compiled for single sizes",
            _ANY_SIZE,
            compiles=misses,
            reason=str(reason),
        )


def check_training(subject: TransformSubject) -> None:
    """Check that gradients do not depend on which sizes are symbols.

    Those of arguments are the reference's; of a reference that is a module, so are those of the parameters
    that the transform leaves as they are.
    """
    _check_gradients_of_arguments(subject)
    judged = _gradients(subject, cache="constant values")
    for cache in ("symbolic values", "automatic"):
        for found, expected in zip(_gradients(subject, cache=cache), judged, strict=True):
            subject.compare(f"the gradients under cache={cache!r}", found, expected, _ANY_SIZE)
    module = subject.module()
    reference, in_use = subject.reference(module), dict(subject.compiled(module).named_parameters())
    if not isinstance(reference, nn.Module):
        return
    trained = [
        (name, p)
        for name, p in reference.named_parameters()
        if in_use[name].requires_grad and in_use[name].shape == p.shape and torch.equal(in_use[name], p)
    ]
    for n, found in zip(SIZES, judged if trained else (), strict=bool(trained)):
        reference.zero_grad()
        _loss(reference(*subject.program.arguments(n))).backward()
        expected = {name: p.grad for name, p in trained if p.grad is not None}
        subject.compare("the gradients", {k: found.get(k) for k in expected}, expected, _ANY_SIZE)


def _check_gradients_of_arguments(subject: TransformSubject) -> None:
    """Compare the gradients of floating-point arguments with the reference's, for one size."""
    module = subject.module()
    found = []
    for call in (subject.compiled(module), subject.reference(module)):
        arguments = copy.deepcopy(subject.program.arguments(SIZES[0]))
        inputs = [x.requires_grad_() for x in tensors_in(arguments) if x.is_floating_point()]
        if not inputs:
            return
        loss = _loss(call(*arguments))
        gradients = torch.autograd.grad(loss, inputs, allow_unused=True) if loss.requires_grad else ()
        found.append([g for g in gradients if g is not None])
    results, expected = found
    subject.compare("the gradients of arguments", results, expected, _GRADIENT)


def _gradients(subject: TransformSubject, **options: Any) -> list[dict[str, torch.Tensor]]:
    """Return the gradients of the parameters in use by name, for a call of each size."""
    compiled, gradients = subject.compiled(subject.module(), **options), []
    for n in SIZES:
        compiled.zero_grad()
        loss = _loss(compiled(*subject.program.arguments(n)))
        if loss.requires_grad:
            loss.backward()
        gradients.append({k: p.grad.clone() for k, p in compiled.named_parameters() if p.grad is not None})
    return gradients


def check_modes(subject: TransformSubject) -> None:
    """Check the results where training and evaluation take turns."""
    module = subject.module()
    expected, compiled = subject.reference(module), subject.compiled(module)
    for n, training in zip(SIZES, (True, False) * len(SIZES), strict=False):
        module.train(training), compiled.train(training)
        arguments = subject.program.arguments(n)
        subject.compare(
            "the results", compiled(*arguments), expected(*arguments), _ORDER, training=training, size=n
        )


def _structure(module: nn.Module) -> dict[str, Any]:
    """Return of each module within one, by name: its class, its mode, and the sizes of its attributes."""
    return {
        name: (type(m), m.training, {k: len(v) if isinstance(v, dict) else None for k, v in vars(m).items()})
        for name, m in module.named_modules()
    }


def _written_by(module: nn.Module, arguments: tuple[Any, ...]) -> set[str]:
    """Return the names of the tensors to which a call of a module writes."""
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    module(*arguments)
    return {n for n, t in module.state_dict().items() if not torch.equal(t, before[n])}


def check_module(subject: TransformSubject) -> None:
    """Check that the user's module stays as it is, and the global state of torch.

    What the module itself writes, such as the statistics of a batch norm, may change.
    """
    state, module = read_state(), subject.module()
    written = _written_by(subject.module(), subject.program.arguments(3))
    structure = _structure(module)
    tensors: dict[str, tuple[torch.Tensor, torch.Tensor, bool]] = {
        name: (tensor, tensor.clone(), tensor.requires_grad)
        for name, tensor in module.state_dict(keep_vars=True).items()
    }
    compiled = subject.compiled(module)
    _loss(compiled(*subject.program.arguments(3)))
    after = module.state_dict(keep_vars=True)
    names = [
        name
        for name, (tensor, value, requires_grad) in tensors.items()
        if after.get(name) is not tensor
        or tensor.requires_grad != requires_grad
        or (name not in written and not torch.equal(tensor, value))
    ]
    found = _structure(module)
    others = sorted(name or "the module" for name in structure if found.get(name) != structure[name])
    if names or others or after.keys() != tensors.keys():
        raise subject.failure(
            "it changes the module that is compiled",
            "model.override(name, tensor) puts another tensor into use.",
            changed=names or sorted(after.keys() ^ tensors.keys()) or others,
        )
    if modes := changed(state):
        raise subject.failure(
            f"it leaves {modes[0]} changed", "Restore in a finally block what a hook changes.", changed=modes
        )


def check_state(subject: TransformSubject) -> None:
    """Check that the state in its original form has the module's names and forms, and can be loaded.

    Its values are those of a reference that is a module. Other values can be loaded, and are in use.
    """
    module = subject.module().eval()
    compiled = subject.compiled(module)
    state = compiled.original_state_dict()
    forms = {name: (tuple(t.shape), t.dtype) for name, t in module.state_dict().items()}
    if {name: (tuple(t.shape), t.dtype) for name, t in state.items()} != forms:
        raise subject.failure(
            "original_state_dict has other tensors than the module",
            "reverse_transform_state_dict_for_submodule returns the original form, without tensors of the "
            "transform's own.",
            names=sorted(state.keys() ^ forms.keys()),
        )
    reference, arguments = subject.reference(module), subject.program.arguments(3)
    if isinstance(reference, nn.Module):
        subject.compare("the values of original_state_dict", state, reference.state_dict(), _ORIGINAL)
    with torch.no_grad():
        before = compiled(*arguments)
        compiled.load_original_state_dict({name: t.clone() for name, t in state.items()})
        subject.compare("the results after loading the original state", compiled(*arguments), before, _ORDER)
        other = subject.module().eval()
        for tensor in other.state_dict().values():
            if tensor.is_floating_point():
                tensor.mul_(0.75).add_(0.05)
        compiled.load_original_state_dict(other.state_dict())
        expected = subject.reference(other)(*arguments)
        subject.compare("the results after loading other values", compiled(*arguments), expected, _ORIGINAL)
        if isinstance(reference, nn.Module):
            loaded = compiled.original_state_dict()
            subject.compare("the values of original_state_dict", loaded, other.state_dict(), _ORIGINAL)


def check_copies(subject: TransformSubject) -> None:
    """Check that a copy of the compiled module computes the same, for many sizes."""
    module = subject.module().eval()
    expected, compiled = subject.reference(module), subject.compiled(module)
    with torch.no_grad():
        compiled(*subject.program.arguments(3))
        copied = copy.deepcopy(compiled)
        for n in SIZES[1:]:
            arguments = subject.program.arguments(n)
            subject.compare("the results of a copy", copied(*arguments), expected(*arguments), _ORDER)


def check_repeats(subject: TransformSubject) -> None:
    """Check that the same module is compiled to the same program again."""
    texts = []
    for _ in range(2):
        compiled = subject.compiled(subject.module())
        compiled(*subject.program.arguments(3))
        texts.append([t.python(include_timing=False) for t in last_traces(compiled)])
    if texts[0] != texts[1]:
        raise subject.failure(
            "two compiles of one module give different programs",
            "Leave out what depends on earlier compiles, on ids, or on the order of sets.",
        )


#: property → its check, for each program
TRANSFORM_PROPERTIES: Mapping[str, Callable[[TransformSubject], None]] = {
    "values": check_values,
    "sizes": check_sizes,
    "training": check_training,
    "modes": check_modes,
    "module": check_module,
    "state": check_state,
    "copies": check_copies,
    "repeats": check_repeats,
}


def _run(subject: TransformSubject, check: Callable[[TransformSubject], None]) -> None:
    """Run a check; what a program with the transform raises, is a failure."""
    try:
        check(subject)
    except (ConformanceFailure, SkipTest):
        raise
    except Exception as error:
        raise subject.failure(
            "a program with it fails",
            "Each hook returns what the next stage takes.",
            raised=error_text(error),
        ) from error


def transform_conformance(
    transform: Callable[[], Transform],
    *,
    reference: Callable[[nn.Module], Callable[..., Any]] = lambda module: module,
    programs: Mapping[str, Program] | None = None,
    tolerance: tuple[float, float] = (1e-5, 1e-5),
    executors: Sequence[Any] = ("torch",),
    expected_failures: Mapping[str, str] | None = None,
) -> Iterator[Case]:
    """Return the tests of a transform: `for case in transform_conformance(MyTransform): case.run()`.

    Args:
        transform: returns a new transform: its class, or a function.
        reference: returns what the transformed module computes, in eager; by default the module itself.
        programs: by a name: a module, and the arguments of a call for each size, beside those of the kit.
        tolerance: (relative, absolute) of results and gradients.
        executors: of the compiles.
        expected_failures: name of a case → why it fails. Such a case fails when it passes.

    Raises InvalidArgument for the name of a case that does not exist.
    """
    cases = [
        Case(f"{name}-{program}", name, program, partial(_run, subject, check))
        for program, given in {**PROGRAMS, **(programs or {})}.items()
        for subject in (TransformSubject(transform, given, reference, tolerance, executors),)
        for name, check in TRANSFORM_PROPERTIES.items()
    ]
    return iter(expecting(cases, dict(expected_failures or {})))
