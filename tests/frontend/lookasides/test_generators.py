"""Generators of random numbers in a program: numbers, states and what the program is told of them are
eager's, at the first call and at later ones.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._compile import _disable_dynamo
from torch.utils.checkpoint import checkpoint

import thunder
from thunder.base.errors import DataDependentControlFlow, UnsupportedProgram

X = torch.linspace(0.1, 0.9, 12, dtype=torch.float64).reshape(3, 4)
CHECKED = thunder.DebugOptions(check_traces=True)


def seeded(n: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(n)


def plain(value: Any) -> Any:
    """A value in terms of tensors and numbers: of a generator its state."""
    if isinstance(value, torch.Generator):
        return value.get_state()
    if isinstance(value, tuple | list):
        return [plain(v) for v in value]
    return {k: plain(v) for k, v in value.items()} if isinstance(value, dict) else value


def outcome(fn: Callable[..., Any], args: tuple[Any, ...], seed: int) -> Any:
    """What a call returns, what it leaves in its arguments, and in the default generator."""
    torch.manual_seed(seed)
    result = fn(*args)
    return plain((result, args, torch.get_rng_state()))


def assert_as_eager(
    program: Callable[..., Any], *calls: Callable[[], tuple[Any, ...]], misses: int = 1
) -> Any:
    """Compares with eager, call by call; returns the compiled function."""
    compiled = thunder.jit(program, debug_options=CHECKED)
    for seed, make in enumerate(calls):
        expected, found = outcome(program, make(), seed), outcome(compiled, make(), seed)
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert thunder.cache_misses(compiled) == misses
    return compiled


def one_twice(n: int = 3) -> tuple[torch.Generator, torch.Generator]:
    g = seeded(n)
    return g, g


# -- drawing -------------------------------------------------------------------------------------------------

#: programs of two generators
PROGRAMS: dict[str, Callable[..., Any]] = {
    "between draws from the default generator": lambda g, h: (
        torch.rand(2),
        torch.rand(2, generator=g),
        torch.randn(3),
        torch.randn(3, generator=g),
    ),
    "two generators in turn": lambda g, h: [torch.rand(2, generator=x) for x in (h, g, h, h, g)],
    "a draw that nobody reads": lambda g, h: (torch.rand(7, generator=g), torch.rand(2, generator=g))[1],
    "equal draws": lambda g, h: torch.rand(3, generator=g) - torch.rand(3, generator=g),
    "by partial": lambda g, h: functools.partial(torch.rand, 2, generator=g)(),
    "in a comprehension": lambda g, h: sum(torch.rand(2, generator=g) * i for i in range(3)),
    "by map": lambda g, h: list(map(lambda x: torch.rand(2, generator=x), [g, h, g])),
    "under no_grad": lambda g, h: torch.no_grad()(torch.rand)(2, generator=g),
    "if it is there": lambda g, h: torch.rand(2, generator=g) if g is not None else torch.rand(2),
    "on its device": lambda g, h: torch.rand(2, generator=g, device=g.device),
    "the default one": lambda g, h: torch.rand(2, generator=torch.default_generator) + torch.rand(2),
    "operators without a row": lambda g, h: torch.ops.aten.bernoulli.default(X.clone(), generator=g),
    "seeded": lambda g, h: (g.manual_seed(7) is g, torch.rand(2, generator=g), torch.rand(2, generator=h)),
    "seeded in a loop": lambda g, h: sum(torch.rand(3, generator=g.manual_seed(i)) for i in range(4)),
    "seeded at the end": lambda g, h: (torch.rand(2, generator=g), h.manual_seed(4), None)[0],
    "its state put back": lambda g, h: [
        (s := g.get_state(), torch.rand(3, generator=g)),
        g.set_state(s) is g,
        torch.rand(3, generator=g),
    ],
    "its state given to another": lambda g, h: (
        h.set_state(g.get_state()),
        torch.rand(3, generator=g) - torch.rand(3, generator=h),
    ),
    "its state before and after a draw": lambda g, h: (
        g.get_state(),
        torch.rand(2, generator=g),
        g.get_state(),
    ),
    "copied": lambda g, h: (torch.rand(2, generator=g.clone_state()), torch.rand(2, generator=g)),
    "returned": lambda g, h: (g, torch.rand(2, generator=h)),
    "made": lambda g, h: (
        torch.rand(2, generator=torch.Generator()) - torch.rand(2, generator=torch.Generator())
    ),
    "made, seeded and returned": lambda g, h: {
        "made": torch.Generator(device="cpu").manual_seed(3),
        "given": g,
    },
    "the default seeded": lambda g, h: (torch.rand(2), torch.manual_seed(5), torch.rand(2), torch.rand(2))[
        2:
    ],
    "what seeding returns": lambda g, h: torch.rand(2, generator=torch.manual_seed(5)),
    "the default state put back": lambda g, h: (
        s := torch.get_rng_state(),
        torch.rand(2),
        torch.set_rng_state(s),
        torch.rand(2),
    )[1:],
    "for devices that are not there": lambda g, h: (torch.cuda.manual_seed_all(3), torch.rand(2))[1],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers_and_states_are_eagers(name: str) -> None:
    """The third call has one generator where there were two, which is another program."""
    calls = (lambda: (seeded(1), seeded(2)), lambda: (seeded(5), seeded(6)), one_twice)
    assert_as_eager(PROGRAMS[name], *calls, misses=2)


def test_a_new_generator_at_each_call_is_no_reason_to_compile() -> None:
    compiled = thunder.jit(lambda x, g: x + torch.rand(3, 4, generator=g))
    for n in range(20):
        assert torch.equal(compiled(X, seeded(n)), X + torch.rand(3, 4, generator=seeded(n)))
    assert (thunder.cache_misses(compiled), thunder.cache_hits(compiled)) == (1, 19)


class Holder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator = seeded(4)

    def forward(self) -> torch.Tensor:
        return torch.rand(3, generator=self.generator)


kept = seeded(4)


def of_a_global() -> torch.Tensor:
    return torch.rand(3, generator=kept)


def of_a_default(generator: torch.Generator = seeded(4)) -> torch.Tensor:  # noqa: B008 - the same at each call
    return torch.rand(3, generator=generator)


def of_a_cell() -> Callable[[], torch.Tensor]:
    g = seeded(4)
    return lambda: torch.rand(3, generator=g)


@pytest.mark.parametrize("program", [Holder(), of_a_global, of_a_default, of_a_cell()])
def test_a_generator_that_the_program_reaches_draws_on(program: Callable[[], torch.Tensor]) -> None:
    compiled = thunder.jit(program)
    expected = seeded(4)
    for _ in range(3):
        assert torch.equal(compiled(), torch.rand(3, generator=expected))
    assert thunder.cache_misses(compiled) == 1


def test_another_generator_at_the_same_place_is_used() -> None:
    module = Holder()
    compiled = thunder.jit(module)
    compiled()
    module.generator = seeded(9)
    assert torch.equal(compiled(), torch.rand(3, generator=seeded(9)))
    module.generator.manual_seed(8)
    assert torch.equal(compiled(), torch.rand(3, generator=seeded(8)))
    module.generator = None
    torch.manual_seed(7)
    found = compiled()
    torch.manual_seed(7)
    assert torch.equal(found, torch.rand(3))
    assert thunder.cache_misses(compiled) == 2


@pytest.mark.parametrize("options", [{"cache": "same input"}, {"cache": "no caching"}, {"frozen": True}])
def test_every_way_of_caching_draws_on(options: dict[str, Any]) -> None:
    compiled, expected = thunder.jit(Holder(), **options), seeded(4)
    for _ in range(3):
        assert torch.equal(compiled(), torch.rand(3, generator=expected))


def test_the_text_of_a_trace_runs() -> None:
    def program(x: torch.Tensor, g: torch.Generator) -> torch.Tensor:
        g.manual_seed(3)
        return x + torch.rand(3, 4, generator=g) + torch.rand(3, 4, generator=torch.Generator())

    compiled = thunder.jit(program)
    expected = compiled(X, seeded())
    trace = thunder.last_traces(compiled)[-1]
    text = str(trace)
    assert '# g: "Generator cpu"' in text
    assert "torch.Generator.manual_seed(g, 3)" in text
    assert "= torch.rand((3, 4), dtype=None, device=None, generator=g)" in text
    namespace = dict(trace.python_ctx())
    exec(text, namespace)
    assert torch.equal(namespace["computation"](X, seeded(9)), expected)


def test_a_generator_goes_through_autocast_and_regions() -> None:
    def program(x: torch.Tensor, g: torch.Generator) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x.float() @ x.float().T + torch.randn(3, generator=g)

    assert_as_eager(program, lambda: (X, seeded(1)), lambda: (X, seeded(2)))


# -- gradients -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["none", "min-cut"])
def test_the_backward_draws_nothing(policy: str) -> None:
    def program(x: torch.Tensor, g: torch.Generator) -> torch.Tensor:
        noise = torch.empty(3, 4, dtype=x.dtype).bernoulli_(0.4, generator=g)
        y = (x.sin() * torch.rand(3, 4, generator=g, dtype=x.dtype)).cos() * noise
        return y.sum() * torch.rand((), generator=g)

    ours, theirs = X.clone().requires_grad_(), X.clone().requires_grad_()
    g, h = seeded(), seeded()
    out = thunder.jit(program, rematerialization=policy, debug_options=CHECKED)(ours, g)
    state = g.get_state()
    out.backward()
    assert torch.equal(g.get_state(), state)
    program(theirs, h).backward()
    assert torch.equal(ours.grad, theirs.grad)
    assert torch.equal(h.get_state(), state)


def test_a_checkpointed_region_keeps_what_it_has_drawn() -> None:
    """Eager draws from the generator once more in the backward, and so differentiates another function."""

    def program(x: torch.Tensor, g: torch.Generator) -> torch.Tensor:
        def region(x: torch.Tensor) -> torch.Tensor:
            return (x.sin() * torch.rand(3, 4, generator=g, dtype=x.dtype)).cos()

        return checkpoint(region, x, use_reentrant=False).sum()

    x, g = X.clone().requires_grad_(), seeded()
    out = thunder.jit(program)(x, g)
    state = g.get_state()
    out.backward()
    noise = torch.rand(3, 4, generator=seeded(), dtype=X.dtype)
    torch.testing.assert_close(x.grad, -(X.sin() * noise).sin() * X.cos() * noise)
    assert torch.equal(g.get_state(), state)


def test_seeds_inside_of_a_checkpointed_region() -> None:
    def program(x: torch.Tensor, g: torch.Generator) -> torch.Tensor:
        def region(x: torch.Tensor) -> torch.Tensor:
            torch.manual_seed(3)
            g.manual_seed(4)
            return (x.sin() * torch.rand(3, 4, generator=g, dtype=x.dtype) * torch.rand(3, 4)).cos()

        return checkpoint(region, x, use_reentrant=False).sum()

    found = []
    for fn in (program, thunder.jit(program)):
        x, g = X.clone().requires_grad_(), seeded()
        torch.manual_seed(0)
        fn(x, g).backward()
        found.append((x.grad, g.get_state(), torch.get_rng_state()))
    torch.testing.assert_close(*found, rtol=0, atol=0)


class Noisy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, g: torch.Generator) -> torch.Tensor:
        noise = torch.rand(x.shape, generator=g, dtype=x.dtype)
        ctx.save_for_backward(noise)
        return x * noise

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return gradients[0] * ctx.saved_tensors[0], None


class NoisyBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0] * torch.rand(gradients[0].shape, dtype=gradients[0].dtype)


def test_a_function_with_its_own_gradient_draws_in_its_forward() -> None:
    found = []
    for fn in (Noisy.apply, thunder.jit(lambda x, g: Noisy.apply(x, g))):
        x, g = X.clone().requires_grad_(), seeded()
        fn(x, g).sum().backward()
        found.append((x.grad, g.get_state()))
    torch.testing.assert_close(*found, rtol=0, atol=0)


def test_draws_in_a_backward_are_drawn_when_it_runs() -> None:
    found = []
    for fn in (NoisyBackward.apply, thunder.jit(lambda x: NoisyBackward.apply(x))):
        torch.manual_seed(0)
        x = X.clone().requires_grad_()
        result = fn(x)
        between = torch.rand(2)
        result.sum().backward()
        found.append((x.grad, between, torch.get_rng_state()))
    torch.testing.assert_close(*found, rtol=0, atol=0)
    assert_as_eager(lambda x: NoisyBackward.apply(x), lambda: (X,))


# -- what the program asks -----------------------------------------------------------------------------------


def test_the_seed_that_a_program_reads_is_a_fact() -> None:
    def program(g: torch.Generator) -> torch.Tensor:
        return torch.rand(2, generator=g) + g.initial_seed()

    compiled = assert_as_eager(
        program, lambda: (seeded(1),), lambda: (seeded(1),), lambda: (seeded(2),), misses=2
    )
    (reason,) = thunder.last_recompile_reasons(compiled)
    assert (reason.source, reason.expected, reason.found) == ("args[0]", 1, 2)


def test_the_seed_that_a_program_has_set_is_known() -> None:
    def program(g: torch.Generator) -> tuple[int, ...]:
        before = g.initial_seed()
        torch.manual_seed(-5)
        return before, g.manual_seed(9).initial_seed(), torch.initial_seed(), torch.Generator().initial_seed()

    assert_as_eager(program, lambda: (seeded(1),), lambda: (seeded(1),))


def test_a_seed_is_not_taken_for_that_of_another_generator() -> None:
    def program(g: torch.Generator, h: torch.Generator) -> int:
        g.manual_seed(5)
        return h.initial_seed()

    assert_as_eager(
        program, lambda: (seeded(1), seeded(2)), lambda: one_twice(2), lambda: one_twice(3), misses=2
    )


def test_a_seed_is_not_taken_for_that_of_the_default_generator() -> None:
    def program(g: torch.Generator) -> int:
        torch.manual_seed(5)
        return g.initial_seed()

    compiled = thunder.jit(program)
    for g in (seeded(1), torch.default_generator, seeded(1)):
        torch.manual_seed(1)
        assert compiled(g) == (5 if g is torch.default_generator else 1)


@pytest.mark.parametrize(
    "question",
    [
        lambda g, h: g is h,
        lambda g, h: g == h,
        lambda g, h: [h, g].index(g),
        lambda g, h: [g, g].count(h),
        lambda g, h: len({g, h}),
        lambda g, h: {g: 1}.get(h, 2),
        lambda g, h: g in {1: h}.values(),
    ],
)
def test_which_generators_are_one_is_a_fact(question: Callable[..., Any]) -> None:
    def program(g: torch.Generator, h: torch.Generator) -> torch.Tensor:
        return torch.rand(2, generator=g) + question(g, h)

    calls = (lambda: (seeded(1), seeded(2)), one_twice, lambda: (seeded(3), seeded(4)), lambda: one_twice(5))
    compiled = thunder.jit(program)
    for make in calls:
        assert torch.equal(compiled(*make()), program(*make()))


# -- forked states -------------------------------------------------------------------------------------------


def forked(x: torch.Tensor) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        inside = torch.rand(2), torch.initial_seed()
    return inside, torch.rand(2)


def forked_twice(x: torch.Tensor) -> Any:
    with torch.random.fork_rng():
        a = torch.rand(2)
        with torch.random.fork_rng(enabled=False):
            b = torch.rand(2)
        with torch.random.fork_rng():
            c = torch.rand(2)
        d = torch.rand(2)
    return a, b, c, d, torch.rand(2)


def left_by_an_error(x: torch.Tensor) -> Any:
    try:
        with torch.random.fork_rng():
            a = torch.rand(2)
            raise ValueError
    except ValueError:
        return a, torch.rand(2)


@pytest.mark.parametrize("program", [forked, forked_twice, left_by_an_error])
def test_forked_states_are_put_back(program: Callable[..., Any]) -> None:
    assert_as_eager(program, lambda: (X,), lambda: (X,))


def test_a_seed_that_is_put_back_is_not_that_of_another_generator() -> None:
    def program(g: torch.Generator) -> tuple[int, int]:
        with torch.random.fork_rng():
            g.manual_seed(9)
            inside = g.initial_seed()
        return inside, g.initial_seed()

    compiled = thunder.jit(program)
    for g in (seeded(1), torch.default_generator, seeded(1)):
        torch.manual_seed(1)
        assert compiled(g) == ((9, 1) if g is torch.default_generator else (9, 9))


def test_a_seed_that_is_put_back_is_a_fact_again() -> None:
    def program() -> int:
        with torch.random.fork_rng():
            torch.manual_seed(3)
        return torch.initial_seed()

    compiled = thunder.jit(program)
    for seed in (11, 11, 12):
        torch.manual_seed(seed)
        assert compiled() == seed
    assert thunder.cache_misses(compiled) == 2


# -- refusals ------------------------------------------------------------------------------------------------


def test_what_torch_raises_the_program_can_catch() -> None:
    def program(g: torch.Generator) -> list[str]:
        texts = []
        for wrong in ("x", 2.5, None, 2**70):
            try:
                g.manual_seed(wrong)
            except (RuntimeError, ValueError) as error:
                texts.append(str(error))
        try:
            torch.Generator("meta")
        except RuntimeError as error:
            texts.append(str(error))
        return texts

    assert thunder.jit(program)(seeded()) == program(seeded())


def test_a_state_that_is_none_is_torchs_error() -> None:
    compiled = thunder.jit(lambda g, s: g.set_state(s))
    with pytest.raises(TypeError, match=r"RNG state must be a torch\.ByteTensor"):
        compiled(seeded(), torch.zeros(3))
    with pytest.raises(RuntimeError, match="Expected a CPUGeneratorImplState of size 5056"):
        compiled(seeded(), torch.zeros(3, dtype=torch.uint8))


def test_a_seed_of_chance_is_returned_and_not_computed_with() -> None:
    g = seeded()
    number = thunder.jit(lambda g: g.seed())(g)
    assert number == g.initial_seed()
    assert thunder.jit(torch.seed)() == torch.initial_seed()
    with pytest.raises(DataDependentControlFlow, match="a seed of it is drawn from the operating system"):
        thunder.jit(lambda g: torch.zeros(g.seed() % 3))(g)


@pytest.mark.parametrize(
    ("program", "text"),
    [
        (lambda g: g.get_offset(), r"torch\.Generator\.get_offset inside a compiled function"),
        (lambda g: g.graphsafe_get_state(), r"torch\.Generator\.graphsafe_get_state inside"),
        (lambda g: (g.seed(), g.initial_seed()), "the seed of a generator whose state only the run knows"),
        (lambda g: g.set_state(g.get_state()).initial_seed(), "the seed of a generator whose state only"),
        (lambda g: torch.cuda.seed(), "seeding by chance inside a compiled function"),
        (lambda g: torch.random.fork_rng(device_type="xpu").__enter__(), r"fork_rng of xpu devices inside"),
    ],
)
def test_what_cannot_be_right_is_refused_with_the_line(program: Callable[..., Any], text: str) -> None:
    with pytest.raises(UnsupportedProgram, match=text) as error:
        thunder.jit(program)(seeded())
    assert "test_generators.py" in str(error.value)


def test_seeding_is_traced_when_torch_has_wrapped_it() -> None:
    """So it does once its own compiler is loaded."""
    wrapped = _disable_dynamo(torch.random.manual_seed)
    assert_as_eager(lambda: (wrapped(5), torch.rand(2))[1], lambda: ())


def test_nothing_of_the_users_is_held_or_moved_by_a_plan() -> None:
    g = seeded()
    before, default = g.get_state(), torch.get_rng_state()
    plan = thunder.plan(lambda g: (g.manual_seed(4), torch.manual_seed(5), torch.rand(2, generator=g))[2], g)
    assert torch.equal(g.get_state(), before)
    assert torch.equal(torch.get_rng_state(), default)
    assert "torch.manual_seed(5)" in str(plan.traces[-1])


def test_a_plan_for_another_device_takes_generators_to_lie_there() -> None:
    def program(x: torch.Tensor, g: torch.Generator) -> torch.Tensor:
        assert g.device == x.device
        return x + torch.rand(3, 4, generator=g, device=x.device)

    plan = thunder.plan(program, X, seeded(), device="h200")
    assert '# g: "Generator cuda:0"' in str(plan.traces[-1])


class Sampler(torch.nn.Module):
    """Makes its generator when it is first called."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(X.clone())
        self.generator: torch.Generator | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.generator is None:
            self.generator = torch.Generator().manual_seed(5)
        noise: torch.Tensor = torch.rand(3, 4, generator=self.generator, dtype=x.dtype)
        x.add_(noise)
        return (x * self.weight * noise).sum()


def test_a_generator_that_the_program_makes_is_kept_where_it_puts_it() -> None:
    ours, theirs = Sampler(), Sampler()
    compiled = thunder.jit(ours)
    for _ in range(3):
        x, y = X.clone(), X.clone()
        for module, value in ((compiled, x), (theirs, y)):
            module(value).backward()
        assert torch.equal(x, y)
        torch.testing.assert_close(ours.weight.grad, theirs.weight.grad)
        assert torch.equal(plain(ours.generator), plain(theirs.generator))
    assert thunder.cache_misses(compiled) == 2
