"""Programs that cannot be compiled: each names the user's line, and the way out.

Most of the catalogue of programs is in `frontend/test_unsupported.py`; here is what needs more than a
function of a tensor.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import thunder
from errors import faulty_extensions as faulty

LIBRARY = torch.library.Library("errors_toys", "DEF")
LIBRARY.define("no_fake(Tensor x) -> Tensor")
LIBRARY.impl("no_fake", lambda x: x.clone(), "CPU")
LIBRARY.define("writes(Tensor(a!) x, Tensor y) -> ()")
LIBRARY.impl("writes", lambda x, y: None, "CPU")

plain = faulty.executor("errors_plain")
no_rule = faulty.operator(plain, "no_rule")
nobody = plain.register_operator("nobody", meta=faulty.like, replace=True)


def square(x):
    return (x * x).sum()


def checkpointed(x):
    return torch.utils.checkpoint.checkpoint(lambda y: [y.sin()], x, use_reentrant=True)


#: The program, the class, the text of the line that the message must show, and words that it must contain.
PROGRAMS: dict[str, tuple[Callable[..., object], str, str, tuple[str, ...]]] = {
    "item in torch.vmap": (
        lambda x: torch.vmap(lambda e: e.item())(x.flatten()),
        "UnsupportedProgram",
        "torch.vmap(",
        ("vmap over a call of prims.item", "outside"),
    ),
    "reentrant checkpointing of a list": (
        checkpointed,
        "UnsupportedProgram",
        "use_reentrant=True",
        ("use_reentrant=False",),
    ),
    "a Function whose forward is not static": (
        lambda x: faulty.NotStatic.apply(x),
        "UnsupportedProgram",
        "faulty.NotStatic.apply(x)",
        ("static",),
    ),
    "data_ptr": (lambda x: x.data_ptr(), "UnsupportedProgram", "x.data_ptr()", ()),
    "a custom operator without a fake implementation": (
        lambda x: torch.ops.errors_toys.no_fake(x),
        "UnsupportedOperator",
        "torch.ops.errors_toys.no_fake(x)",
        ("no_fake", "register_fake"),
    ),
    "a custom operator that writes to memory of another argument": (
        lambda x: torch.ops.errors_toys.writes(x[0], x),
        "UnsupportedOperator",
        "torch.ops.errors_toys.writes(x[0], x)",
        ("writes", "share"),
    ),
    "an operator without a gradient": (
        lambda x: no_rule(x),
        "MissingGradient",
        "no_rule(x)",
        ("errors_plain.no_rule", "grad_transform", "detach"),
    ),
    "an operator that no executor implements": (
        lambda x: nobody(x.detach()),
        "NoExecutor",
        "nobody(x.detach())",
        ("errors_plain.nobody", "torch"),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_cannot_be_done_is_explained_with_its_line(name: str) -> None:
    program, error, line, words = PROGRAMS[name]
    with pytest.raises(getattr(thunder, error)) as caught:
        thunder.jit(program)(torch.ones(3, requires_grad=True))
    text = str(caught.value)
    missing = [word for word in (line, *words) if word not in text]
    assert not missing, f"{missing} not in: {text}"
    if line:
        assert "test_programs.py:" in text
        assert any(line in (entry.text or "") for entry in caught.value.where), caught.value.where


@pytest.mark.parametrize(
    "name",
    ["item in torch.vmap", "reentrant checkpointing of a list"],
)
def test_later_calls_work(name: str) -> None:
    """A refused program leaves no state that a later call would see."""
    reason = "use_reentrant=True" if name == "reentrant checkpointing of a list" else "vmap over a call"
    with pytest.raises(thunder.UnsupportedProgram, match=reason):
        thunder.jit(PROGRAMS[name][0])(torch.ones(3, requires_grad=True))
    x = torch.ones(3, requires_grad=True)
    thunder.jit(square)(x).backward()
    assert torch.equal(x.grad, torch.full((3,), 2.0))
