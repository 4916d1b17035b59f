"""What an edited file replaces, for which calls, and what `thunder.diff` shows."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import thunder
from store.test_edited_programs import PROGRAMS, text_of
from store.text_edits import ILLEGAL, LEGAL
from thunder_store import EditedProgramError, EditedProgramWarning


def program(x: Any, w: Any) -> Any:
    h = torch.sin(x @ w)
    return h * 2, h


def inputs() -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(2, 3, requires_grad=True), torch.randn(3, 3, requires_grad=True)]


def compiled_program(fn: Any = program, **options: Any) -> Any:
    compiled = thunder.jit(fn, executors=["torch"], **options)
    compiled(*inputs())
    return compiled


def gradients(fn: Any) -> list[torch.Tensor]:
    args = inputs()
    a, b = fn(*args)
    return list(torch.autograd.grad(a.sum() + (b * b).sum(), args))


def forward_and_backward(compiled: Any) -> tuple[str, str]:
    return str(thunder.last_traces(compiled)[-1]), str(thunder.last_backward_traces(compiled)[-1])


@pytest.mark.parametrize("has", ["both", "forward", "backward"])
def test_a_forward_or_a_backward_is_taken_as_it_is(has: str, tmp_path: Path) -> None:
    compiled, path = compiled_program(), tmp_path / "edited.py"
    forward, backward = forward_and_backward(compiled)
    forward = forward.replace("t1 = torch.mul(h, 2)", "t1 = torch.add(h, h)")
    path.write_text(
        "\n\n".join({"both": [forward, backward], "forward": [forward], "backward": [backward]}[has])
    )
    replaced = compiled.use(path)
    assert replaced == tuple(
        name
        for name, is_in in (("computation", has != "backward"), ("backward_fn", has != "forward"))
        if is_in
    )
    torch.testing.assert_close(gradients(compiled), gradients(program))
    assert ("torch.add(h, h)" in str(thunder.last_traces(compiled)[-1])) is (has != "backward")


def test_a_backward_that_computes_other_gradients_is_refused_at_the_first_call(tmp_path: Path) -> None:
    compiled, path = compiled_program(), tmp_path / "edited.py"
    _, backward = forward_and_backward(compiled)
    assert "torch.cos(t0)" in backward
    path.write_text(backward.replace("torch.cos(t0)", "torch.sin(t0)"))
    thunder.use(compiled, path)
    with pytest.raises(EditedProgramError, match="gradient of input 0 differs by"):
        compiled(*inputs())
    assert thunder.use(compiled, None) == ()
    torch.testing.assert_close(gradients(compiled), gradients(program))


def test_without_check_an_edited_program_runs_as_it_is(tmp_path: Path) -> None:
    compiled, path = compiled_program(), tmp_path / "edited.py"
    text = str(thunder.last_traces(compiled)[0])
    path.write_text(text.replace("mul(h, 2)", "mul(h, 3)"))
    thunder.use(compiled, path, check=False)
    torch.testing.assert_close(compiled(*inputs())[0], program(*inputs())[1] * 3)


def test_what_a_forward_saves_has_to_be_what_the_backward_unpacks(tmp_path: Path) -> None:
    compiled, path = compiled_program(), tmp_path / "edited.py"
    forward, backward = forward_and_backward(compiled)
    last = forward.split("\n")[-1]
    assert ", t0), ()" in last
    path.write_text(forward.replace(", t0), ()", "), ()"))
    with pytest.raises(EditedProgramError, match="saves are not those that the backward unpacks"):
        thunder.use(compiled, path)
    path.write_text(forward.replace(", t0), ()", ", t0, h), ()") + "\n" + backward)
    with pytest.raises(EditedProgramError, match="saves are not those that the backward unpacks"):
        thunder.use(compiled, path)


def test_a_forward_may_save_more_for_an_edited_backward(tmp_path: Path) -> None:
    compiled, path = compiled_program(), tmp_path / "edited.py"
    forward, backward = forward_and_backward(compiled)
    forward = forward.replace(", t0), ()", ", h), ()")
    names = next(line for line in backward.split("\n") if line.endswith("= C0") or line.endswith(" = C0"))
    backward = backward.replace(names, names.replace("t0", "h")).replace('  # t0: "', '  # h: "')
    backward = backward.replace("torch.cos(t0)", "torch.sqrt(one_less)")
    lines = [line for line in backward.split("\n") if not re.match(" {4,}#|  del ", line)]
    at = next(i for i, line in enumerate(lines) if "torch.sqrt(one_less)" in line)
    lines[at:at] = ["  square = ltorch.mul(h, h)", "  one_less = ltorch.rsub(square, 1)"]
    path.write_text(forward + "\n" + "\n".join(lines))
    x = torch.full((2, 3), 0.1, requires_grad=True)  # where the cosine is positive
    w = torch.full((3, 3), 0.2, requires_grad=True)
    compiled.use(path)
    expected = torch.autograd.grad(program(x, w)[0].sum(), [x, w])
    torch.testing.assert_close(torch.autograd.grad(compiled(x, w)[0].sum(), [x, w]), expected)


def test_an_edited_program_is_not_used_for_other_inputs_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "edited.py"
    path.write_text(str(thunder.last_traces(compiled_program())[0]).replace("mul(h, 2)", "mul(2, h)"))
    compiled = compiled_program(program=path)
    assert thunder.last_traces(compiled)[0].provenance.pss == "Edited program"
    with pytest.warns(
        EditedProgramWarning, match="x is .cpu f32.2, 3.., and x of the program .cpu f32.5, 3.."
    ):
        result = compiled(torch.ones(5, 3), inputs()[1])
    torch.testing.assert_close(result, program(torch.ones(5, 3), inputs()[1]))
    assert "is not used" in str(thunder.explain(compiled))
    with pytest.warns(EditedProgramWarning, match="is not used"):
        result = compiled(torch.ones(7, 3), inputs()[1])  # the third size makes it a symbol
    torch.testing.assert_close(result, program(torch.ones(7, 3), inputs()[1]))
    compiled(*inputs())
    assert thunder.last_traces(compiled)[0].provenance.pss == "Edited program"


def test_a_file_that_is_for_no_entry_is_an_error(tmp_path: Path) -> None:
    path, other = tmp_path / "edited.py", thunder.jit(program, executors=["torch"])
    path.write_text(str(thunder.last_traces(compiled_program())[0]))
    with pytest.raises(EditedProgramError, match="it was not called yet"):
        other.use(path)
    other(torch.ones(5, 3), torch.ones(3, 3))
    with pytest.raises(EditedProgramError, match=r"f32.5, 3"):
        other.use(path)
    with pytest.raises(EditedProgramError, match="cannot be read"):
        other.use(tmp_path / "missing.py")


def test_modules_have_the_method_and_keep_their_own(tmp_path: Path) -> None:
    class Own(torch.nn.Linear):
        def use(self) -> str:
            return "own"

    path, x = tmp_path / "edited.py", torch.ones(2, 3)
    model = thunder.jit(torch.nn.Linear(3, 2), executors=["torch"])
    model(x)
    path.write_text(str(thunder.last_traces(model)[0]))
    assert model.use(path) == ("computation",)
    torch.testing.assert_close(model(x), model._model(x))
    assert thunder.jit(Own(3, 2)).use() == "own"


# -- differences ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_difference_is_what_was_edited(name: str) -> None:
    text = text_of(name, "acquired")
    assert not thunder.diff(text, text)
    expected = {
        "rename": set(),
        "reorder": {"moved"},
        "add a dead statement": {"added"},
        "delete a dead statement": {"removed"},
        "another constant": {"changed"},
        "a dropped result": {"changed"},
        "another argument": {"changed"},
    }
    for what, kinds in expected.items():
        edited = {**LEGAL, **ILLEGAL}[what](text, random.Random(name))
        if edited is None:
            continue
        found = thunder.diff(text, edited)
        assert {change.kind for change in found.changes} == kinds, f"{what}\n{found}"
        assert all(change.details for change in found.changes if change.kind == "changed")


def test_a_difference_shows_both_texts_and_what_changed() -> None:
    compiled = compiled_program()
    before = thunder.last_traces(compiled)[0]
    found = thunder.diff(before, str(before).replace("sin(t0)", "cos(t0)"))
    (change,) = found.changes
    assert change.before is not None
    assert change.after is not None
    assert (change.before.operator, change.after.operator) == ("ltorch.sin", "ltorch.cos")
    assert "operator ltorch.sin → ltorch.cos" in str(found)
    assert str(found).count("t0") == 2
    assert str(thunder.diff(compiled, compiled)) == "no difference"
    assert len(thunder.diff(before, compiled).functions) == 2


def test_equal_writes_are_different_statements(tmp_path: Path) -> None:
    """Each call of a normalisation in training counts by a statement that reads the same by name."""
    torch.manual_seed(0)
    norm, twin = torch.nn.BatchNorm1d(3), torch.nn.BatchNorm1d(3)
    compiled = thunder.jit(lambda x: norm(norm(x) * 2), executors=["torch"])
    x, path = torch.randn(4, 3), tmp_path / "edited.py"
    compiled(x)
    path.write_text(str(thunder.last_traces(compiled)[0]).replace("mul(t2, 2)", "mul(2, t2)"))
    thunder.use(compiled, path)
    twin(twin(x) * 2)
    torch.testing.assert_close(compiled(x), twin(twin(x) * 2))
    torch.testing.assert_close(dict(norm.named_buffers()), dict(twin.named_buffers()))
