"""A text that is not a program of thunder is refused by name, and nothing of it runs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import thunder
from thunder_store.reasons import NotUsed
from thunder_store.run_text import read_program, write_program

RAN: list[str] = []


def note(text: str) -> None:
    """What a refused text would run."""
    RAN.append(text)


def program_of(fn: Any, *args: Any) -> dict[str, Any]:
    compiled = thunder.jit(fn, executors=["torch"])
    compiled(*args)
    trace = thunder.last_traces(compiled)[-1]
    return write_program(trace.python_callable(), trace.bound_symbols, lambda x: x)


def test_a_program_is_read_as_it_was() -> None:
    x = torch.randn(3)
    program = program_of(lambda x: torch.sin(x) * 2, x)
    torch.testing.assert_close(read_program(program, lambda j: j)(x), torch.sin(x) * 2)


HOSTILE = {
    "an import": ("import os\n", ""),
    "an import of a member": ("from os import system\n", ""),
    "a class": ("", "class A: pass"),
    "a function": ("", "def f(): pass"),
    "a lambda": ("", "y = lambda: 0"),
    "a loop": ("", "for a in x: pass"),
    "an exec": ("", "exec('note(1)')"),
    "an eval": ("", "y = eval('1')"),
    "an import by a call": ("", "y = __import__('os')"),
    "a class by an attribute": ("", "y = x.__class__"),
    "bases by an attribute": ("", "y = ().__class__.__bases__"),
    "a method": ("", "y = x.numpy()"),
    "a file of torch": ("", "y = torch.load('file')"),
    "a function of torch that is no operator": ("", "y = torch.compile(x)"),
    "a call of a call": ("", "y = torch.sin(x)(x)"),
    "a call of an item": ("", "y = [torch.sin][0](x)"),
    "a comprehension": ("", "y = [a for a in x]"),
    "a conditional": ("", "y = x if x else x"),
    "a walrus": ("", "y = (z := x)"),
    "a formatted text": ("", "y = f'{x}'"),
    "an await": ("", "y = await x"),
    "a global": ("", "global note"),
    "a deletion of an attribute": ("", "del x.grad"),
    "an assert": ("", "assert x"),
    "a name with a call": ("", "note('called')"),
}


#: the words with which statements are refused
_WORDS = r"^(the line|the statement|the expression|a call of|the attribute|a text|the name)"


@pytest.mark.parametrize("name", HOSTILE)
def test_a_foreign_statement_is_refused(name: str) -> None:
    program = program_of(lambda x: torch.sin(x) * 2, torch.randn(3))
    before, statement = HOSTILE[name]
    head, _, rest = program["text"].partition("def ")
    first, _, body = rest.partition("\n")
    program["text"] = f"{before}{head}def {first}\n  {statement or 'pass'}\n{body}"
    RAN.clear()
    with pytest.raises(NotUsed, match=_WORDS):
        read_program(program, lambda j: j)(torch.randn(3))
    assert RAN == []


FORMS = {
    "a module that is not torch's": ["module", "os"],
    "a function of another package": ["helper", "os", "system"],
    "a function of thunder that programs do not call": ["helper", "thunder.plugins.specs", "load_target"],
    "an operator that is not registered": ["operator", "torch.no_such", None, None],
    "a kind that is none": ["code", "1"],
    "a context that is none": ["context", "os"],
}


@pytest.mark.parametrize("name", FORMS)
def test_a_foreign_name_is_refused(name: str) -> None:
    program = program_of(lambda x: torch.sin(x) * 2, torch.randn(3))
    program["names"]["note"] = FORMS[name]
    with pytest.raises(NotUsed, match=r"is not|a function"):
        read_program(program, lambda j: j)


def test_a_decorator_and_a_default_are_refused() -> None:
    program = program_of(lambda x: torch.sin(x) * 2, torch.randn(3))
    text = program["text"]
    for wrong in (text.replace("def ", "@note\ndef ", 1), text.replace("(x):", "(x=note('default')):", 1)):
        assert wrong != text
        RAN.clear()
        with pytest.raises(NotUsed, match=r"decorator|defaults"):
            read_program({**program, "text": wrong}, lambda j: j)
        assert RAN == []
