"""A plugin of pytest: each trace that runs is written, read again, and what is read runs in its place.

    hatch run sweep loaded-traces

So the programs of the suites judge that the text of a trace is the program. The traces between, which
`check_trace` sees, are written and read too, and so is what each trace prints. A test fails if a trace and
what is read of it differ.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import thunder
from thunder.base.errors import TraceError, TraceTextError
from thunder.core.trace import TraceCtx, dump, load, tracectx
from thunder.ir import verify
from thunder.ir.proxies import FIELDS, TensorProxy, is_proxy
from thunder.ir.symbol import BoundSymbol, with_parts
from thunder.ir.symbolic_numbers import SymbolicNumber
from thunder.ir.trace import Source
from thunder.ir.trace_writing import SIZES

_check = verify.check_trace


def facts_of(p: Any) -> dict[str, Any]:
    """Return all metadata of a value, as texts and numbers."""
    if isinstance(p, SymbolicNumber):
        return {"number": p.text, "facts": id(p.facts)}
    if isinstance(p, TensorProxy):
        names = (*FIELDS, "declared_without_grad", "derived_strides", "seen_class", "hiding")
        facts = {name: getattr(p, name) for name in names if hasattr(p, name)}
    else:
        facts = dict(vars(p))
    return {"class": type(p), "type": p.type_string(), **{name: _plain(x) for name, x in facts.items()}}


def _plain(x: Any) -> Any:
    if isinstance(x, SymbolicNumber):
        return x.text
    if isinstance(x, tuple | list):
        return type(x), [_plain(y) for y in x]
    if is_proxy(x):
        return x.name
    return (type(x), x.hex()) if isinstance(x, float) else x


def line_of(source: Source | None) -> Any:
    """Return a line of a program with that of torch's module and the module's path."""
    return None if source is None else (source.file, source.line, source.module, line_of(source.inner))


def facts_of_call(bsym: BoundSymbol) -> list[tuple[str, Any]]:
    """Return what a call has beside its values, its symbol field by field."""
    sym = bsym.sym
    symbol = (type(sym), sym.id, sym.name, sym.meta, sym.executor, sym.python_impl, sym.call_path, sym.tags)
    return [
        ("symbol", symbol),
        ("tags", bsym.own_tags),
        ("header", bsym.header),
        ("line", line_of(bsym.source)),
        ("parts", len(bsym.subsymbols)),
        ("operands", [facts_of(p) for p in bsym.flat_proxy_args]),
        ("results", [facts_of(p) for p in bsym.flat_proxy_outs]),
    ]


def facts_of_program(trace: TraceCtx) -> dict[str, Any]:
    """Return what a trace has beside its statements and names."""
    return {
        "name": trace.name,
        "inputs": [facts_of(a) if is_proxy(a) else a for a in trace.args],
        "tags": trace.tags,
        "modes": (trace.grad_enabled, trace.star_args, trace.plain),
        "aliases": [[(a.proxy.name, a.stride, a.offset, a.storage) for a in g] for g in trace.input_aliases],
        "computed": (dict(trace.computed_inputs), dict(trace.input_forms)),
        "provenance": None if trace.provenance is None else trace.provenance.pss,
        "numbers": (trace._counter, trace._next_numbers),
        "text": str(trace),
    }


def differences(trace: TraceCtx, loaded: TraceCtx) -> list[str]:
    """Return in what a trace and the one that was read differ."""
    expected, found = facts_of_program(trace), facts_of_program(loaded)
    wrong = [f"{name}: {found[name]} for {value}" for name, value in expected.items() if found[name] != value]
    if not trace.names <= loaded.names:
        wrong.append(f"names: {trace.names - loaded.names} are free")
    calls, read = list(with_parts(trace.running_symbols)), list(with_parts(loaded.running_symbols))
    for a, b in zip(calls, read, strict=False):
        pairs = zip(facts_of_call(a), facts_of_call(b), strict=True)
        wrong += [f"{name} of {a.sym.name}: {y} for {x}" for (name, x), (_, y) in pairs if x != y]
    return wrong if len(calls) == len(read) else [*wrong, f"{len(read)} calls for {len(calls)}"]


def written_and_read(trace: TraceCtx) -> TraceCtx:
    """Return what is read of a trace; raise AssertionError if it is another one."""
    with tracectx(None):
        printed = dump(trace)
        loaded = load(printed.text, printed.constants)
        assert dump(loaded).text == printed.text, "the text of what is read is another one"
        wrong = differences(trace, loaded)
        sizes = {name: value for name, value in printed.constants.items() if name == SIZES}
        if not prints_what_is_read(trace, {**trace.python_ctx(), **sizes}):
            wrong.append("what it prints is read as another one")
    assert wrong == [], "\n".join(wrong[:5])
    return loaded


def prints_what_is_read(trace: TraceCtx, constants: dict[str, Any]) -> bool:
    """Return whether what is read of a printed text prints it; a printed text lacks types of some results."""
    try:
        return str(load(str(trace), constants)) == str(trace)
    except TraceTextError as error:
        return "has no type, and" in error.asked


def is_accepted(trace: TraceCtx) -> bool:
    """Return whether a trace is one that `check_trace` accepts: some tests make others."""
    with tracectx(None):
        try:
            _check(trace, check_meta=not trace.star_args)
        except TraceError:
            return bool(trace.running_symbols is not trace.bound_symbols)
    return True


@contextmanager
def running_what_is_read() -> Iterator[dict[str, str]]:
    """Within the context, each trace that becomes a function is written, and what is read runs.

    Yields the names of the traces that were read, by their texts.
    """
    seen: dict[str, str] = {}
    compile_it = TraceCtx.python_callable

    def python_callable(self: TraceCtx, **options: Any) -> Callable[..., Any]:
        if not is_accepted(self):
            return compile_it(self, **options)
        loaded = written_and_read(self)
        seen[str(self)] = self.name
        return compile_it(loaded, **options)

    def check_trace(trace: TraceCtx, **options: Any) -> None:
        _check(trace, **options)
        if str(trace) not in seen and is_accepted(trace):
            seen[str(trace)] = trace.name
            written_and_read(trace)

    users = [m for name, m in sys.modules.items() if name.startswith("thunder.") and _uses_check(name, m)]
    TraceCtx.python_callable = python_callable  # type: ignore[method-assign]
    for module in users:
        module.check_trace = check_trace  # type: ignore[attr-defined]
    try:
        yield seen
    finally:
        TraceCtx.python_callable = compile_it  # type: ignore[method-assign]
        for module in users:
            module.check_trace = _check  # type: ignore[attr-defined]


def _uses_check(name: str, module: Any) -> bool:
    return vars(module).get("check_trace") is _check and name != "thunder.ir.trace_reading"


#: tests that look at how often something is called, or how long it takes, which is other with it
OTHERS: tuple[str, ...] = ("test_many_compiles_keep_no_input_and_a_bounded_cache",)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests that see that traces are read."""
    assert thunder.jit is not None
    for item in items:
        if item.name.startswith(OTHERS):
            item.add_marker(pytest.mark.skip(reason="sees that traces are read"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Run a test with traces that are read."""
    with running_what_is_read():
        return (yield)
