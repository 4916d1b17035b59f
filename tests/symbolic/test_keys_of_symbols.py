"""Symbolic sizes are keys where the user's program uses them as keys, and nowhere in the compiler."""

import sys
from pathlib import Path

import pytest
import torch

import thunder
from symbolic.number_consumers import CONSUMERS, Layers
from symbolic.test_symbolic_programs import PROGRAMS
from thunder.ir.symbolic_numbers import SymbolicNumber
from thunder.ir.symbolic_sizes import SymbolicFloat, SymbolicInt

#: the modules that use keys for the program: displays of the interpreter, calls of native code
OF_PROGRAM = {"interpreter/handlers/containers.py", "frontend/natives/native_calls.py"}


@pytest.fixture
def hashing(monkeypatch):
    """The modules that ask a symbol for its hash."""
    modules = set()

    def note(self):
        modules.add("/".join(Path(sys._getframe(1).f_code.co_filename).parts).partition("/thunder/")[2])
        return SymbolicNumber.__hash__(self)

    monkeypatch.setattr(SymbolicInt, "__hash__", note)
    monkeypatch.setattr(SymbolicFloat, "__hash__", note)
    return modules


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_pass_and_no_operator_has_a_symbol_as_a_key(name, hashing):
    program, arguments, _ = PROGRAMS[name]
    compiled = thunder.jit(program, cache="symbolic values")
    compiled(*arguments(2, 3, 4))
    assert hashing <= OF_PROGRAM


def test_a_symbol_of_the_program_is_a_key(hashing):
    layers = Layers()
    for consumer in ("dict", "set", "dict of pairs", "membership"):
        compiled = thunder.jit(
            lambda x, f=CONSUMERS[consumer]: f(layers, x.shape[0], x), cache="symbolic values"
        )
        compiled(torch.ones(3))
    assert hashing == OF_PROGRAM
