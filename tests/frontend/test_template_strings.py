"""Template strings (PEP 750), the syntax of which CPython has from 3.14 on: their source is text here."""

import sys
from typing import Any

import pytest
import torch

import thunder
from thunder import UnsupportedProgram

pytestmark = pytest.mark.skipif(sys.version_info < (3, 14), reason="no template strings before CPython 3.14")

X = torch.tensor([1.0, 2.0])
SOURCE = """
from string.templatelib import Interpolation, Template

GLOBAL = t"g {3}"

def parts(x, n):
    t = t"a {x} b {n!r:>{n}}"
    texts = [(i.expression, i.conversion, i.format_spec) for i in t.interpolations]
    return t.interpolations[0].value * 2, t.strings, texts

def computed(x, n):
    return sum(v for v in t"{x}{x + n}".values)

def joined(x, n):
    return (t"{n}" + t"{x}").values[1] * n

def by_classes(x, n):
    t = Template("a", Interpolation(x * n, "x * n"), t"{n}".interpolations[0])
    return t, t.values[0] + 1, [type(part).__name__ for part in t]

def returned(x, n):
    return t"sum {x.sum()} of {n:>3}", [t"{x + 1!s}", t""]

def of_global(x, n):
    return x * GLOBAL.values[0]

def read(x, template):
    return x * template.values[0]
"""
NAMESPACE: dict[str, Any] = {}
if sys.version_info >= (3, 14):
    exec(SOURCE, NAMESPACE)


def plain(value: Any) -> Any:
    """Return a value in a form that can be compared."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if hasattr(value, "interpolations"):
        held = [(plain(i.value), i.expression, i.conversion, i.format_spec) for i in value.interpolations]
        return type(value).__name__, value.strings, held
    return list(map(plain, value)) if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("name", ["parts", "computed", "joined", "returned", "by_classes"])
def test_a_program_with_template_strings_does_what_eager_does(name: str):
    program = NAMESPACE[name]
    compiled = thunder.jit(program)
    for x in (X, X + 1):
        assert plain(compiled(x, 3)) == plain(program(x, 3))
    assert thunder.cache_misses(compiled) == 1


@pytest.mark.parametrize("name", ["of_global", "read"])
def test_a_template_string_of_the_caller_is_refused(name: str):
    with pytest.raises(UnsupportedProgram, match="is a Template, whose content thunder cannot read"):
        thunder.jit(NAMESPACE[name])(X, NAMESPACE["GLOBAL"])
