"""Warm call: CPU microseconds of one call of a compiled stack of tiny linear layers, in inference.

    python benchmarks/warm_call.py [--layers 1 10 100] [--ways thunder compile] [--repeats N]

The layers are 4 wide, so what is measured is what stands around the arithmetic. "bare" is the function that
thunder generated, called on the values that its prologue returned; the overhead of a way is its time minus
that. Each size is measured in a process of its own; all ways of a size are timed in turn in that process.
"""

from __future__ import annotations

import torch

from warm import Call, compare


def eager_calls(model: torch.nn.Module, x: torch.Tensor) -> dict[str, Call]:
    """The model itself."""
    return {"eager": lambda: model(x)}


def thunder_calls(model: torch.nn.Module, x: torch.Tensor) -> dict[str, Call]:
    """thunder fully guarded, with a frozen model, in "same input" mode; the bare generated function."""
    # Imported here, not above: a run without this way needs no thunder.
    import thunder

    guarded, frozen = thunder.jit(model), thunder.jit(model, frozen=True)
    promised = thunder.jit(model, cache="same input")
    expected = model(x)
    for compiled in (guarded, frozen, promised):
        torch.testing.assert_close(compiled(x), expected)
    statistics = thunder.compile_stats(guarded)
    assert statistics is not None, "what jit returns has statistics"
    entry = statistics.interpreter_cache[-1]
    inputs, _ = entry.prologue_fn(x)
    computation = entry.computation_fn
    return {
        "thunder": lambda: guarded(x),
        "thunder, frozen": lambda: frozen(x),
        'thunder, "same input"': lambda: promised(x),
        "bare": lambda: computation(*inputs),
    }


def compile_calls(model: torch.nn.Module, x: torch.Tensor) -> dict[str, Call]:
    """torch.compile with its default backend."""
    compiled = torch.compile(model)
    torch.testing.assert_close(compiled(x), model(x))
    return {"torch.compile": lambda: compiled(x)}


WAYS = {"eager": eager_calls, "thunder": thunder_calls, "compile": compile_calls}

if __name__ == "__main__":
    with torch.no_grad():
        compare(__doc__, __file__, WAYS, base="bare")
