"""Blocks below torch's autograd: which calls are in them, and that nobody can see the difference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import thunder
from thunder.core.tags import OpTags
from thunder.core.transform import Transform
from thunder.extend import OperatorExecutor
from thunder.ir.symbol import Symbol
from thunder.ir.trace import with_bound_symbols
from thunder.passes import below_autograd

EXCLUDED = torch._C._dispatch_tls_is_dispatch_key_excluded
KEY = torch._C.DispatchKey.ADInplaceOrView


@pytest.fixture
def short(monkeypatch):
    """A block may have one call."""
    monkeypatch.setattr(below_autograd, "SHORTEST", 1)


def x() -> torch.Tensor:
    return torch.linspace(0.1, 2.4, 24, dtype=torch.float64).reshape(4, 6)


def chain(a: torch.Tensor, n: int = 9) -> torch.Tensor:
    for _ in range(n):
        a = torch.sin(a)
    return a


def text(compiled: Any) -> str:
    return str(thunder.last_traces(compiled)[-1])


def blocks(compiled: Any) -> list[list[str]]:
    """Return the names of the calls of each block."""
    found: list[list[str]] = []
    inside = False
    for bsym in thunder.last_traces(compiled)[-1].bound_symbols:
        if bsym.sym.name == "below_autograd":
            found.append([])
            inside = True
        elif bsym.sym.name == "end_below_autograd":
            inside = False
        elif inside and bsym.sym.name != "python_del":
            found[-1].append(bsym.sym.name)
    return found


def compiled_and_run(f: Callable[..., Any], *args: Any, **options: Any) -> tuple[Any, Any]:
    """Return the compiled function and the result of a call that compiles nothing."""
    compiled = thunder.jit(f, executors=["torch"], **options)
    with torch.no_grad():
        compiled(*args)
        result = compiled(*args)
    assert thunder.cache_misses(compiled) == 1
    return compiled, result


# -- the statement -------------------------------------------------------------------------------------------


def test_the_printed_program_has_the_block():
    compiled, _ = compiled_and_run(lambda a: chain(a.view(-1), 8).view(4, 6), x())
    lines = [
        line for line in text(compiled).splitlines() if line.strip() and not line.strip().startswith("#")
    ]
    begin = lines.index("  with below_autograd():")
    names = [line.split(" = ")[1].split("(")[0] for line in lines[begin + 1 :] if " = " in line]
    assert names == ["Tensor.view", *["torch.sin"] * 7, "torch.sin", "Tensor.view"]
    indented = [line for line in lines[begin + 1 :] if line.startswith("    ") and " = " in line]
    # the result is a view of the last sine, which torch's own kernel computes below autograd anyway
    assert len(indented) == 9
    assert lines[-1].startswith("  return")


def test_the_printed_program_alone_does_the_same():
    compiled, result = compiled_and_run(chain, x())
    program = thunder.last_traces(compiled)[-1].python_callable()
    with torch.no_grad():
        (again,) = torch.utils._pytree.tree_leaves(program(x()))
    assert torch.equal(again, result)
    assert torch.equal(again, chain(x()))
    assert not EXCLUDED(KEY)


def test_a_short_program_has_none():
    compiled, _ = compiled_and_run(lambda a: chain(a, 7), x())
    assert blocks(compiled) == []
    assert "below autograd" not in str(thunder.explain(compiled))


def test_calls_run_below_autograd():
    seen = []

    def watched(a: torch.Tensor) -> torch.Tensor:
        seen.append(EXCLUDED(KEY))
        return torch.sin(a)

    compiled, _ = compiled_and_run(chain, x())
    trace = thunder.last_traces(compiled)[-1]
    statements = [
        b.from_bsym(sym=replace(b.sym, call_path=None, call_target=None, python_impl=watched))
        if b.sym.name == "sin"
        else b
        for b in trace.bound_symbols
    ]
    with torch.no_grad():
        with_bound_symbols(trace, statements, "Watched").python_callable()(x())
    assert seen == [True] * 9


def test_an_error_leaves_the_block():
    table = torch.eye(3)
    compiled, _ = compiled_and_run(lambda i, t: chain(F.embedding(i, t)), torch.tensor([1]), table)
    assert len(blocks(compiled)[0]) == 10
    with torch.no_grad(), pytest.raises(IndexError, match="out of range"):
        compiled(torch.tensor([7]), table)
    assert not EXCLUDED(KEY)
    assert torch.ones(1, requires_grad=True).sin().requires_grad


# -- what is in no block -------------------------------------------------------------------------------------


def test_a_program_with_gradients_on_has_none_and_says_why():
    def f(a):
        return chain(a).detach()

    a = x().requires_grad_()
    compiled = thunder.jit(f, executors=["torch"])
    assert torch.equal(compiled(a), f(a))
    assert blocks(compiled) == []
    assert "not: gradients are on" in str(thunder.explain(compiled))


def test_a_forward_has_a_block_and_a_backward_none():
    a, b = x().requires_grad_(), x().requires_grad_()
    w = torch.eye(6, dtype=torch.float64)

    def f(a):
        return chain(torch.cos(a.t()).t() @ w).sum()

    compiled = thunder.jit(f, executors=["torch"])
    compiled(a).backward()
    f(b).backward()
    assert torch.equal(a.grad, b.grad)
    assert sum(map(len, blocks(compiled))) >= 9
    assert "below_autograd" not in str(thunder.last_backward_traces(compiled)[-1])


def test_gradients_of_gradients_have_none():
    a, b = x().requires_grad_(), x().requires_grad_()
    compiled = thunder.jit(chain, executors=["torch"])
    grads = []
    for f, v in ((compiled, a), (chain, b)):
        (first,) = torch.autograd.grad(f(v).sum(), v, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), v)
        grads.append(second)
    torch.testing.assert_close(*grads)


def test_nothing_that_requires_grad_is_enough(short):
    compiled = thunder.jit(chain, executors=["torch"])
    result = compiled(x())  # gradients are on
    assert blocks(compiled) == [["sin"] * 9]
    assert not result.requires_grad
    a = x().requires_grad_()
    assert compiled(a).requires_grad  # another program


def slope(a: torch.Tensor) -> torch.Tensor:
    """Computes by torch's autograd, whatever the mode outside."""
    with torch.enable_grad():
        leaf = a.detach().requires_grad_()
        return torch.autograd.grad(leaf.pow(3).sum(), leaf)[0]


opaque_slope = thunder.opaque(slope)


def with_opaque(a):
    return chain(opaque_slope(chain(a)))


def test_no_block_has_an_opaque_call(short):
    compiled, result = compiled_and_run(with_opaque, x())
    assert torch.equal(result, chain(slope(chain(x()))))
    assert [len(block) for block in blocks(compiled)] == [9, 9]
    assert "1 not: code that is not torch's may need it" in str(thunder.explain(compiled))


def test_an_opaque_call_in_a_block_would_be_seen(short, monkeypatch):
    monkeypatch.setattr(below_autograd, "_is_plain", lambda bsym: True)
    with pytest.raises(RuntimeError, match="does not require grad"):
        compiled_and_run(with_opaque, x())


@torch.library.custom_op("below_autograd::half", mutates_args=())
def half(a: torch.Tensor) -> torch.Tensor:
    return a / 2 + bool(a._is_view())


@half.register_fake
def _(a):
    return torch.empty_like(a)


composite = torch.library.Library("below_autograd_composite", "DEF")
composite.define("grown(Tensor a) -> Tensor")
composite.impl("grown", slope, "CompositeImplicitAutograd")


@pytest.mark.parametrize(
    "f",
    [
        lambda a: chain(half(chain(a).t())),
        lambda a: chain(torch.ops.below_autograd_composite.grown(chain(a))),
    ],
    ids=["custom_op", "composite"],
)
def test_no_block_has_a_library_operator(short, f):
    compiled, result = compiled_and_run(f, x())
    with torch.no_grad():
        assert torch.equal(result, f(x()))
    assert "half" not in str(blocks(compiled))
    assert "grown" not in str(blocks(compiled))
    assert len(blocks(compiled)) == 2


def test_no_block_has_a_call_of_a_package(short):
    package = OperatorExecutor("below_autograd_package", version="1")
    operator = package.register_operator("slope_of", like=lambda a: torch.sin(a), fn=slope)
    compiled = thunder.jit(lambda a: chain(operator(chain(a))), executors=[package, "torch"])
    with torch.no_grad():
        compiled(x())
        assert torch.equal(compiled(x()), chain(slope(chain(x()))))
    assert [len(block) for block in blocks(compiled)] == [9, 9]


def test_a_kernel_of_autograd_that_python_added_is_respected(monkeypatch, short):
    monkeypatch.setattr(torch.library, "_impls", {*torch.library._impls, "aten/sin/AutogradCPU"})
    compiled, _ = compiled_and_run(chain, x())
    assert blocks(compiled) == []
    assert "torch.library has another kernel of sin" in str(thunder.explain(compiled))


def test_regions_of_modes_have_their_own_blocks(short):
    def f(a):
        b = chain(a)
        with torch.enable_grad():
            c = b.cos()
        with torch.inference_mode():
            d = chain(c).clone()
        return chain(c), d.clone()

    _, results = compiled_and_run(f, x())
    with torch.no_grad():
        expected = f(x())
    for result, other in zip(results, expected, strict=True):
        assert torch.equal(result, other)
        assert result.is_inference() == other.is_inference()


def test_a_stage_after_the_blocks_may_add_calls(monkeypatch):
    seen = []
    tags = frozenset({OpTags.DONT_DCE})
    probe = Symbol(name="probe", id="probe", python_impl=lambda: seen.append(EXCLUDED(KEY)), tags=tags)

    class Probing(Transform):
        def configure_pipeline(self, pipeline, options):
            pipeline.insert_before("codegen", "probing", self.stage)

        def stage(self, trace, context):
            middle = len(trace.bound_symbols) // 2
            statements = [
                *trace.bound_symbols[:middle],
                probe.bind(output=None),
                *trace.bound_symbols[middle:],
            ]
            return with_bound_symbols(trace, statements, "probing")

    compiled, result = compiled_and_run(lambda a: chain(a, 18), x(), transforms=[Probing()])
    assert seen == [False, False]
    assert [len(block) for block in blocks(compiled)] == [9, 9]
    assert torch.equal(result, chain(x(), 18))


# -- what can be seen ----------------------------------------------------------------------------------------


def facts(value: torch.Tensor, inputs: list[torch.Tensor]) -> tuple[Any, ...]:
    base = value._base
    return (
        value.tolist(),
        None if value.is_inference() else value._version,
        value._is_view(),
        None if base is None else [i for i, a in enumerate(inputs) if a is base],
        None if base is None else base.shape,
        value.requires_grad,
        value.is_leaf,
        value.is_inference(),
        value.stride(),
        [i for i, a in enumerate(inputs) if a.untyped_storage()._cdata == value.untyped_storage()._cdata],
    )


def linear_of_view(a, b):
    return F.linear(a.view(2, 2, 6), b.t()[:6, :].t()[:, :6])


PROGRAMS: dict[str, Callable[..., Any]] = {
    "a view of an input": lambda a, b: (a.t(), a.view(-1)[2:], chain(a)),
    "a view of a result": lambda a, b: (y := chain(a), y.t(), y.t()[1:]),
    "a view of a value": lambda a, b: chain(a).t().unsqueeze(0),
    "views of one call": lambda a, b: [chain(t) for t in a.split(2)] + list(a.unbind(1)),
    "a composite of views": lambda a, b: torch.einsum("ij->ji", chain(a)),
    "a composite that squeezes": lambda a, b: chain(a[0]) @ chain(b).t(),
    "a linear layer": lambda a, b: (linear_of_view(a, b), chain(a)),
    "a product that torch folds for weights": lambda a, b: (
        F.linear(chain(torch.rand(5, 3, 6, dtype=torch.float64)).transpose(0, 1), b),
        torch.matmul(chain(torch.rand(5, 3, 6, dtype=torch.float64)).transpose(0, 1), b.t()),
    ),
    "attention": lambda a, b: F.scaled_dot_product_attention(*[chain(a).view(1, 2, 2, 6)] * 3),
    "a normalisation": lambda a, b: F.layer_norm(chain(a), (6,)),
    "the input itself": lambda a, b: (a.contiguous(), a.to(torch.float64), a.reshape(4, 6), chain(a)),
    "a copy or a view": lambda a, b: (a.t().reshape(-1), a.reshape(-1), a.t().contiguous(), chain(b)),
    "a write": lambda a, b: (a.add_(chain(b)), a.sum()),
    "a write through a view": lambda a, b: (a[:, 0].add_(1), a.t()[1:3].mul_(2), chain(a)),
    "a write to a value": lambda a, b: ((y := chain(a)).add_(1), y.t()),
    "a write to a view of a value": lambda a, b: ((y := chain(a)).t()[0].mul_(3), y),
    "a write to a part": lambda a, b: (a.index_copy_(0, torch.tensor([1]), chain(b)[:1]), chain(a)),
    "a read after a write": lambda a, b: (a.view(-1), a.mul_(2), chain(a.view(-1))),
    "numbers that are drawn": lambda a, b: F.dropout(chain(a), 0.5, True) + torch.rand_like(b),
    "factories": lambda a, b: (torch.arange(4), torch.zeros(2, 3), torch.full_like(a, 2.0), chain(b)),
    "a detached value": lambda a, b: (a.detach(), chain(a).detach(), b.detach().t()),
    "complex numbers": lambda a, b: torch.view_as_real(torch.complex(chain(a), b).conj().resolve_conj()),
    "an index": lambda a, b: chain(a)[torch.tensor([0, 2])],
    "a comparison": lambda a, b: chain(a) > b,
    "values of several results": lambda a, b: (*torch.max(chain(a), 1), *torch.sort(b)),
}


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", PROGRAMS)
def test_nobody_sees_a_block(short, name, mode, requires_grad):
    f = PROGRAMS[name]
    compiled = thunder.jit(f, executors=["torch"])

    def inputs() -> list[torch.Tensor]:
        return [x().requires_grad_(requires_grad), (x() + 1).requires_grad_(requires_grad)]

    def seen(function: Callable[..., Any]) -> list[Any]:
        args = inputs()
        torch.manual_seed(0)
        with mode():
            results = torch.utils._pytree.tree_leaves(function(*args))
        return [facts(t, args) for t in (*results, *args) if isinstance(t, torch.Tensor)]

    seen(compiled)
    with_blocks = seen(compiled)
    assert thunder.cache_misses(compiled) == 1
    assert sum(map(len, blocks(compiled))) > 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(below_autograd, "SHORTEST", 10**6)
        without = seen(thunder.jit(f, executors=["torch"]))
    assert with_blocks == without
    assert [fact[0] for fact in with_blocks] == [fact[0] for fact in seen(f)]


@pytest.mark.parametrize("name", ["a view of a result", "a view of an input", "a write through a view"])
def test_a_block_with_everything_would_be_seen(short, name, monkeypatch):
    """The test above fails if results are in blocks."""
    monkeypatch.setattr(below_autograd, "_seen", lambda trace: frozenset())
    with pytest.raises(AssertionError, match="assert "):
        test_nobody_sees_a_block(None, name, torch.no_grad, False)


def test_a_cast_region_computes_what_eager_does(short):
    def f(a, w):
        with torch.autocast("cpu", torch.bfloat16):
            return chain(F.linear(chain(a), w)).float() * 2

    a, w = torch.rand(3, 4), torch.rand(5, 4)
    compiled, result = compiled_and_run(f, a, w)
    with torch.no_grad():
        assert torch.equal(result, f(a, w))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        outside = thunder.jit(lambda a, w: chain(F.linear(chain(a), w)), executors=["torch"])
        assert torch.equal(outside(a, w), chain(F.linear(chain(a), w)))
    assert blocks(compiled)


def test_a_saved_view_of_an_input_notices_a_write():
    def f(a, w):
        return chain(w * a.view(-1)).sum()

    compiled = thunder.jit(f, executors=["torch"])
    a, w = x(), torch.ones(24, dtype=torch.float64, requires_grad=True)
    loss = compiled(a, w)
    a.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
