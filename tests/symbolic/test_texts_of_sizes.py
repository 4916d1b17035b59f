"""Texts of sizes: what is only shown is made in each call, what is read is a number of the program."""

import json
import os
import warnings
from types import SimpleNamespace

import pytest
import torch
from torch.utils import _pytree as pytree

import thunder
from sweeping import one_in


def shown(x, state):
    state.name = f"{x.shape[0]}x{x.shape[1]}"
    print(f"rows {x.shape[0]:>4}", x.shape[0] * 2)
    return x + 1, f"{x.shape[0]} rows", {"k": str(x.shape[0])}, "%d/%s" % (x.shape[0], x.numel())  # noqa: UP031


def shapes(x, state):
    longer = x.shape[:1] + (1,)  # noqa: RUF005
    return str(x.shape), f"{x.shape}", repr(x.size()), str(longer), str([x.shape[0], x.shape])


def warned(x, state):
    warnings.warn(f"n={x.shape[0]}", stacklevel=1)
    return x


def raised(x, state):
    if x.shape[0] > 5:
        raise ValueError(f"too many: {x.shape[0]}")
    return x


def asserted(x, state):
    assert x.shape[0] < 6, f"too many: {x.shape[0]}"
    return x


def handled(x, state):
    try:
        if x.shape[0] > 4:
            raise ValueError(f"too many: {x.shape[0]}")
    except ValueError as error:
        return x * 2, str(error), error.args[0], len(str(error))
    return x


def names_of_attributes(x, state):
    setattr(state, f"l{x.shape[0]}", 3)
    return x * getattr(state, f"l{x.shape[0]}"), sorted(vars(state))


def names_of_dtypes(x, state):
    return x.to(getattr(torch, f"float{x.shape[0] * 0 + 64}"))


def keys(x, state):
    table = {f"k{x.shape[0]}": 1}
    table[str(x.numel())] = x
    return table, list(table), f"k{x.shape[0]}" in table, ["4", "5"].count(str(x.shape[0]))


def read(x, state):
    text = f"{x.shape[0]}"
    return x * int(text), len(text), text.split("1"), "1" in text, [*text], hash(text) == hash(str(len(x)))


def operators(x, state):
    text = f"{x.shape[0]}"
    return text + "a", text * 2, text < "5", text.zfill(4), text.encode(), text[0], text.isdigit()


def formatted(x, state):
    n = x.shape[0]
    return f"{n:>5}|{n:05d}|{n!r:>4}|{n / 3:.2f}|{n=}", f"{n:.2f}", f"{x.shape!r:>30}", n.__str__()


def libraries(x, state):
    return os.path.join("a", str(x.shape[0])), json.dumps({"n": x.shape[0]}), ascii(str(x.shape[0]))


def collected(x, state):
    texts = [f"{x.shape[0]}"]
    texts.extend([str(len(x))] * 2)
    return texts, set(texts), ",".join(texts), dict.fromkeys(texts), texts.count("4")


PROGRAMS = [
    *(shown, shapes, warned, raised, asserted, handled, names_of_attributes, names_of_dtypes),
    *(keys, read, operators, formatted, libraries, collected),
]


def outcome(fn, rows, state, capsys):
    """Return everything that a call shows."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = fn(torch.ones(rows, 3), state)
        except (ValueError, AssertionError) as error:
            result = type(error), str(error), repr(error.args)
    leaves, structure = pytree.tree_flatten(result)
    values = [leaf.tolist() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    return values, structure, [str(w.message) for w in caught], vars(state), capsys.readouterr().out


@pytest.mark.parametrize("cache", ["automatic", "symbolic values"])
@pytest.mark.parametrize("program", one_in(3, PROGRAMS))
def test_texts_are_as_eager_has_them(program, cache, capsys):
    compiled = thunder.jit(program, executors=["torch"], cache=cache)
    for rows in (4, 5, 6, 10, 4):
        states = SimpleNamespace(), SimpleNamespace()
        assert outcome(compiled, rows, states[0], capsys) == outcome(program, rows, states[1], capsys)


@pytest.mark.parametrize("program", [shown, shapes, warned, names_of_dtypes])
def test_texts_that_are_shown_fix_no_size(program):
    compiled = thunder.jit(program, executors=["torch"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for rows in (4, 5, 6, 7, 8):
            compiled(torch.ones(rows, 3), SimpleNamespace())
    assert thunder.cache_misses(compiled) == 2
