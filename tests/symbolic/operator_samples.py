"""Torch's samples of operators as programs for many shapes: what the sizes of a sample become.

    hatch run sweep symbolic-operators               every entry; compares with what is recorded
    hatch run sweep symbolic-operators cat pool      those whose names contain one of the words
    hatch run sweep symbolic-operators --record      writes ``operator_samples.json``

A sample is called with its own sizes, then with other sizes that eager accepts; both results are eager's. An
operator passes if no sample becomes static, and none is compiled for one number where eager takes others.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.testing._internal import common_methods_invocations

import thunder
import workspace_plugins
from operators.database import op_db, seed_cpu
from operators.samples import DISCONTINUOUS, SEED, SKIPPED, UNINITIALISED, copied, name_of
from thunder.base.pytree import tree_iter, tree_map

RECORD = Path(__file__).with_name("operator_samples.json")
ENTRIES = {name_of(op): op for op in op_db if not op.name.startswith(SKIPPED)}
#: how many samples of an entry are called, spread over all that it has
MOST = 8
#: errors with which eager refuses a call
EAGER_ERRORS = (
    RuntimeError,
    TypeError,
    ValueError,
    IndexError,
    NotImplementedError,
    AttributeError,
    AssertionError,
)
#: dtypes of samples, of which an entry has the first that it takes
DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64)

Sizes = Callable[[torch.Tensor, int], list[int]]


@dataclass(frozen=True)
class Outcome:
    """What became of a sample: ``kind`` is a key of ``KINDS``; ``reason`` is why."""

    kind: str
    reason: str = ""


#: from the best to the worst; an entry has the worst of its samples
KINDS = {
    "own": "eager takes the sample with its own sizes only, and they stay symbols",
    "free": "one compile serves the other sizes, or a second one with other answers to questions",
    "fixed": "the program is compiled for one number as a size, though eager takes others",
    "static": "the program is compiled for the sizes of its call",
    "refused": "thunder refuses all samples, under constant sizes too",
    "wrong": "the result is not eager's, or the call fails with an error that is no refusal",
}


def _every(step: Callable[[int], int]) -> Sizes:
    return lambda x, _: [step(n) if n > 1 else n for n in x.shape]


def _one_dimension(d: int, step: Callable[[int], int]) -> Sizes:
    def sizes(x: torch.Tensor, _: int) -> list[int]:
        shape = list(x.shape)
        if -len(shape) <= d < len(shape) and shape[d] > 1:
            shape[d] = step(shape[d])
        return shape

    return sizes


def _of_first(sizes: Sizes) -> Sizes:
    return lambda x, position: sizes(x, position) if position == 0 else list(x.shape)


def _next(n: int) -> int:
    return n + 1


def _double(n: int) -> int:
    return 2 * n


#: other sizes of a sample's tensors, the first of which that eager accepts is taken
OTHER_SIZES: tuple[Sizes, ...] = (
    _every(_next),
    _every(_double),
    _one_dimension(0, _next),
    _one_dimension(-1, _next),
    _one_dimension(-2, _next),
    *(_of_first(_one_dimension(d, step)) for step in (_next, _double) for d in (0, 1, -1, -2)),
    _of_first(_every(_double)),
)


def resized(tree: Any, sizes: Sizes) -> Any:
    """Return a sample in which tensors have other sizes, and values from among their own."""
    position = iter(range(1000))
    seen: dict[int, torch.Tensor] = {}

    def resize(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or x.layout is not torch.strided:
            return x
        if id(x) not in seen:
            seen[id(x)] = _with_shape(x.detach(), sizes(x, next(position)))
        return seen[id(x)]

    return tree_map(resize, tree)


def _with_shape(x: torch.Tensor, shape: list[int]) -> torch.Tensor:
    if list(x.shape) == shape:
        return x.clone(memory_format=torch.preserve_format)
    is_sorted = x.dim() == 1 and bool((x.diff() >= 0).all()) if not x.is_complex() else False
    for d, n in enumerate(shape):
        x = x.index_select(d, torch.arange(n) % x.shape[d])
    if x.dtype.is_floating_point or x.dtype.is_complex:  # no matrix has equal rows
        return x.flatten()[torch.randperm(x.numel())].reshape(shape)
    return x.sort()[0] if is_sorted else x  # offsets


def samples(op: Any) -> Iterator[tuple[Any, Any]]:
    """Yield ``(args, kwargs)`` of samples of an entry, spread over all that it has."""
    dtype = next((d for d in DTYPES if op.supports_dtype(d, "cpu")), None)
    if dtype is None:
        return
    found = list(islice(op.sample_inputs("cpu", dtype, requires_grad=False), 400))
    for sample in found[:: max(1, len(found) // MOST)]:
        yield (sample.input, *sample.args), dict(sample.kwargs)


def run(fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Return the result of a call."""
    seed_cpu(SEED)
    args, kwargs = copied((args, kwargs))
    return fn(*args, **kwargs)


def run_with_gradients(fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Return the result of a call, what of it requires grad, and the gradients of the arguments."""
    seed_cpu(SEED)
    args, kwargs = copied((args, kwargs))
    leaves = [x for x in tree_iter((args, kwargs)) if isinstance(x, torch.Tensor) and x.is_floating_point()]
    for x in leaves:
        x.requires_grad_()
    result = fn(*args, **kwargs)
    results = [x for x in tree_iter(result) if isinstance(x, torch.Tensor)]
    tracked = [x for x in results if x.requires_grad]
    if tracked:
        sum(((x * x.detach().cos()).sum().abs() for x in tracked), torch.zeros(())).backward()
    return [result, [x.requires_grad for x in results], [x.grad for x in leaves]]


def outcome(op: Any, args: Any, kwargs: Any, hows: Iterable[Callable[..., Any]] = (run,)) -> Outcome | None:
    """Return what became of a sample, run in the first way that eager accepts; None if it refuses all."""
    for how in hows:
        try:
            expected = how(op.op, args, kwargs)
        except EAGER_ERRORS:
            continue
        return _outcome(op, args, kwargs, expected, how)
    return None


def _outcome(op: Any, args: Any, kwargs: Any, expected: Any, how: Callable[..., Any]) -> Outcome:
    def program(*args: Any, **kwargs: Any) -> Any:
        return op.op(*args, **kwargs)

    compiled = thunder.jit(program, cache="symbolic values", recompile_limit=None)
    stats = thunder.compile_stats(compiled)

    def compare(args: Any, kwargs: Any, expected: Any) -> Outcome | None:
        try:
            actual = how(compiled, args, kwargs)
        except thunder.UnsupportedProgram as error:
            return Outcome("refused", _line(error))
        except Exception as error:  # eager runs the call: any other error is thunder's
            return Outcome("wrong", _line(error))
        difference = _difference(op, actual, expected)
        return Outcome("wrong", difference) if difference else None

    found = compare(args, kwargs, expected)
    if found is not None:
        return found
    if stats.last_static_reason is not None:
        return Outcome("static", _line(stats.last_static_reason))
    for sizes in OTHER_SIZES:
        others, options = resized((args, kwargs), sizes)
        if _shapes((others, options)) == _shapes((args, kwargs)):
            continue
        try:
            expected = how(op.op, others, options)
        except EAGER_ERRORS:
            continue
        found = compare(others, options, expected)
        if found is not None:
            return found
        fixed = [reason for reason in stats.last_recompile_reasons if _is_number(reason)]
        if stats.cache_misses > 1 and fixed:
            return Outcome("fixed", fixed[0].fact or str(fixed[0].expected))
        if stats.last_static_reason is not None:
            return Outcome("static", _line(stats.last_static_reason))
        return Outcome("free")
    return Outcome("own")


def _is_number(reason: Any) -> bool:
    """Return whether an entry was for one number: a relation ``size == number``, or another fact."""
    left, _, right = reason.fact.partition(" == ")
    return not reason.fact or (reason.fact.startswith("args") and right.isdigit() and left.endswith("]"))


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def _shapes(tree: Any) -> list[Any]:
    return [x.shape for x in tree_iter(tree) if isinstance(x, torch.Tensor)]


def _difference(op: Any, actual: Any, expected: Any) -> str:
    """Return how a result differs from eager's, "" if it does not."""
    leaves = [*tree_iter(expected)]
    found = [*tree_iter(actual)]
    if len(leaves) != len(found):
        return f"{len(found)} values instead of {len(leaves)}"
    for a, e in zip(found, leaves, strict=True):
        if e is None and isinstance(a, torch.Tensor) and not a.any():
            continue  # what eager leaves out is zeros (docs/differences.md)
        if isinstance(a, torch.Tensor) is not isinstance(e, torch.Tensor):
            return f"{type(a).__name__} instead of {type(e).__name__}"
        if not isinstance(e, torch.Tensor):
            if a != e and not (a != a and e != e):
                return f"{a!r} instead of {e!r}"
            continue
        if a.shape != e.shape or a.dtype != e.dtype or _strides(a) != _strides(e):
            return f"{_metadata(a)} instead of {_metadata(e)}"
        if op.name in UNINITIALISED or op.name in DISCONTINUOUS:
            continue
        try:
            torch.testing.assert_close(a, e, rtol=1e-4, atol=1e-4, equal_nan=True)
        except AssertionError as error:
            return str(error).splitlines()[0]
    return ""


def _strides(x: torch.Tensor) -> list[int]:
    """Return the strides of the dimensions that have several elements."""
    return [s for n, s in zip(x.shape, x.stride(), strict=True) if n > 1 and x.numel()]


def _metadata(x: torch.Tensor) -> str:
    return f"{x.dtype}{list(x.shape)} strides {x.stride()}"


@contextmanager
def _plain_random_numbers() -> Iterator[None]:
    """Let entries call random functions without torch's wrapper, which saves the state of generators."""
    with mock.patch.object(
        common_methods_invocations, "wrapper_set_seed", lambda op, *args, **kwargs: op(*args, **kwargs)
    ):
        yield


def verdict(
    name: str, first: int | None = None, hows: Iterable[Callable[..., Any]] = (run,)
) -> Outcome | None:
    """Return the worst outcome of an entry's samples, or of the first ones; None where eager runs none.

    Samples that are refused under constant sizes too do not count, unless all are.
    """
    with _plain_random_numbers():
        found = [
            o
            for args, kwargs in islice(samples(ENTRIES[name]), first)
            if (o := outcome(ENTRIES[name], args, kwargs, hows))
        ]
    judged = [o for o in found if o.kind != "refused"] or found
    return max(judged, key=lambda o: list(KINDS).index(o.kind), default=None)


def recorded() -> Mapping[str, Outcome]:
    """Return the entries that are recorded not to pass, with what becomes of them."""
    return {name: Outcome(**facts) for name, facts in json.loads(RECORD.read_text()).items()}


def passes(found: Outcome) -> bool:
    """Return whether an entry is one program for many shapes."""
    return found.kind in ("free", "own")


def main(arguments: Iterable[str] | None = None) -> int:
    """Print the entries that do not pass and the counts; return 1 if they are not those recorded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--gradients", action="store_true", help="gradients too, without a record of them")
    parser.add_argument("--part", default="0/1", help="the entries of one of several processes: 0/2, 1/2")
    parser.add_argument("--first", type=int, help="at most so many samples of each entry")
    options = parser.parse_args(arguments)
    os.environ.setdefault("THUNDER_DISABLE_PLUGINS", ",".join(workspace_plugins.NAMES))
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    hows = (run_with_gradients, run) if options.gradients else (run,)
    part, parts = map(int, options.part.split("/"))
    names = [n for n in ENTRIES if not options.words or any(w in n for w in options.words)][part::parts]
    known = recorded() if RECORD.exists() else {}
    counts: Counter[str] = Counter()
    others: dict[str, Outcome] = {}
    changed = []
    for name in names:
        found = verdict(name, options.first, hows)
        counts["not run by eager" if found is None else found.kind] += 1
        if found is not None and not passes(found):
            others[name] = found
            print(f"{found.kind:8}{name:45}{found.reason}", flush=True)
        if (known[name].kind if name in known else "") != (others[name].kind if name in others else ""):
            changed.append(name)
    print(dict(counts))
    if options.gradients:
        return 1 if counts["wrong"] or counts["static"] else 0
    if options.record:
        kept = {n: o for n, o in known.items() if n not in names} | others
        lines = [f"{json.dumps(n)}: {json.dumps(vars(o))}" for n, o in sorted(kept.items())]
        RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        return 0
    print(f"not as recorded: {', '.join(changed)}" if changed else "as recorded")
    return 1 if changed else 0


if __name__ == "__main__":
    raise SystemExit(main())
