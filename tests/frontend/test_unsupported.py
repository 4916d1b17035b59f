"""Programs that cannot be compiled: each row raises its class, names the user's line, and says what to do."""

from __future__ import annotations

import os
import runpy
import socket
import subprocess
import threading
import uuid
from collections.abc import Callable

import numpy
import pytest
import torch
from torch import nn

import thunder
from soundness.harness import ramp


def plain(x):
    return x * 2


def t_in_list(t, xs):
    return t in xs


def assertion(t):
    assert t.sum() > 0
    return t


def branch(t):
    if t.sum() > 0:
        return t
    return -t


def loop(t):
    while t.max():
        t = t - 1
    return t


def branch_on_item(t):
    if t.sum().item() > 0:
        return t
    return -t


def opened(t):
    with open("/dev/null") as f:
        return t * len(f.read())


def threaded(t):
    thread = threading.Thread(target=print)
    thread.start()
    return t


def leaf_written(t):
    w = nn.Parameter(torch.zeros(3))
    w.add_(1)
    return t + w


def data_assigned(t):
    y = t * 2
    y.data = t[:1]
    return y


def generator(t):
    yield t * 2


async def coroutine(t):
    return t * 2


MASK = torch.tensor([True, False, True])

#: The program, the class, the text of the line that the message must show, and words that it must contain.
PROGRAMS: dict[str, tuple[Callable[..., object], str, str, tuple[str, ...]]] = {
    "if": (branch, "DataDependentControlFlow", "if t.sum() > 0:", ("torch.where",)),
    "while": (loop, "DataDependentControlFlow", "while t.max():", ("torch.where",)),
    "assert": (assertion, "DataDependentControlFlow", "assert t.sum() > 0", ()),
    "in": (lambda t: t_in_list(t, [t + 1]), "DataDependentControlFlow", "return t in xs", ()),
    "sorted": (lambda t: sorted([t.sum(), t.max()]), "DataDependentControlFlow", "sorted(", ()),
    "not": (lambda t: not t.any(), "DataDependentControlFlow", "not t.any()", ()),
    "int": (lambda t: t * int(t.sum()), "DataDependentControlFlow", "int(t.sum())", ()),
    "float": (lambda t: t * float(t.sum()), "DataDependentControlFlow", "float(t.sum())", ()),
    "range": (lambda t: [t for _ in range(t.sum())], "DataDependentControlFlow", "range(t.sum())", ()),
    "item": (branch_on_item, "DataDependentControlFlow", "if t.sum().item() > 0:", ()),
    "tolist": (lambda t: t.tolist(), "UnsupportedProgram", "t.tolist()", ("after the call",)),
    "data_ptr": (lambda t: t.data_ptr(), "UnsupportedProgram", "t.data_ptr()", ("after the call",)),
    "asarray": (
        lambda t: numpy.asarray(t),
        "UnsupportedProgram",
        "numpy.asarray(t)",
        ("after the call",),
    ),
    "nonzero": (lambda t: t.nonzero(), "UnsupportedOperator", "t.nonzero()", ("depends on", "where")),
    "unique": (lambda t: torch.unique(t), "UnsupportedOperator", "torch.unique(t)", ("depends on",)),
    "mask": (lambda t: t[MASK], "UnsupportedOperator", "t[MASK]", ("masked_fill",)),
    "out": (
        lambda t: torch.add(t, 1, out=torch.zeros(7)),
        "UnsupportedProgram",
        "out=torch.zeros(7)",
        ("out", "another shape"),
    ),
    "shapes": (
        lambda t: t + torch.ones(7),
        "OperatorError",
        "t + torch.ones(7)",
        ("must match", "cpu f32[3]", "cpu f32[7]"),
    ),
    "matmul": (
        lambda t: t @ torch.ones(4, 4),
        "OperatorError",
        "t @ torch.ones(4, 4)",
        ("cpu f32[3]", "cpu f32[4, 4]"),
    ),
    "linear": (
        lambda t: nn.functional.linear(t, torch.ones(2, 5)),
        "OperatorError",
        "linear(",
        ("cpu f32[2, 5]",),
    ),
    "reshape": (
        lambda t: t.reshape(2, 2),
        "OperatorError",
        "t.reshape(2, 2)",
        ("invalid for input of size 3",),
    ),
    "index": (lambda t: t[5], "OperatorError", "t[5]", ("out of bounds",)),
    "cat": (lambda t: torch.cat([t, torch.ones(2, 2)]), "OperatorError", "torch.cat(", ()),
    "user id": (lambda t: t * os.getuid(), "SharpEdge", "os.getuid()", ("argument", "sharp_edges=")),
    "uuid": (
        lambda t: (t, {uuid.uuid4(): 1}),
        "UnsupportedProgram",
        "uuid.uuid4()",
        ("each call makes anew", "thunder.opaque"),
    ),
    "open": (opened, "SharpEdge", 'with open("/dev/null") as f:', ("sharp_edges=",)),
    "socket": (lambda t: (t, socket.socket()), "SharpEdge", "socket.socket()", ("sharp_edges=",)),
    "process": (
        lambda t: (t, subprocess.run(["true"])),
        "SharpEdge",
        "subprocess.run(",
        ("sharp_edges=",),
    ),
    "thread": (threaded, "SharpEdge", "thread", ("sharp_edges=",)),
    "resize": (lambda t: (t * 2).resize_(2), "UnsupportedProgram", "resize_(2)", ("resize_",)),
    "set": (lambda t: (t * 2).set_(t, 0, (1,)), "UnsupportedProgram", "set_(t, 0", ("set_",)),
    "assignment to data": (data_assigned, "UnsupportedProgram", "y.data = t[:1]", ("data",)),
    "torch.compile": (
        lambda t: torch.compile(plain)(t),
        "UnsupportedProgram",
        "torch.compile(plain)",
        ("Remove it",),
    ),
    "an iterator of a set": (
        lambda t: iter({1}),
        "UnsupportedProgram",
        "",
        ("set_iterator", "Return a list"),
    ),
    "a generator function": (generator, "UnsupportedProgram", "", ("generator", "list")),
    "a coroutine function": (coroutine, "UnsupportedProgram", "", ("async", "coroutine")),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_cannot_be_done_is_explained_with_its_line(name):
    program, error, line, words = PROGRAMS[name]
    with pytest.raises(getattr(thunder, error)) as caught:
        thunder.jit(program, data_dependent="refuse")(ramp(3))
    text = str(caught.value)
    if line:
        assert "test_unsupported.py:" in text, text
        assert line in text, text
        assert any(line in (entry[2] or "") for entry in caught.value.where), caught.value.where
    if name in ("a generator function", "a coroutine function"):
        words = words[:0] if any(word in text for word in words) else words
    missing = [word for word in words if word not in text]
    assert not missing, f"{missing} not in: {text}"


def test_a_refusal_shows_the_line_of_a_program_in_a_directory_that_is_named_thunder_demo(tmp_path):
    path = tmp_path / "thunder-demo" / "train.py"
    path.parent.mkdir()
    path.write_text("import sys\n\ndef train(x):\n    sys.stdout = None\n    return x + 1\n")
    with pytest.raises(thunder.UnsupportedProgram) as caught:
        thunder.jit(runpy.run_path(str(path))["train"])(ramp(3))
    assert f"{path}:4   sys.stdout = None" in str(caught.value)


def test_the_message_shows_the_tensor():
    with pytest.raises(thunder.DataDependentControlFlow) as caught:
        thunder.jit(branch, data_dependent="refuse")(ramp(3))
    assert "cpu b8[]" in str(caught.value)


def test_returning_an_item_is_fine():
    assert thunder.jit(lambda t: t.sum().item())(ramp(3)) == ramp(3).sum().item()


def test_an_operator_without_a_row_is_refused_by_name():
    def program(t):
        return torch.resize_as_sparse_(t, t)

    with pytest.raises(thunder.UnsupportedOperator) as caught:
        thunder.jit(program)(torch.eye(2))
    for word in (
        "resize_as_sparse_",
        "cpu f32[2, 2]",
        "return torch.resize_as_sparse_(t, t)",
        "test_unsupported.py:",
        "thunder.examine",
    ):
        assert word in str(caught.value)


def test_a_rare_operator_runs_eagerly_as_a_whole():
    compiled = thunder.jit(lambda t: torch.linalg.matrix_exp(t) + 1)
    for scale in (1, 2):
        assert torch.equal(compiled(torch.eye(2) * scale), torch.linalg.matrix_exp(torch.eye(2) * scale) + 1)
    assert thunder.cache_hits(compiled) == 1


def test_a_leaf_that_requires_grad_cannot_be_written_under_grad_mode():
    leaf = ramp(3).requires_grad_()
    with pytest.raises(thunder.OperatorError, match="a leaf Variable that requires grad"):
        thunder.jit(lambda t: t.add_(1))(leaf)


def test_a_program_that_nobody_executes_says_who_refused():
    thunder.extend.set_always_executors(["python"])
    try:
        compiled = thunder.jit(lambda t: torch.sin(t), executors=["python"])
    finally:
        thunder.extend.set_always_executors(None)
    with pytest.raises(thunder.NoExecutor) as caught:
        compiled(ramp(3))
    assert "sin" in str(caught.value)
    assert "python" in str(caught.value)


class Tagged(torch.Tensor):
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError(func)


def test_a_tensor_subclass_that_does_not_compute_raises_its_own_error():
    for fn in (plain, thunder.jit(plain)):
        with pytest.raises(NotImplementedError, match=r"aten\.mul|aten\.add|aten\.sin"):
            fn(ramp(3).as_subclass(Tagged))
