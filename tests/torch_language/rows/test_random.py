"""Random operators: the same seed gives eager's numbers, in eager's order, also where a program computes
values again; so does a generator of the program's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import thunder
from thunder.base.devices import Device
from thunder.base.errors import OperatorError
from thunder.base.langctx import TORCH, using_language
from thunder.base.tags import OpTags
from thunder.extend import OperatorExecutor
from thunder.ir.proxies import GeneratorProxy, TensorProxy
from thunder.ir.trace import TraceCtx, tracectx
from thunder.ops.operator import all_rows

X = torch.linspace(0.1, 0.9, 12, dtype=torch.float64).reshape(3, 4)

#: row → a call of it, which draws numbers
CALLS: dict[str, Callable[..., Any]] = {
    "torch.rand": lambda x, **kw: torch.rand(3, 4, **kw),
    "torch.rand_like": lambda x, **kw: torch.rand_like(x, **kw),
    "torch.randn": lambda x, **kw: torch.randn((3, 4), dtype=torch.float64, **kw),
    "torch.randn_like": lambda x, **kw: torch.randn_like(x, **kw),
    "torch.randint": lambda x, **kw: torch.randint(2, 9, (5,), **kw),
    "torch.randint_like": lambda x, **kw: torch.randint_like(x, 9, **kw),
    "torch.randperm": lambda x, **kw: torch.randperm(7, **kw),
    "torch.bernoulli": lambda x, **kw: torch.bernoulli(x, **kw),
    "torch.multinomial": lambda x, **kw: torch.multinomial(x, 2, **kw),
    "torch.normal": lambda x, **kw: torch.normal(x, 2 * x, **kw),
    "torch.poisson": lambda x, **kw: torch.poisson(x, **kw),
    "torch._standard_gamma": lambda x, **kw: torch._standard_gamma(x, **kw),
    "torch._sample_dirichlet": lambda x, **kw: torch._sample_dirichlet(x, **kw),
    "torch.binomial": lambda x, **kw: torch.binomial((10 * x).detach(), x, **kw),
    "torch.Tensor.uniform_": lambda x, **kw: x.clone().uniform_(-1, 1, **kw),
    "torch.Tensor.normal_": lambda x, **kw: x.clone().normal_(1, 2, **kw),
    "torch.Tensor.exponential_": lambda x, **kw: x.clone().exponential_(2, **kw),
    "torch.Tensor.log_normal_": lambda x, **kw: x.clone().log_normal_(0, 1, **kw),
    "torch.Tensor.cauchy_": lambda x, **kw: x.clone().cauchy_(1, 2, **kw),
    "torch.Tensor.geometric_": lambda x, **kw: x.clone().geometric_(0.3, **kw),
    "torch.Tensor.random_": lambda x, **kw: x.clone().random_(2, 9, **kw),
    "torch.nn.init.trunc_normal_": lambda x, **kw: torch.nn.init.trunc_normal_(x.clone(), a=-1, **kw),
    "torch.Tensor.bernoulli_": lambda x, **kw: x.clone().bernoulli_(0.3, **kw),
}

#: layers that draw: they take no generator
LAYERS: dict[str, Callable[..., Any]] = {
    "dropout": lambda x: F.dropout(x, 0.4),
    "dropout1d": lambda x: F.dropout1d(x, 0.4),
    "dropout2d": lambda x: F.dropout2d(x[None, :, None], 0.4),
    "dropout3d": lambda x: F.dropout3d(x[None, :, None, None], 0.4),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.4, training=True),
    "feature_alpha_dropout": lambda x: F.feature_alpha_dropout(x[None, :, None], 0.4, training=True),
    "torch.native_dropout": lambda x: torch.native_dropout(x, 0.4, True)[0],
    "rrelu": lambda x: F.rrelu(x - 0.5, training=True),
    "gumbel_softmax": lambda x: F.gumbel_softmax(x),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.3),
}


def seeded(fn: Callable[..., Any], *args: Any) -> tuple[Any, torch.Tensor]:
    """What a call returns after a seed, and the next number of the generator."""
    torch.manual_seed(11)
    return fn(*args), torch.rand(())


def twice(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Draws between other draws, and twice, so that an order or a merged call shows."""
    return lambda x: (torch.rand(2), fn(x), torch.randn(3), fn(x))


@pytest.mark.parametrize("name", [*CALLS, *LAYERS])
def test_the_same_seed_gives_eagers_numbers_in_eagers_order(name: str) -> None:
    program = twice({**CALLS, **LAYERS}[name])
    compiled = thunder.jit(program)
    compiled(X)
    torch.testing.assert_close(seeded(compiled, X), seeded(program, X), rtol=0, atol=0)


@pytest.mark.parametrize("name", LAYERS)
def test_what_is_computed_again_for_the_backward_has_the_same_numbers(name: str) -> None:
    layer = LAYERS[name]

    def program(x: torch.Tensor) -> torch.Tensor:
        y = checkpoint(lambda x: layer(x.sin()).sin() * torch.rand_like(x).sum(), x, use_reentrant=False)
        return y.square().sum() * torch.rand(())

    ours, theirs = X.clone().requires_grad_(), X.clone().requires_grad_()
    compiled = thunder.jit(program)
    for fn, x in ((compiled, ours), (program, theirs)):
        torch.manual_seed(11)
        out = fn(x)
        state = torch.get_rng_state()
        out.backward()
        assert torch.equal(torch.get_rng_state(), state), "the backward leaves the generator as it was"
    torch.testing.assert_close(ours.grad, theirs.grad)


def generator(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("name", CALLS)
def test_a_generator_gives_eagers_numbers_between_those_of_others(name: str) -> None:
    def program(x: torch.Tensor, a: torch.Generator, b: torch.Generator) -> Any:
        call = CALLS[name]
        drawn = (call(x, generator=a), torch.rand(2), call(x, generator=b), call(x, generator=a))
        return (*drawn, call(x), a.get_state(), b.get_state())

    compiled = thunder.jit(program, debug_options=thunder.DebugOptions(check_traces=True))
    for seed in (3, 4):  # the second call is a hit
        theirs = seeded(program, X, generator(seed), generator(seed + 10))
        ours = seeded(compiled, X, generator(seed), generator(seed + 10))
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    assert thunder.cache_misses(compiled) == 1


@pytest.mark.parametrize("name", CALLS)
def test_what_is_no_generator_is_torchs_error(name: str) -> None:
    def program(x: torch.Tensor) -> Any:
        return CALLS[name](x, generator=5)

    with pytest.raises(TypeError) as theirs:
        program(X)
    with pytest.raises(OperatorError) as ours:
        thunder.jit(program)(X)
    assert str(theirs.value).partition(" - got")[0] in str(ours.value)


# torch is asked for its words, with zeros: of weights that are zeros it says something else first
@pytest.mark.parametrize("name", sorted(CALLS.keys() - {"torch.multinomial"}))
def test_a_generator_of_another_kind_of_device_is_torchs_error(name: str) -> None:
    trace = TraceCtx()
    with tracectx(trace), using_language(TORCH):
        other, x = (
            GeneratorProxy(device=Device("cuda")),
            TensorProxy(shape=(3, 4), device="cpu", dtype=X.dtype),
        )
        symbol, args, kwargs = TORCH.functions[_torch_function(name)], *_arguments(name, x)
        with pytest.raises(
            OperatorError, match="Expected a 'cpu' device type for generator but found 'cuda'"
        ):
            symbol(*args, **kwargs, generator=other)


def _torch_function(name: str) -> Any:
    found: Any = torch
    for part in name.split(".")[1:]:
        found = getattr(found, part)
    return found


def _arguments(name: str, x: TensorProxy) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of a call of a row, of which only the generator is wrong."""
    if name in ("torch.rand", "torch.randn"):
        return (3, 4), {}
    if name == "torch.randint":
        return (2, 9, (5,)), {}
    if name == "torch.randperm":
        return (7,), {}
    more = {
        "torch.randint_like": (9,),
        "torch.multinomial": (2,),
        "torch.normal": (x,),
        "torch.binomial": (x,),
    }
    return (x, *more.get(name, (0.5,) if name == "torch.Tensor.geometric_" else ())), {}


@pytest.mark.parametrize("name", CALLS)
def test_nothing_is_drawn_while_a_program_is_planned(name: str) -> None:
    g, default = generator(), torch.get_rng_state()
    before = g.get_state()
    plan = thunder.plan(lambda x, g: CALLS[name](x, generator=g), X, g)
    assert torch.equal(g.get_state(), before)
    assert torch.equal(torch.get_rng_state(), default)
    assert "generator=g" in str(plan.traces[0]) or ", g)" in str(plan.traces[0])


#: method → its arguments, for targets of every layout
FILLS: dict[str, tuple[Any, ...]] = {
    "uniform_": (-1, 1),
    "normal_": (1, 2),
    "log_normal_": (0, 1),
    "cauchy_": (1, 2),
    "exponential_": (2,),
    "geometric_": (0.3,),
    "bernoulli_": (0.3,),
    "random_": (2, 9),
}

#: a tensor, as it may lie in memory
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.mT,
    "every other": lambda x: x[..., ::2],
    "channels last": lambda x: x.to(memory_format=torch.channels_last),
    "one column": lambda x: x[:, :, :, 3],
}


#: how a program makes a tensor to draw into, of another
MAKES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "empty_like": torch.empty_like,
    "zeros_like, of a layout": lambda x: torch.zeros_like(x, memory_format=torch.contiguous_format),
    "clone": torch.clone,
    "clone, of a layout": lambda x: x.clone(memory_format=torch.channels_last),
    "contiguous, of a layout": lambda x: (x + 1).contiguous(memory_format=torch.channels_last),
    "new_empty": lambda x: x.new_empty(x.shape),
    "empty_strided": lambda x: torch.empty_strided((2, 3, 6, 8), (1, 2, 48, 6)),
    "view of a new one": lambda x: torch.empty(6, 3, 8, 2).permute(3, 1, 0, 2),
}


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "channels last"])
@pytest.mark.parametrize("make", MAKES)
def test_tensors_made_in_every_way_are_drawn_into_as_they_lie(make: str, layout: str) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return MAKES[make](LAYOUTS[layout](x)).normal_()

    x = torch.zeros(2, 3, 6, 6)
    torch.testing.assert_close(seeded(thunder.jit(program), x), seeded(program, x), rtol=0, atol=0)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("method", FILLS)
def test_numbers_are_drawn_in_the_order_of_the_memory(method: str, layout: str) -> None:
    def intermediate(x: torch.Tensor) -> torch.Tensor:
        y = LAYOUTS[layout](x + 1)
        return getattr(y, method)(*FILLS[method])

    def of_input(x: torch.Tensor) -> torch.Tensor:
        getattr(LAYOUTS[layout](x), method)(*FILLS[method])
        return x

    for program in (intermediate, of_input):
        ours, theirs = (torch.zeros(2, 3, 6, 8) for _ in range(2))
        found, expected = seeded(thunder.jit(program), ours), seeded(program, theirs)
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


#: layers that draw for each element of a tensor
OF_ELEMENTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "dropout": lambda x: F.dropout(x, 0.4),
    "dropout2d": lambda x: F.dropout2d(x, 0.4),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.4, training=True),
    "feature_alpha_dropout": lambda x: F.feature_alpha_dropout(x, 0.4, training=True),
    "rrelu": lambda x: F.rrelu(x - 0.5, training=True),
    "gumbel_softmax": lambda x: F.gumbel_softmax(x),
    "rand_like": lambda x: x * torch.rand_like(x),
    "normal": lambda x: x * torch.normal(x, x),
}


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "one column"])
@pytest.mark.parametrize("name", OF_ELEMENTS)
def test_layers_and_their_gradients_draw_in_the_order_of_the_memory(name: str, layout: str) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return OF_ELEMENTS[name](LAYOUTS[layout](x))

    found = []
    for fn in (program, thunder.jit(program)):
        x = torch.rand(2, 3, 6, 8, generator=generator(), dtype=torch.float64).requires_grad_()
        out, state = seeded(fn, x)
        out.sum().backward()
        found.append((out, x.grad, state))
    torch.testing.assert_close(*found)


INITIALISERS = ("normal_", "uniform_", "trunc_normal_", "orthogonal_", "sparse_")
INITIALISERS += tuple(
    f"{kind}_{numbers}_" for kind in ("xavier", "kaiming") for numbers in ("uniform", "normal")
)


@pytest.mark.parametrize("name", INITIALISERS)
def test_initialisers_draw_from_a_generator(name: str) -> None:
    def program(weight: torch.nn.Parameter, g: torch.Generator) -> Any:
        more = (0.3,) if name == "sparse_" else ()
        getattr(torch.nn.init, name)(weight, *more, generator=g)
        return g.get_state()

    results = []
    for fn in (program, thunder.jit(program)):
        weight = torch.nn.Parameter(torch.ones(6, 5, dtype=torch.float64))
        results.append((seeded(fn, weight, generator()), weight))
    torch.testing.assert_close(*results, rtol=0, atol=0)


@pytest.mark.parametrize("bounds", [(), (5,), (-3, 5), (2, None)])
@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.float32, torch.bool])
def test_whole_numbers_of_every_dtype(dtype: torch.dtype, bounds: tuple[Any, ...]) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.clone().random_(*bounds)

    x = torch.zeros(50, dtype=dtype)
    try:
        expected = seeded(program, x)
    except (RuntimeError, ValueError) as error:
        with pytest.raises(RuntimeError, match=re.escape(str(error))):
            seeded(thunder.jit(program), x)
    else:
        torch.testing.assert_close(seeded(thunder.jit(program), x), expected, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["torch.normal", "torch.bernoulli", "torch.poisson"])
def test_gradients_of_draws_are_torchs_zeros(name: str) -> None:
    def program(x: torch.Tensor, g: torch.Generator) -> torch.Tensor:
        return (CALLS[name](x, generator=g) * x).sum() * torch.rand((), generator=g)

    gradients = []
    for fn in (program, thunder.jit(program)):
        x, g = X.clone().requires_grad_(), generator()
        fn(x, g).backward()
        gradients.append((x.grad, g.get_state()))
    torch.testing.assert_close(*gradients, rtol=0, atol=0)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, g: x.cauchy_(sigma=-1, generator=g),
        lambda x, g: x.geometric_(1.5, generator=g),
        lambda x, g: x.log_normal_(std=-1, generator=g),
        lambda x, g: x.exponential_(0, generator=g),
        lambda x, g: x.bernoulli_(2, generator=g),
        lambda x, g: x.random_(3, 3, generator=g),
        lambda x, g: x.random_(0, generator=g),
        lambda x, g: torch.bernoulli(x, 2, generator=g),
        lambda x, g: torch.poisson(x.long(), g),
        lambda x, g: torch.binomial(x, x.float(), generator=g),
    ],
)
def test_parameters_that_torch_refuses_are_refused_in_its_words(call: Callable[..., Any]) -> None:
    with pytest.raises(RuntimeError) as theirs:
        call(X.clone(), generator())
    with pytest.raises(OperatorError, match=re.escape(str(theirs.value).splitlines()[0])):
        thunder.jit(call)(X.clone(), generator())


@pytest.mark.parametrize("name", CALLS)
def test_no_generator_is_the_default_one(name: str) -> None:
    def program(x: torch.Tensor) -> Any:
        return CALLS[name](x, generator=None)

    torch.testing.assert_close(seeded(thunder.jit(program), X), seeded(program, X), rtol=0, atol=0)


def test_an_executor_that_knows_no_generators_is_not_given_calls_with_one() -> None:
    """Its author has read the signature of the calls that most programs make."""

    def sevens(size: Any, *, dtype: Any = None, device: Any = None) -> torch.Tensor:
        return torch.full(size, 7.0)

    def meta(size: Any, *, dtype: Any = None, device: Any = None) -> TensorProxy:
        return TensorProxy(shape=size, device="cpu", dtype=torch.float32)

    executor = OperatorExecutor("sevens")
    symbol = executor.register_operator("rand", meta=meta, fn=sevens)
    executor.register_implementation("torch.rand", symbol, checker=lambda size, *, dtype, device: True)
    compiled = thunder.jit(
        lambda g: (torch.rand(2), torch.rand(2, generator=g)), executors=[executor, "torch"]
    )
    plain, of_generator = compiled(generator())
    assert plain.tolist() == [7.0, 7.0]
    assert torch.equal(of_generator, torch.rand(2, generator=generator()))
    (refusal,) = [r for row in thunder.explain(compiled).rows for r in row.refusals]
    assert (refusal.code, refusal.message) == ("argument", "sevens does not support generator= of torch.rand")


def test_every_random_row_is_called_here() -> None:
    random = {
        row.id
        for row in all_rows()
        if OpTags.RANDOM_OP in row.tags and OpTags.FALLBACK not in row.tags and row.id.startswith("torch.")
    }
    layers = {name for name in random if name.startswith("torch.nn.functional.")}
    assert random - layers - CALLS.keys() - LAYERS.keys() == set()


@pytest.mark.parametrize("train", [True, False, None])
@pytest.mark.parametrize("p", [0.0, 0.5, 1.0])
def test_native_dropout_and_its_gradient(p: float, train: bool | None) -> None:
    def program(x: torch.Tensor) -> Any:
        return torch.native_dropout(x, p, train)

    results = []
    for fn in (program, thunder.jit(program)):
        x = torch.ones(4, 5, requires_grad=True)
        torch.manual_seed(0)
        out, mask = fn(x)
        (gradient,) = torch.autograd.grad(out.sum(), x)
        results.append([t.detach() for t in (out, mask, gradient)])
    for theirs, ours in zip(*results, strict=True):
        assert torch.equal(theirs, ours)
