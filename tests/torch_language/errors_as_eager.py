"""Calls of every operator, in every dtype and with a fault: who raises, when and what, judged by eager.

    hatch run sweep errors               every entry of torch's database (half an hour on two cores)
    hatch run sweep errors norm round    those whose names contain one of the words
    hatch run sweep errors 1/4           one entry of four, from the second on

The inputs are torch's own samples in each dtype, whether or not the entry declares it, and with one argument
changed: a tensor of another dtype, shape or device, without elements or dimensions, a number out of range.
Where nobody raises, results, `requires_grad` and gradients are compared. `DIFFERENCES` has what may differ.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import torch

import thunder
from comparison.errors import is_a
from comparison.values import assert_equal_tensors
from thunder import UnsupportedProgram
from thunder.base.pytree import tree_flatten, tree_map, tree_unflatten
from torch_language.database import op_db, seed_cpu
from torch_language.error_differences import DIFFERENCES
from torch_language.samples import SKIPPED, UNINITIALISED, copied, name_of

Args = tuple[Any, ...]
Kwargs = dict[str, Any]

DTYPES: Final = (
    *(torch.bool, torch.uint8, torch.int16, torch.int64, torch.uint16),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn),
    *(torch.complex32, torch.complex64),
)
#: the dtypes of the samples that are changed, the first that an entry has
SAMPLED: Final = (torch.float32, torch.int64, torch.bool, torch.complex64)
#: samples begin in CPython's own generators, which a compiled program does not see
SEEDED: Final = "wrapper_set_seed"


@dataclass(frozen=True)
class Case:
    """A call of an entry's function; ``what`` says how it was changed."""

    fn: Callable[..., Any]
    what: str
    args: Args
    kwargs: Kwargs
    grad: bool

    def __str__(self) -> str:
        return f"{self.what}, grad" if self.grad else self.what


@dataclass(frozen=True)
class Outcome:
    """What a call did: it raised (at the ``call``, in the ``backward``), or has results and gradients."""

    moment: str
    error: Exception | None = None
    results: Sequence[Any] = ()
    gradients: Sequence[Any] = ()

    def __str__(self) -> str:
        first_line = f"{type(self.error).__name__}: {self.error}".split("\n")[0][:200]
        return f"raises at the {self.moment} {first_line}" if self.error is not None else "returns"


# -- cases ---------------------------------------------------------------------------------------------------


def entries(words: Sequence[str] = ()) -> dict[str, Any]:
    """Return the entries of torch's database whose names contain one of the words, by name."""
    named = {name_of(op): op for op in op_db if not op.name.startswith(SKIPPED)}
    part, parts = next((map(int, word.split("/")) for word in words if "/" in word), (0, 1))
    words = [word for word in words if "/" not in word]
    found = [n for n in named if not words or any(word in n for word in words)]
    return {n: named[n] for n in found[part::parts]}


def sample(op: Any) -> tuple[torch.dtype, Args, Kwargs] | None:
    """Return the first sample of an entry of strided tensors, and its dtype."""
    for dtype in SAMPLED:
        if not op.supports_dtype(dtype, "cpu"):
            continue
        for s in islice(op.sample_inputs("cpu", dtype, requires_grad=False), 3):
            call = (s.input, *s.args), s.kwargs
            if all(x.layout is torch.strided for x in _tensors(call)):
                return dtype, *call
    return None


def cases(op: Any) -> Iterator[Case]:
    """Yield the calls of an entry."""
    found = sample(op)
    if found is None:
        return
    dtype, *call = found
    for other in DTYPES:
        args, kwargs = tree_map(lambda x, d=other: _converted(x, dtype, d), tuple(call))
        for grad in (False, True) if other.is_floating_point or other.is_complex else (False,):
            yield Case(op.op, _name(other), args, kwargs, grad)
    leaves, spec = tree_flatten(tuple(call))
    for i, leaf in enumerate(leaves):
        for number, (what, value) in enumerate(_changed(leaf)):
            args, kwargs = tree_unflatten([*leaves[:i], value, *leaves[i + 1 :]], spec)
            yield Case(op.op, f"{i} {what}", args, kwargs, grad=bool(number % 2))


def _changed(x: Any) -> Iterator[tuple[str, Any]]:
    """Yield values in place of an argument, with what they are."""
    if isinstance(x, torch.Tensor):
        yield "meta", x.to("meta")
        for dtype in (torch.float64, torch.int32, torch.complex64, torch.bool):
            if dtype is not x.dtype:
                yield _name(dtype), x.to(dtype)
        if x.numel():
            yield "without dimensions", x.flatten()[0].clone()
            yield "one element", x.flatten()[:1].reshape((1,) * x.dim()).clone()
        yield "flat", x.flatten().clone()
        yield "one dimension more", x[None].clone()
        if x.dim():
            yield "empty at the beginning", x[:0].clone()
            yield "empty at the end", x[..., :0].clone()
            yield "longer", torch.cat([x, x[:1]])
            yield "longer at the end", torch.cat([x, x[..., :1]], -1)
    elif type(x) is bool:
        yield "not", not x
    elif type(x) is int:
        yield from ((str(n), n) for n in (0, -1, 2, 100, -100) if n != x)
    elif type(x) is float:
        yield from ((str(n), n) for n in (0.0, -1.0, float("inf"), float("-inf")) if n != x)


def _converted(x: Any, source: torch.dtype, target: torch.dtype) -> Any:
    return x.to(target) if isinstance(x, torch.Tensor) and x.dtype is source else x


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# -- judging -------------------------------------------------------------------------------------------------


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [x for x in tree_flatten(tree)[0] if isinstance(x, torch.Tensor)]


def outcome(fn: Callable[..., Any], case: Case) -> Outcome:
    """Return what ``fn`` does for a case's inputs; a refusal of thunder is raised."""
    args, kwargs = copied((case.args, case.kwargs))
    inputs = [x for x in _tensors((args, kwargs)) if x.is_floating_point() or x.is_complex()]
    for x in inputs if case.grad else ():
        x.requires_grad_()
    seed_cpu()
    try:
        result = fn(*args, **kwargs)
    except UnsupportedProgram:
        raise
    except Exception as error:
        return Outcome("call", error)
    results = tree_flatten(list(result) if isinstance(result, tuple | list) else [result])[0]
    tracked = [x for x in _tensors(results) if x.requires_grad]
    gradients: Sequence[Any] = ()
    try:
        if tracked and case.grad:
            ones = list(map(torch.ones_like, tracked))
            gradients = torch.autograd.grad(tracked, inputs, ones, allow_unused=True)
    except UnsupportedProgram:
        raise
    except Exception as error:
        return Outcome("backward", error)
    pairs = zip(gradients, inputs, strict=True) if gradients else ()
    return Outcome("", None, results, [torch.zeros_like(x) if g is None else g for g, x in pairs])


def difference(case: Case, **options: Any) -> str:
    """Return how the compiled call differs from eager's, or "" if it does not; a refusal does not."""
    program = _with_other_results(case) if case.grad else case.fn
    theirs = outcome(program, case)
    try:
        ours = outcome(thunder.jit(lambda *args, **kwargs: program(*args, **kwargs), **options), case)
    except UnsupportedProgram:
        return ""
    if theirs.error is None and ours.error is None:
        return _difference_of_values(ours, theirs, _precision(case))
    if theirs.error is None or ours.error is None or ours.moment != theirs.moment:
        return f"{ours}, eager {theirs}"
    return "" if is_a(ours.error, type(theirs.error).__name__) else f"{ours}, eager {theirs}"


def _with_other_results(case: Case) -> Callable[..., Any]:
    """Return a program that thunder differentiates, also where the entry's result does not require grad."""

    def program(*args: Any, **kwargs: Any) -> Any:
        others = [x * 2 for x in _tensors((args, kwargs)) if x.requires_grad and x.dtype.itemsize > 1]
        result = case.fn(*args, **kwargs)
        return [*result, *others] if isinstance(result, tuple | list) else [result, *others]

    return program


def _precision(case: Case) -> torch.dtype:
    """Return the dtype in which results are compared: the roughest one among the inputs."""
    sizes = [x.dtype.to_real().itemsize for x in _tensors((case.args, case.kwargs)) if x.dtype.is_complex]
    sizes += [x.dtype.itemsize for x in _tensors((case.args, case.kwargs)) if x.is_floating_point()]
    return {1: torch.bfloat16, 2: torch.bfloat16, 4: torch.float32}.get(min(sizes, default=4), torch.float64)


def _difference_of_values(ours: Outcome, theirs: Outcome, precision: torch.dtype) -> str:
    for what in ("results", "gradients"):
        expected, found = getattr(theirs, what), getattr(ours, what)
        facts = [[_facts(x) for x in values] for values in (expected, found)]
        if facts[0] != facts[1]:
            return f"{what} are {facts[1]}, eager's {facts[0]}"
        try:
            comparable = ([_comparable(x, precision) for x in values] for values in (expected, found))
            assert_equal_tensors(*comparable, what)
        except AssertionError as error:
            return str(error).replace("\n", " ")[:200]
    return ""


def _facts(x: Any) -> Any:
    return (_name(x.dtype), tuple(x.shape), x.requires_grad) if isinstance(x, torch.Tensor) else type(x)


def _comparable(x: Any, precision: torch.dtype) -> Any:
    if not isinstance(x, torch.Tensor) or x.device.type == "meta":
        return None
    x = torch.view_as_real(x.detach().resolve_conj()) if x.is_complex() else x.detach()
    return x.to(precision) if x.is_floating_point() else x


def expected_difference(name: str, case: Case) -> str | None:
    """Return the reason why a case may differ, or None."""
    for entry, what, reason in DIFFERENCES:
        if re.fullmatch(entry, name) and re.fullmatch(what, str(case)):
            return reason
    return None


def unexpected(name: str, chosen: Iterator[Case], **options: Any) -> Iterator[str]:
    """Yield the differences of an entry for which no reason is listed."""
    for case in chosen:
        if name not in UNINITIALISED and expected_difference(name, case) is None:
            found = difference(case, **options)
            if found:
                yield f"{name}, {case}: {found}"


# -- the sweep -----------------------------------------------------------------------------------------------


def seed_outside() -> None:
    """Let samples draw from generators that were seeded before the call, and not within it."""
    for module in list(sys.modules.values()):
        if module.__name__.startswith("torch.testing") and hasattr(module, SEEDED):
            setattr(module, SEEDED, lambda fn, *args, **kwargs: fn(*args, **kwargs))


def main(words: Sequence[str]) -> int:
    """Print the differences without a reason; return 1 if there are any.

    Each entry has a process of its own: eager's kernels for wrong arguments may end it.
    """
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    seed_outside()
    failed = 0
    for name, op in entries(words).items():
        process = os.fork()
        if not process:
            found = 0
            for line in unexpected(name, cases(op), executors=["torch"]):
                print(line, flush=True)
                found = 1
            os._exit(found)
        status = os.waitpid(process, 0)[1]
        failed += os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0
        if os.WIFSIGNALED(status):
            print(f"{name}: ended by signal {os.WTERMSIG(status)}", flush=True)
    print(f"{failed} entries differ")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
