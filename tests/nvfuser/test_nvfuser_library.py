"""The library itself judges definitions, tables and dtypes: it defines them without a GPU, where it imports.

It exists for CPython 3.10 and 3.12. So that tests of another version can ask it, THUNDER_NVFUSER_PYTHON names
an interpreter that imports nvfuser_direct, with a CUDA build of torch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

import thunder
from nvfuser.test_nvfuser_attention import PROGRAMS as ATTENTION
from nvfuser.test_nvfuser_regions import PROGRAMS
from nvfuser.test_nvfuser_sizes import PROGRAMS as PROGRAMS_WITH_SIZES
from nvfuser.test_nvfuser_sorts import ROWS, ordered, running
from thunder_nvfuser import kernels
from thunder_nvfuser.data_types import DataType
from thunder_nvfuser.executor import replaying_executor
from thunder_nvfuser.library_options import DISABLE, DUMP, ENABLE
from thunder_nvfuser.operations import OPERATIONS
from thunder_nvfuser.recorder import RecordedDefinition

TOOL = Path(__file__).parents[2] / "tools" / "nvfuser_judge.py"
#: the library's names of dtypes
DTYPES = {member.value: member.name for member in DataType}
EVERYTHING: dict[str, Any] = {
    "nvfuser_products": True, "nvfuser_unchecked_indices": True, "nvfuser_sorts": True, "nvfuser_random": True
}  # fmt: skip


def interpreter() -> str | None:
    """The Python that imports the library: the one that is named, or this one."""
    named = os.environ.get("THUNDER_NVFUSER_PYTHON")
    if named or find_spec("nvfuser_direct") is None:
        return named
    return sys.executable


def recorded() -> list[RecordedDefinition]:
    """The definitions of programs of other tests: in two dtypes, with sizes, sorts, indices, products."""
    found: list[RecordedDefinition] = []
    record = kernels.recorded

    def noted(*arguments: Any) -> Any:
        result = record(*arguments)
        found.append(result.definition)
        return result

    kernels.recorded = noted
    try:
        for program, arguments in PROGRAMS.values():
            for dtype in (torch.float32, torch.bfloat16):
                compiled = thunder.jit(program, executors=[replaying_executor()], **EVERYTHING)
                compiled(*(a.to(dtype) if a.is_floating_point() else a for a in arguments))
        for with_sizes in PROGRAMS_WITH_SIZES.values():
            compiled = thunder.jit(with_sizes, executors=[replaying_executor()], cache="symbolic values")
            compiled(torch.randn(3, 5), torch.randn(5))
        for sorts in (running, ordered):
            thunder.jit(sorts, executors=[replaying_executor()], **EVERYTHING)(ROWS.bfloat16())
        x = torch.randn(2, 2, 8, 8, dtype=torch.bfloat16, requires_grad=True)
        compiled = thunder.jit(indexed, executors=[replaying_executor()], **EVERYTHING)
        compiled(x, torch.arange(8)).sum().backward()
        for attention in ATTENTION.values():
            compiled = thunder.jit(attention, executors=[replaying_executor()], **EVERYTHING)
            compiled(x, x * 1, x * 2).sum().backward()
    finally:
        kernels.recorded = record
    return found


def indexed(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Attention, products, and elements by index."""
    attention = torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True) * 2
    products = (attention.flatten(0, 2) @ x[0, 0]).index_select(0, index) + 1
    table = torch.nn.functional.embedding(index, products)
    return table.gather(1, index[:, None] * 0) * 2 + table.scatter(1, index[:, None], table)


@cache
def answers(python: str) -> tuple[list[RecordedDefinition], Any]:
    """Return definitions and what the library says of them."""
    definitions = recorded()
    environment = {n: value for n, value in os.environ.items() if n not in ("PYTHONPATH", "PYTHONHOME")}
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder, "definitions.json"), Path(folder, "answers.json")
        given.write_text(json.dumps([str(definition) for definition in definitions]))
        subprocess.run([python, str(TOOL), str(given), str(found)], env=environment, check=True)
        return definitions, json.loads(found.read_text())


@pytest.fixture
def judged() -> tuple[list[RecordedDefinition], Any]:
    """Definitions and the answers of the library, which is asked once."""
    python = interpreter()
    if python is None:
        pytest.skip("nvfuser_direct is not installed, and THUNDER_NVFUSER_PYTHON names no Python that has it")
    return answers(python)


def test_the_library_takes_every_definition_and_gives_its_values_the_dtypes_of_the_recorder(judged):
    definitions, found = judged
    assert len(definitions) > 40
    for definition, answer in zip(definitions, found["answers"], strict=True):
        assert "error" not in answer, f"{answer}\n{definition}"
        results = [value for call in definition.calls for value in call.results if value.is_tensor]
        expected = {value.name: DTYPES[value.dtype] for value in results}
        assert answer["dtypes"] == expected, str(definition)


def test_the_tables_are_those_of_the_library(judged):
    _, found = judged
    assert sorted(OPERATIONS) == found["operations"]
    known = {"ENABLE": ENABLE, "DISABLE": DISABLE, "DUMP": DUMP}
    assert {name: sorted(names) for name, names in known.items()} == found["options"]


def test_the_definitions_use_every_operation_that_the_recorder_computes(judged):
    definitions, _ = judged
    used = {call.method.removeprefix("ops.") for d in definitions for call in d.calls}
    assert len(used & set(OPERATIONS)) > 60
    assert {"sdpfa_fwd", "sdpfa_bwd"} <= used
