"""The forms of a forward and a backward, as transforms and readers rely on them."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import thunder
from comparison.inputs import leaf
from thunder.autograd.saved_tensors import get_saved_for_backward_tensors
from thunder.ir.trace import TraceTag
from thunder.ops import prims

SOURCE = """\
def f(x, w):
    y = torch.sin(x)
    return y + w
"""

FORWARD = """\
# Constructed by Delete Last Used (took N milliseconds)
import torch
from thunder.executors.torchex import no_autocast

@torch.no_grad()
@no_autocast
def computation(x, w):
  # x: "cpu f32[4]"
  # w: "cpu f32[4]"

  # model.py:2: \t    y = torch.sin(x)
  y = torch.sin(x)  # y: "cpu f32[4]"
    # y = ltorch.sin(x)  # y: "cpu f32[4]"
      # y = prims.sin(x)  # y: "cpu f32[4]"

  # model.py:3: \t    return y + w
  t0 = torch.add(y, w, alpha=1)  # t0: "cpu f32[4]"
    # t0 = ltorch.add(y, w, alpha=1)  # t0: "cpu f32[4]"
      # t0 = prims.add(y, w)  # t0: "cpu f32[4]"
  del y
  return {'output': t0, 'flat_args': [x, w], 'flat_output': (t0,)}, ((x,), ())
"""

BACKWARD = """\
# Constructed by Delete Last Used (took N milliseconds)
import torch
from thunder.executors.torchex import no_autocast

@torch.no_grad()
@no_autocast
def backward_fn(saved_for_backward, cotangents):
  # saved_for_backward: "Collection"
  # cotangents: "Collection"
  C0, C1, = saved_for_backward
  # C0: "Collection"
  # C1: "Collection"
  clear_mutable_collection(C1)
  clear_mutable_collection(saved_for_backward)
  del C1, saved_for_backward
  a0, = cotangents
  # a0: "cpu f32[4]"
  clear_mutable_collection(cotangents)
  del cotangents
  x, = C0
  # x: "cpu f32[4]"
  clear_mutable_collection(C0)
  del C0
  y_1 = torch.cos(x)  # y_1: "cpu f32[4]"
    # y_1 = ltorch.cos(x)  # y_1: "cpu f32[4]"
      # y_1 = prims.cos(x)  # y_1: "cpu f32[4]"
  del x
  y_2 = torch.mul(a0, y_1)  # y_2: "cpu f32[4]"
    # y_2 = ltorch.mul(a0, y_1)  # y_2: "cpu f32[4]"
      # y_2 = prims.mul(a0, y_1)  # y_2: "cpu f32[4]"
  del y_1
  return (y_2, a0)
"""


def renumbered(text: str) -> str:
    """The text with t-names as a0, a1, … in the order in which they first appear."""
    names = dict.fromkeys(re.findall(r"\bt\d+\b", text))
    new = {name: f"a{i}" for i, name in enumerate(names)}
    return re.sub(r"\bt\d+\b", lambda m: new[m.group()], text)


def shown(trace: Any) -> str:
    return re.sub(r"took \d+ milliseconds", "took N milliseconds", str(trace)).strip() + "\n"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module ``model.py``."""
    path = tmp_path / "model.py"
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("model", path)
    module = importlib.util.module_from_spec(spec)
    module.torch = torch
    monkeypatch.setitem(sys.modules, "model", module)
    spec.loader.exec_module(module)
    return module


def test_the_sample_prints_as_it_is_documented(model: Any) -> None:
    compiled = thunder.jit(model.f)
    compiled(*(torch.rand(4, requires_grad=True) for _ in range(2))).sum().backward()
    forward = shown(thunder.last_traces(compiled)[-1]).replace(str(Path(model.__file__)), "model.py")
    assert forward == FORWARD
    assert renumbered(shown(thunder.last_backward_traces(compiled)[-1])) == BACKWARD


def several(x, w, i):
    h = torch.exp(x @ w)
    return {"h": h, "all": [torch.tanh(h), x[i]]}, i


def compiled_and_called() -> tuple[Any, Any]:
    compiled = thunder.jit(several, rematerialization="none")
    arguments = leaf(3, 3), leaf(3, 3, seed=1), torch.tensor([0, 2])
    return compiled, compiled(*arguments)


def test_the_saved_tensors_are_the_outputs_of_one_unpacking() -> None:
    compiled, _ = compiled_and_called()
    for forward, backward in (
        (thunder.last_traces(compiled)[-1], thunder.last_backward_traces(compiled)[-1]),
        (thunder.last_traces(compiled)[-3], thunder.last_backward_traces(compiled)[0]),
    ):
        saved = [p.name for p in get_saved_for_backward_tensors(forward)]
        unpackings = [
            [p.name for p in b.output] for b in backward.bound_symbols if b.sym.id == prims.unpack_sequence.id
        ]
        assert saved in unpackings


def test_the_forward_returns_two_arguments() -> None:
    compiled, _ = compiled_and_called()
    forward = thunder.last_traces(compiled)[-1]
    end = forward.bound_symbols[-1]
    assert end.sym.id == prims.python_return.id
    result, (tensors, others) = end.args
    assert list(result) == ["output", "flat_args", "flat_output"]
    assert [p.name for p in result["flat_args"]] == [p.name for p in forward.args] == ["x", "w", "i"]
    assert isinstance(tensors, tuple)
    assert others == ()


def test_what_is_returned_and_saved_is_saved_under_another_name() -> None:
    compiled, _ = compiled_and_called()
    forward = thunder.last_traces(compiled)[-1]
    result, (tensors, _) = forward.bound_symbols[-1].args
    arguments = {p.name for p in forward.args}
    returned, saved = {p.name for p in result["flat_output"]} - arguments, {p.name for p in tensors}
    assert returned.isdisjoint(saved)
    copies = [b for b in forward.bound_symbols if "shallow_copy" in b.sym.name]
    assert "h" in {b.args[0].name for b in copies} <= returned
    assert {b.output.name for b in copies} <= saved


def test_the_backward_returns_one_gradient_or_none_per_argument() -> None:
    compiled, _ = compiled_and_called()
    backward = thunder.last_backward_traces(compiled)[-1]
    assert [a.name for a in backward.args] == ["saved_for_backward", "cotangents"]
    (gradients,) = backward.bound_symbols[-1].args
    assert [g is None for g in gradients] == [False, False, True]


def test_forward_and_backward_are_told_apart_by_tags() -> None:
    compiled, _ = compiled_and_called()
    forward, backward = thunder.last_traces(compiled), thunder.last_backward_traces(compiled)
    assert TraceTag.AUGMENTED_FORWARD in forward[-1].tags
    assert TraceTag.BACKWARD not in forward[-1].tags
    assert all(TraceTag.BACKWARD in t.tags for t in backward)
    assert not any(TraceTag.AUGMENTED_FORWARD in t.tags for t in backward)
    with torch.no_grad():
        compiled(leaf(3, 3), leaf(3, 3, seed=1), torch.tensor([0, 2]))
    assert thunder.last_backward_traces(compiled) == []
    assert thunder.last_traces(compiled)[-1].tags.isdisjoint({TraceTag.AUGMENTED_FORWARD, TraceTag.BACKWARD})


def test_the_stages_of_a_training_compile_are_on_record() -> None:
    compiled, _ = compiled_and_called()
    provenance = [t.provenance.pss for t in thunder.last_traces(compiled)]
    assert provenance[0] == "Acquisition"
    expected = ["Grad transform", "Partition", "Transform for execution", "Delete Last Used"]
    assert provenance[-4:] == expected
    assert [t.provenance.pss for t in thunder.last_backward_traces(compiled)] == expected[1:]
    with torch.no_grad():
        compiled(leaf(3, 3), leaf(3, 3, seed=1), torch.tensor([0, 2]))
    assert "Grad transform" not in [t.provenance.pss for t in thunder.last_traces(compiled)]


def test_values_that_are_computed_again_are_named_bw() -> None:
    def program(x, w):
        return torch.sin(x * 2 + 1) * w

    compiled = thunder.jit(program)
    compiled(leaf(64, 64), leaf(64, 64, seed=1)).sum().backward()
    names = {
        p.name for b in thunder.last_backward_traces(compiled)[-1].bound_symbols for p in b.flat_proxy_outs
    }
    assert any(n.startswith("bw_") for n in names)


def test_each_backward_deletes_and_clears() -> None:
    compiled, _ = compiled_and_called()
    ids = [b.sym.name for b in thunder.last_backward_traces(compiled)[-1].bound_symbols]
    assert "python_del" in ids or "del" in " ".join(ids)
    assert any("clear_mutable_collection" in i for i in ids)


def test_the_text_of_a_compile_is_the_same_each_time() -> None:
    def texts() -> list[str]:
        compiled, _ = compiled_and_called()
        traces = [*thunder.last_traces(compiled), *thunder.last_backward_traces(compiled)]
        return [t.python(include_timing=False) for t in traces]

    assert texts() == texts()


# -- inspection ----------------------------------------------------------------------------------------------


def test_explain_has_rows_of_forward_and_backward() -> None:
    compiled, _ = compiled_and_called()
    rows = thunder.explain(compiled).rows
    assert {row.trace for row in rows} == {"forward", "backward"}
    forward = [row for row in rows if row.trace == "forward" and row.claimed_by == "torch"]
    assert any(row.symbol == "torch.exp" and "torch.exp(x @ w)" in row.source.text for row in forward)
    assert any(row.claimed_by == "torch" for row in rows if row.trace == "backward")
    assert "backward" in str(thunder.explain(compiled))


def test_the_last_entrys_backward_is_shown_after_a_hit_on_another() -> None:
    compiled = thunder.jit(lambda x: torch.sin(x) * 2)
    compiled(leaf(3))
    backward = thunder.last_backward_traces(compiled)
    compiled(leaf(4, grad=False))
    assert thunder.last_backward_traces(compiled) == []
    compiled(leaf(3))
    assert thunder.last_backward_traces(compiled) == backward
    assert (thunder.cache_hits(compiled), thunder.cache_misses(compiled)) == (1, 2)


def test_training_calls_hit_the_cache() -> None:
    model = torch.nn.Linear(3, 2)
    compiled = thunder.jit(model)
    for _ in range(4):
        compiled(torch.rand(2, 3)).sum().backward()
    assert (thunder.cache_hits(compiled), thunder.cache_misses(compiled)) == (3, 1)


def test_a_backward_prints_no_lines_and_the_ledger_knows_them():
    def program(x):
        return torch.tanh(x)

    jf = thunder.jit(program)
    jf(torch.randn(3, requires_grad=True))
    backward = thunder.last_backward_traces(jf)[-1]
    assert "test_traces.py" not in str(backward)
    rows = [r for r in thunder.explain(jf).rows if r.trace == "backward" and r.claimed_by == "torch"]
    assert rows
    assert {row.source.line for row in rows} == {program.__code__.co_firstlineno + 1}
