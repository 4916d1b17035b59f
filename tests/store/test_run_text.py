"""A text that is not a program of thunder is refused by name, and nothing of it runs."""

from __future__ import annotations

import ast
import random
from typing import Any

import pytest
import torch

import thunder
from sweeping import one_in
from thunder_store.reasons import NotUsed
from thunder_store.run_text import read_program, write_program
from thunder_store.text_checks import check_text

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
    "a name of another line": ("", "_0_.grad = x"),
    "a write to torch": ("", "torch.load = x"),
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


#: what may replace or precede a character of a text
_PIECES = (
    *("'", '"', "'''", "\\", "\\\n", "\n", "\r", "\f", "\t", ";", ":", "(", ")", "[", "]", "{", "}", "#"),
    *("@", " ", ".", ",", "=", ":=", "*", "**", "t1", "x2", "_0_", " if ", " for ", "lambda: ", "await "),
    *("f'", "b'", "note", "note(1)", "open(t1)", "__class__", ".t1", ". t1", "t1 (", "\n  import os\n"),
    "\ndef f(): pass\n",
)
_ALLOWED = (
    *(ast.Module, ast.Import, ast.ImportFrom, ast.alias, ast.FunctionDef, ast.arguments, ast.arg, ast.Assign),
    *(
        ast.Expr,
        ast.Delete,
        ast.Return,
        ast.Pass,
        ast.With,
        ast.withitem,
        ast.Tuple,
        ast.List,
        ast.Set,
        ast.Dict,
    ),
    *(ast.UnaryOp, ast.BinOp, ast.Compare, ast.Subscript, ast.Starred, ast.Slice, ast.Constant, ast.Name),
    *(ast.Call, ast.keyword, ast.Attribute, ast.expr_context, ast.operator, ast.unaryop, ast.cmpop),
)


def layered(x: torch.Tensor, w1: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        x = torch.nn.functional.layer_norm(torch.sin(x @ w1) + x, (4,), eps=1e-05) * 2.5
    return torch.cat([x, x], dim=0).reshape(2, -1)[:, 1:]


def changed(rng: random.Random, text: str) -> str:
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(text))
        kind = rng.randrange(4)
        if kind == 0:
            text = text[:place] + rng.choice(_PIECES) + text[place:]
        elif kind == 1:
            text = text[:place] + rng.choice(_PIECES) + text[place + 1 :]
        elif kind == 2:
            text = text[:place] + text[place + rng.randint(1, 5) :]
        else:
            other = rng.randrange(len(text))
            text = text[:place] + text[other : other + rng.randint(1, 30)] + text[place:]
    return text


@pytest.mark.parametrize("seed", one_in(20, range(200)))
def test_a_text_that_passes_has_calls_of_operators_and_nothing_else(seed: int) -> None:
    """The judge is the syntax tree of the whole text; the check looks at one line at a time."""
    rng = random.Random(seed)
    program = program_of(layered, torch.randn(4, 4), torch.randn(4, 4))
    called = {c for path in program["paths"] for c in (path, path.removeprefix("torch."))}
    called |= {name for name, form in program["names"].items() if form[0] in ("operator", "context")}
    passed = 0
    for _ in range(300):
        text = changed(rng, program["text"])
        try:
            check_text({**program, "text": text})
            tree = ast.parse(text)
        except (NotUsed, SyntaxError, ValueError):
            continue
        passed += 1
        assert [type(s) for s in tree.body][-1] is ast.FunctionDef, text
        for node in ast.walk(tree):
            assert isinstance(node, _ALLOWED), (type(node), text)
            if isinstance(node, ast.Call):
                callee = ast.unparse(node.func)
                assert callee in called or callee in ("torch.no_grad", "slice", "torch.Size"), (callee, text)
            if isinstance(node, ast.Attribute):
                full = ast.unparse(node)
                assert (
                    full in called
                    or any(c.startswith(f"{full}.") for c in called)
                    or (full in ("torch.no_grad", "torch.float32", "torch.Size"))
                ), (full, text)
    assert passed, "changes of numbers and names pass"
