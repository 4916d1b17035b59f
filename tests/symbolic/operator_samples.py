"""Torch's samples of operators as programs for many shapes: what the sizes of a sample become.

    hatch run sweep symbolic-operators               every entry; compares with what is recorded
    hatch run sweep symbolic-operators cat pool      those whose names contain one of the words
    hatch run sweep symbolic-operators --record      writes ``operator_samples.json``

All sizes of a sample are symbols. It is called with its own sizes, then with four others that eager accepts:
the program of the first call must serve them all, and each result must be eager's. What eager refuses, the
program must refuse.
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
from symbolic.other_sizes import other_samples, shapes
from symbolic.static_reasons import failure_of
from thunder.base.pytree import tree_iter, tree_map
from torch_language.database import op_db, seed_cpu
from torch_language.samples import DISCONTINUOUS, SEED, SKIPPED, UNINITIALISED, copied, name_of

RECORD = Path(__file__).with_name("operator_samples.json")
#: operators whose kernels read memory by values that they do not check: other sizes end the process
UNCHECKED = ("_segment_reduce",)
ENTRIES = {name_of(op): op for op in op_db if not op.name.startswith((*SKIPPED, *UNCHECKED))}
#: how many samples of an entry are called, spread over all that it has
MOST = 8
#: with how many other sizes that eager accepts, and that it refuses, a sample is called
OTHERS, REFUSED = 4, 2
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


@dataclass(frozen=True)
class Outcome:
    """What became of a sample: ``kind`` is a key of ``KINDS``; ``reason`` is why."""

    kind: str
    reason: str = ""


#: from the best to the worst; an entry has the worst of its samples
KINDS = {
    "own": "eager takes the sample with its own sizes only, and they stay symbols",
    "free": "the first program serves four calls with other sizes, or as many as eager takes",
    "several": "a call with other sizes is another program: it has another answer to a question",
    "fixed": "the program is compiled for one number as a size, though eager takes others",
    "static": "the program is compiled for the sizes of its call",
    "refused": "thunder refuses all samples, under constant sizes too",
    "wrong": "a result is not eager's, an error is not a refusal, or eager refuses what the program computes",
}


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
    call = SampleCall(op, how)
    found = call.compared(args, kwargs, expected)
    called, refused = 0, []
    for others, options in other_samples((args, kwargs)):
        if found is not None or called == OTHERS:
            break
        try:
            expected = how(op.op, others, options)
        except EAGER_ERRORS as error:
            refused.append((others, options, error))
            continue
        called += 1
        found = call.compared(others, options, expected)
    for others, options, error in refused[:REFUSED]:
        found = found or call.accepted(others, options, error)
    return found or call.again or Outcome("free" if called else "own")


class SampleCall:
    """A compiled operator, called with a sample's sizes and then with others."""

    def __init__(self, op: Any, how: Callable[..., Any]) -> None:
        def program(*args: Any, **kwargs: Any) -> Any:
            return op.op(*args, **kwargs)

        self.op, self.how, self.program = op, how, program
        self.compiled = thunder.jit(program, cache="symbolic values", recompile_limit=None)
        self.stats = thunder.compile_stats(self.compiled)
        #: why another program was compiled; the first relation, or a number that was fixed
        self.again: Outcome | None = None

    def compared(self, args: Any, kwargs: Any, expected: Any) -> Outcome | None:
        """Compare a call with eager's; return what is wrong, or why it is a program for its sizes."""
        misses = self.stats.cache_misses
        try:
            actual = self.how(self.compiled, args, kwargs)
        except thunder.UnsupportedProgram as error:
            return Outcome("refused", _line(error))
        except Exception as error:  # eager runs the call: any other error is thunder's
            return Outcome("wrong", f"{_line(error)} for {shapes((args, kwargs))}")
        difference = _difference(self.op, actual, expected)
        if difference and not self._is_as_exact(args, kwargs, actual, expected):
            return Outcome("wrong", f"{difference} for {shapes((args, kwargs))}")
        failure = failure_of(self.compiled)
        if failure is not None:
            return Outcome("static", _line(failure))
        if misses and self.stats.cache_misses > misses:
            self._note_reasons()
        return None

    def _is_as_exact(self, args: Any, kwargs: Any, actual: Any, expected: Any) -> bool:
        """Return whether the values are as near as eager's to those that eager computes in 64 bits."""
        try:
            exact = self.how(self.op.op, *_in_double((args, kwargs)))
        except EAGER_ERRORS:
            return False
        leaves = [list(tree_iter(tree)) for tree in (actual, expected, exact)]
        return len(set(map(len, leaves))) == 1 and all(
            _is_near(a, e, x) for a, e, x in zip(*leaves, strict=True) if isinstance(x, torch.Tensor)
        )

    def accepted(self, args: Any, kwargs: Any, error: Exception) -> Outcome | None:
        """Return that a program gives a result where eager, and the program for these sizes alone, do not."""
        for compiled in (self.compiled, thunder.jit(self.program, cache="constant values")):
            try:
                self.how(compiled, args, kwargs)
            except Exception:
                if compiled is self.compiled:
                    return None
                return Outcome("wrong", f"no error for {shapes((args, kwargs))}: {_line(error)}")
        return None

    def _note_reasons(self) -> None:
        reasons = self.stats.last_recompile_reasons
        numbers = [reason for reason in reasons if _is_number(reason)]
        if numbers:
            self.again = Outcome("fixed", numbers[0].fact or str(numbers[0].expected))
        elif self.again is None:
            self.again = Outcome("several", _why(reasons[0]) if reasons else "")


def _is_number(reason: Any) -> bool:
    """Return whether an entry was for one number: a relation ``size == number``, or another fact."""
    left, _, right = reason.fact.partition(" == ")
    return not reason.fact or (reason.fact.startswith("args") and right.isdigit() and left.endswith("]"))


def _why(reason: Any) -> str:
    """Return the fact that did not hold in a call, without the place of a decision on data."""
    if reason.fact.startswith("decision"):
        return f"decision: {reason.fact.rpartition(': ')[2]}"
    return f"{reason.fact}: {reason.found}" if reason.fact.startswith("metadata") else reason.fact


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


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


def _in_double(tree: Any) -> Any:
    return tree_map(
        lambda x: x.double() if isinstance(x, torch.Tensor) and x.dtype is torch.float32 else x, tree
    )


def _is_near(actual: Any, eager: Any, exact: torch.Tensor) -> bool:
    """Return whether a value is about as far from the exact one as eager's is."""
    if (
        not isinstance(actual, torch.Tensor)
        or actual.dtype != eager.dtype
        or _strides(actual) != _strides(eager)
    ):
        return False
    scale = exact.abs().amax() if exact.numel() else 0.0
    error, of_eager = ((x - exact).abs().amax() if exact.numel() else 0.0 for x in (actual, eager))
    return bool(error <= 16 * of_eager + 1e-5 * scale)


def _strides(x: torch.Tensor) -> list[int]:
    """Return the strides of the dimensions that have several elements."""
    return [s for n, s in zip(x.shape, x.stride(), strict=True) if n > 1 and x.numel()]


def _metadata(x: torch.Tensor) -> str:
    return f"{x.dtype}{list(x.shape)} strides {_strides(x)}"


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
