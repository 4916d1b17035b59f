"""Programs of the suites, each of them called as the first in its process, and eager in another process.

A process that other tests have used has modules imported, caches filled, and classes registered: there no
call is the first. Eager is asked in a process of its own too, since it would fill the caches.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import os
import pkgutil
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from new_processes import run_python

#: the arguments of one call, by position and by name
Call = tuple[Sequence[Any], dict[str, Any]]
#: a program, and its calls; what happens between calls happens as the calls are taken
Program = tuple[Callable[..., Any], Iterator[Call]]
#: of each call: its tensors and numbers, or the error; and how often the program was compiled
Answers = tuple[list[tuple[str, Any]], int]

ROOT = Path(__file__).parents[1]
CALLS = 3  # of programs with arguments alone


@dataclass(frozen=True)
class Suite:
    """Programs by name, the modules that have them, and how one is made."""

    modules: tuple[str, ...]
    names: Callable[[], list[str]]
    make: Callable[[str], Program]


def _module(name: str) -> Any:
    return importlib.import_module(name)


def _repeated(args: Sequence[Any], kwargs: dict[str, Any]) -> Iterator[Call]:
    for _ in range(CALLS):
        yield args, kwargs


# -- worlds that change between calls ------------------------------------------------------------------------

_KINDS = ("classes", "functions", "namespaces", "values")
_CHANGING: tuple[str, ...] = tuple(f"soundness.changing_{kind}" for kind in _KINDS)


#: one first process serves both suites
_WORLDS = (*_CHANGING, "soundness.example_programs", "thunder")


def _changing_rows() -> dict[str, Any]:
    for name in _CHANGING:
        _module(name)
    rows: dict[str, Any] = _module("soundness.changes_between_calls").ROWS
    return rows


def _changing(name: str) -> Program:
    program, acts = _changing_rows()[name]()
    ramp = _module("soundness.harness").ramp

    def calls() -> Iterator[Call]:
        for act in (None, *acts):
            if act is not None:
                act()
            yield (ramp(3),), {}
            yield (ramp(3),), {}

    return program, calls()


def _world(name: str) -> Program:
    world = _module("soundness.example_programs").PROGRAMS[name]()
    return world.program, _repeated(world.args, world.kwargs)


# -- operators -----------------------------------------------------------------------------------------------


def _operators() -> dict[str, Any]:
    database, samples = _module("torch_language.database"), _module("torch_language.samples")
    skipped = (*samples.SKIPPED, *samples.UNINITIALISED)
    named = {samples.name_of(op): op for op in database.op_db}
    return {
        name: op for name, op in named.items() if not name.startswith(skipped) and op.supported_dtypes("cpu")
    }


def _operator(name: str) -> Program:
    op = _operators()[name]
    dtypes = op.supported_dtypes("cpu")
    dtype = torch.float32 if torch.float32 in dtypes else min(dtypes, key=str)
    grads = op.supports_autograd and dtype.is_floating_point
    sample = next(iter(op.sample_inputs("cpu", dtype, requires_grad=grads)))
    return op.op, _repeated((sample.input, *sample.args), sample.kwargs)


# -- models and libraries ------------------------------------------------------------------------------------


def _families() -> Any:
    sys.path.append(str(ROOT / "tools"))
    return _module("transformer_families")


def _family(name: str) -> Program:
    family, _, call = name.partition(".")
    families = _families()
    model = families.model_of(family).train(call == "training")
    torch.manual_seed(2)
    return model, _repeated((), families.inputs_of(family, call))


def _library_names() -> list[str]:
    package = _module("libraries")
    for module in pkgutil.iter_modules(package.__path__):
        _module(f"libraries.{module.name}")
    cases = _module("libraries.library_cases").CASES
    return [case.name for case in cases if importlib.util.find_spec(case.library) is not None]


def _library(name: str) -> Program:
    torch.manual_seed(0)  # modules of cases draw inputs
    _library_names()
    torch.manual_seed(1)
    case = next(case for case in _module("libraries.library_cases").CASES if case.name == name)
    program, calls, *rest = case.build()
    keywords = rest[0] if rest else {}
    return program, iter([(args, keywords) for args in (*calls, calls[-1])])


SUITES: dict[str, Suite] = {
    "changing": Suite(_WORLDS, lambda: list(_changing_rows()), _changing),
    "worlds": Suite(
        _WORLDS,
        lambda: list(_module("soundness.example_programs").PROGRAMS),
        _world,
    ),
    "operators": Suite(
        ("torch_language.database", "torch_language.samples", "thunder"),
        lambda: list(_operators()),
        _operator,
    ),
    "families": Suite(
        ("transformers", "thunder"),
        lambda: [f"{family}.{call}" for family in _families().FAMILIES for call in _families().CALLS],
        _family,
    ),
    "libraries": Suite(("thunder",), _library_names, _library),
}


# -- in a process of its own ---------------------------------------------------------------------------------


def answer(suite: str, name: str, how: str, path: str) -> None:
    """Call a program, and save what it answers; ``how`` is "eager", "compiled", or "after eager"."""
    warnings.simplefilter("ignore")
    thunder = _module("thunder")
    if how == "after eager":
        for answers in _called(SUITES[suite].make(name), lambda fn: fn):
            del answers
    compiled: list[Any] = []

    def wrap(fn: Callable[..., Any]) -> Callable[..., Any]:
        compiled.append(fn if how == "eager" else thunder.jit(fn, recompile_limit=None))
        return compiled[0]  # type: ignore[no-any-return]

    answers = list(_called(SUITES[suite].make(name), wrap))
    misses = 0 if how == "eager" else thunder.cache_misses(compiled[0])
    torch.save((answers, misses), path)
    os._exit(0)  # to take torch down costs more than most programs


def _called(program: Program, wrap: Callable[[Any], Any]) -> Iterator[tuple[str, Any]]:
    fn, calls = program
    call = wrap(fn)
    parameters = list(fn.parameters()) if isinstance(fn, torch.nn.Module) else []
    for args, kwargs in calls:
        torch.manual_seed(1)
        copied_args, copied = _copied(args), _copied(kwargs)
        try:
            result = call(*copied_args, **copied)
            yield "result", [_plain(result), _gradients(result, [copied_args, copied, parameters])]
        except Exception as error:
            refused = any(cls.__name__ == "ThunderError" for cls in type(error).__mro__)
            text = re.sub(r"0x[0-9a-f]+", "0x", str(error))
            yield ("refused", text) if refused else ("raised", f"{type(error).__name__}: {text}")


def _copied(value: Any) -> Any:
    """Return arguments whose tensors are leaves of this call."""
    if isinstance(value, torch.Tensor) and not value.is_nested and value.layout is torch.strided:
        return value.detach().clone().requires_grad_(value.requires_grad)
    if type(value) in (list, tuple):
        return type(value)(map(_copied, value))
    if callable(value):  # a function of the program, which is the same one in each call
        return value
    return {k: _copied(v) for k, v in value.items()} if type(value) is dict else copy.copy(value)


def _plain(value: Any) -> Any:
    """Return the tensors, numbers and texts of a result, in lists; of other objects their attributes."""
    if isinstance(value, torch.Tensor):
        return torch.zeros_like(value) if value._is_zerotensor() else value.detach().clone()
    if isinstance(value, int | float | complex | str | bytes | type(None)):
        return value
    if isinstance(value, dict):
        return [_plain(v) for v in value.values()]
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(v) for v in value]
    attributes = {} if isinstance(value, type | torch.nn.Module) else getattr(value, "__dict__", {})
    return [type(value).__name__, *(_plain(v) for v in attributes.values() if v is not value)]


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors(part)


def _gradients(result: Any, inputs: Any) -> list[torch.Tensor | None]:
    """Return the gradients of a weighted sum of a result with regard to its inputs."""
    weighted = [
        (r * torch.linspace(0.5, 1.5, r.numel()).view(r.shape)).sum()
        for r in _tensors(result)
        if r.requires_grad and r.is_floating_point() and r.layout is torch.strided and not r.is_nested
    ]
    leaves = [t for t in _tensors(inputs) if t.requires_grad]
    if not weighted or not leaves:
        return []
    gradients = torch.autograd.grad(torch.stack(weighted).sum(), leaves, allow_unused=True)
    return [None if g is None else _plain(g) for g in gradients]


# -- in the process of the tests -----------------------------------------------------------------------------


def answers_of(suite: str, name: str, how: str) -> Answers:
    """Return what a program answers in a process that has called nothing before."""
    modules = ("first_programs", *SUITES[suite].modules)
    paths = [str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "THUNDER_PLUGINS": ""}
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "answers"))
        program = f"import first_programs; first_programs.answer({suite!r}, {name!r}, {how!r}, {path!r})"
        done = run_python("-c", program, env=env, imported=modules)
        if done.returncode != 0:
            raise AssertionError(f"{suite} {name} {how}:\n{done.stdout}\n{done.stderr}")
        answers: Answers = torch.load(path, weights_only=False)
    return answers


def difference(suite: str, name: str) -> str | None:
    """Return what the first calls of a program in its process answer that is not eager's, or None.

    A program may be refused if it is refused after eager has been called, too.
    """
    expected, _ = answers_of(suite, name, "eager")
    found, misses = answers_of(suite, name, "compiled")
    if any(kind == "refused" for kind, _ in found):
        later, _ = answers_of(suite, name, "after eager")
        refused = next(text for kind, text in found if kind == "refused")
        return None if any(kind == "refused" for kind, _ in later) else f"refused: {refused}"
    for number, (wanted, actual) in enumerate(zip(expected, found, strict=True), 1):
        if not are_alike(wanted, actual):
            return f"call {number}: {str(actual)[:300]} in place of {str(wanted)[:300]}"
    # the same call of an operator, which changes nothing
    return f"{misses} compiles" if misses > 1 and suite == "operators" else None


def are_alike(expected: Any, found: Any) -> bool:
    """Return whether answers are equal, and numbers close."""
    if isinstance(expected, list | tuple):
        return (
            type(expected) is type(found)
            and len(expected) == len(found)
            and all(map(are_alike, expected, found))
        )
    if not isinstance(expected, torch.Tensor | float | complex):
        return type(expected) is type(found) and bool(expected == found)
    if isinstance(expected, torch.Tensor) and "float8" in str(expected.dtype):
        return found.dtype is expected.dtype and are_alike(expected.float(), found.float())
    try:
        torch.testing.assert_close(found, expected, rtol=2e-4, atol=2e-5, equal_nan=True)
    except (AssertionError, TypeError, ValueError):
        return False
    return True
