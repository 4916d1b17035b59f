"""Programs compiled for many shapes compute what eager computes, forward and gradients."""

import itertools

import pytest
import torch
import torch.nn.functional as F

import thunder
from sweeping import one_in
from symbolic.static_reasons import failure_of

R = torch.randn


def _attention(x, w):
    batch, length, width = x.shape
    q, k, v = (
        part.view(batch, length, 2, width // 2).transpose(1, 2) for part in F.linear(x, w).split(width, dim=2)
    )
    scores = (q @ k.transpose(-2, -1)) * (width // 2) ** -0.5
    scores = scores.masked_fill(torch.tril(torch.ones(length, length)) == 0, float("-inf"))
    return (scores.softmax(-1) @ v).transpose(1, 2).contiguous().view(batch, length, width)


def _loop(x):
    total = 0
    for i in range(x.shape[0]):
        total = total + x[i] * i
    return total


def _masked(x):
    """Mask scores by a function of positions, as libraries of models do."""
    rows, columns = (torch.arange(n) for n in x.shape[-2:])
    mask = torch.vmap(torch.vmap(lambda i, j: i + 1 >= j, (None, 0)), (0, None))(rows, columns)
    return x.masked_fill(~mask, 0.0)


def _written(x):
    y = x.clone()
    y[:, :1] = 0
    return y


THREE = 3

#: name → program, arguments for three sizes, and the most compiles for the sizes of ``SIZES``
PROGRAMS = {
    "elementwise": (lambda x, y: torch.sin(x) * y + x.exp(), lambda b, n, m: (R(b, n), R(b, n)), 1),
    "broadcast": (lambda x, y: x * y + x, lambda b, n, m: (R(b, n, m), R(n, 1)), 5),
    "reduce": (lambda x: x.sum(0) / x.shape[0] + x.mean(), lambda b, n, m: (R(b, n),), 4),
    "linear": (F.linear, lambda b, n, m: (R(b, n, 5), R(3, 5), R(3)), 4),
    "softmax": (lambda x: torch.softmax(x, -1).log_softmax(0), lambda b, n, m: (R(b, n),), 4),
    "layer_norm": (lambda x, w: F.layer_norm(x, (5,), w), lambda b, n, m: (R(b, n, 5), R(5)), 5),
    "reshape": (
        lambda x: x.reshape(x.shape[0], -1).transpose(0, 1).reshape(-1),
        lambda b, n, m: (R(b, n, m),),
        8,
    ),
    "view": (lambda x: x.view(x.size(0) * x.size(1), -1) * 2, lambda b, n, m: (R(b, n, m),), 9),
    "cat": (lambda x, y: torch.cat([x, y, x], 1) + 1, lambda b, n, m: (R(b, n), R(b, m)), 1),
    "chunk": (lambda x: sum(x.chunk(2, -1)), lambda b, n, m: (R(b, 2 * n),), 2),
    "split": (lambda x: x.split(x.shape[1] // 2, 1)[0], lambda b, n, m: (R(b, 2 * n),), 4),
    "slice": (lambda x: x[:, 1:] * 2 + x[:, :-1], lambda b, n, m: (R(b, n + 1),), 4),
    "positions": (lambda x: x[:, -1] + x[..., 0], lambda b, n, m: (R(b, n + 1),), 2),
    "slice_to_size": (lambda x: x[:, : x.shape[0]].sum(), lambda b, n, m: (R(b, n),), 4),
    "arange": (lambda x: torch.arange(x.shape[1]) + x, lambda b, n, m: (R(b, n),), 5),
    "embedding": (
        lambda i, w: F.embedding(i, w).sum(-1),
        lambda b, n, m: (torch.randint(0, 6, (b, n)), R(6, 3)),
        4,
    ),
    "cross_entropy": (
        lambda x, t: F.cross_entropy(x.view(-1, 5), t.view(-1)),
        lambda b, n, m: (R(b, n, 5), torch.randint(0, 5, (b, n))),
        3,
    ),
    "attention": (_attention, lambda b, n, m: (R(b, n, 4), R(12, 4)), 9),
    "pad": (lambda x: F.pad(x, (1, 2)), lambda b, n, m: (R(b, n),), 4),
    "branch": (lambda x: x * 2 if x.shape[0] > 2 else x - 1, lambda b, n, m: (R(b, n),), 2),
    "branch_on_remainder": (lambda x: x * 2 if x.numel() % 2 == 0 else x - 1, lambda b, n, m: (R(b, n),), 2),
    "loop": (_loop, lambda b, n, m: (R(b, n),), 9),
    "sizes": (lambda x: (x * 2, x.shape[0], x.shape[0] * x.shape[1], x.shape), lambda b, n, m: (R(b, n),), 1),
    "types": (
        lambda x: (isinstance(x.shape[0], int), type(x.shape), x.shape[0].__class__, (2, *x.shape)),
        lambda b, n, m: (R(b, n),),
        9,
    ),
    "text": (lambda x: f"{x.shape[0]} columns", lambda b, n, m: (R(b, n),), 9),
    "identity": (lambda x: (x.shape[0] is THREE, THREE is x.shape[1], x * 2), lambda b, n, m: (R(b, n),), 9),
    "key": (lambda x: {x.shape[0]: x * 2}, lambda b, n, m: (R(b, n),), 7),
    "minimum": (lambda x: x[:, : max(1, min(x.shape[0], x.shape[1]))], lambda b, n, m: (R(b, n),), 6),
    "numbers": (lambda x: x * int(x.shape[0]) * float(x.shape[1]), lambda b, n, m: (R(b, n),), 9),
    "indexing": (lambda x, i: x[i], lambda b, n, m: (R(b, n), torch.randint(0, b, (m,))), 1),
    "in_place": (_written, lambda b, n, m: (R(b, n),), 9),
    "conv": (
        lambda x, w: F.conv2d(x, w, padding=1),
        lambda b, n, m: (R(b, 2, n + 2, m + 2), R(3, 2, 3, 3)),
        1,
    ),
    "einsum": (
        lambda x, y: torch.einsum("bij,bjk->bik", x, y),
        lambda b, n, m: (R(b, n, 3), R(b, 3, m)),
        4,
    ),
    "mask_of_positions": (_masked, lambda b, n, m: (R(b, n, m),), 6),
    "downwards": (
        lambda x: torch.arange(x.shape[0], -x.shape[1], -1.0, dtype=torch.long) * 2,
        lambda b, n, m: (R(b, n),),
        1,
    ),
    "empty_in_cat": (lambda x, y: torch.cat([x[:0, 0], y, x[:, 0]]), lambda b, n, m: (R(b, n), R(m)), 2),
    "transposed": (lambda x: (x * 2).sum(0), lambda b, n, m: (R(n, b).t(),), 4),
}
SIZES = [(3, 4, 5), (6, 7, 8), (5, 9, 2), (4, 6, 7), (2, 2, 2), (1, 3, 4), (3, 1, 2), (1, 1, 1), (7, 5, 3)]


def _leaves(value):
    return (
        value if isinstance(value, tuple) else tuple(value.values()) if isinstance(value, dict) else (value,)
    )


def _assert_same(actual, expected):
    assert type(actual) is type(expected)
    if isinstance(expected, torch.Tensor):
        assert actual.stride() == expected.stride()
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
    elif isinstance(expected, tuple):
        for a, e in zip(actual, expected, strict=True):
            _assert_same(a, e)
    elif isinstance(expected, dict):
        _assert_same(tuple(actual.items()), tuple(expected.items()))
    else:
        assert actual == expected


def _run(fn, arguments):
    result = fn(*arguments)
    tensors = [t for t in _leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
    if tensors:
        sum((t * t).sum() for t in tensors).backward()
    return result, [x.grad for x in arguments if x.requires_grad]


@pytest.mark.parametrize(
    ("name", "grad", "mode"),
    one_in(5, itertools.product(PROGRAMS, (False, True), ("symbolic values", "automatic"))),
)
def test_a_program_for_many_shapes_computes_what_eager_computes(name, grad, mode):
    fn, make, most = PROGRAMS[name]
    compiled = thunder.jit(fn, cache=mode)
    for sizes in SIZES:
        torch.manual_seed(0)
        arguments = [
            x.requires_grad_(grad and x.is_floating_point()) for x in map(torch.detach, make(*sizes))
        ]
        copies = [x.detach().requires_grad_(x.requires_grad) for x in arguments]
        expected, gradients = _run(fn, arguments)
        actual, computed = _run(compiled, copies)
        _assert_same(actual, expected)
        for a, e in zip(computed, gradients, strict=True):
            torch.testing.assert_close(a, e, rtol=1e-4, atol=1e-5)
    assert thunder.cache_misses(compiled) <= (most if mode == "symbolic values" else most + 1)


def test_each_fact_that_is_broken_refuses_the_entry():
    def program(x, y):
        if x.shape[0] * 2 > x.shape[1] and y.shape[0] % 4 == 0:
            return x[:, :3] @ y[:3]
        return x

    compiled = thunder.jit(program, cache="symbolic values")
    compiled(R(5, 6), R(8, 3))
    entry = thunder.compile_stats(compiled).interpreter_cache[0]
    facts = [fact for fact in entry.guards if fact.sym.name == "check_sizes"]
    broken = set()
    for a, b, c, d in itertools.product((0, 1, 2, 3, 5), (2, 3, 4, 6, 9), (0, 3, 4, 5, 8), (1, 3, 0)):
        arguments = torch.ones(a, b), torch.ones(c, d)
        failures = {str(f) for f in facts if f.failure({"args": arguments, "kwargs": {}}) is not None}
        broken |= failures
        assert (entry.prologue_fn(*arguments) is None) == bool(failures)
        try:
            expected = program(*arguments)
        except RuntimeError:
            continue
        torch.testing.assert_close(compiled(*arguments), expected)
    assert broken == {str(fact) for fact in facts}


def test_the_trace_names_sizes_and_runs_as_text():
    def program(x):
        return x.reshape(x.shape[0] * 2, -1) * x.shape[1]

    compiled = thunder.jit(program, cache="symbolic values")
    compiled(R(3, 4))
    trace = thunder.last_traces(compiled)[-1]
    text = str(trace)
    assert 'x: "cpu f32[i0, i1]"' in text
    assert "(2 * i0), -1)" in text
    scope = dict(trace.python_ctx())
    exec(text, scope)
    x = R(5, 6)
    assert torch.equal(scope["computation"](x, 5, 6), program(x))


def test_sizes_that_a_later_fact_makes_equal_are_one_in_a_trace_that_is_checked():
    def program(x, y):
        early = (x.transpose(0, 1) * 2, y.transpose(0, 1) * 3)  # before it is known that lengths are equal
        return early[0] + early[1]

    compiled = thunder.jit(program, cache="symbolic values")
    for n in (4, 7, 5):
        x, y = R(n, 3, requires_grad=True), R(n, 3, requires_grad=True)
        actual, expected = (torch.autograd.grad(f(x, y).sin().sum(), (x, y)) for f in (compiled, program))
        torch.testing.assert_close(actual, expected)
    assert failure_of(compiled) is None
    assert thunder.cache_misses(compiled) == 1


def test_a_slice_that_is_written_has_any_length():
    def shifted(ids, start):
        result = ids.new_zeros(ids.shape)
        result[..., 1:] = ids[..., :-1].clone()
        result[..., 0] = start
        return result

    compiled = thunder.jit(shifted, cache="symbolic values")
    for n in (4, 7, 5):
        ids = torch.arange(2 * n).reshape(2, n)
        assert torch.equal(compiled(ids, 3), shifted(ids, 3))
    assert failure_of(compiled) is None
    assert thunder.cache_misses(compiled) == 1


def test_a_missing_cotangent_and_a_second_derivative_have_the_sizes_of_their_call():
    def program(x, w):
        y = x * w
        return y.sum(0), (y * y).sum(1)

    compiled = thunder.jit(program, cache="symbolic values")
    for rows in (3, 5, 4):
        x, w = R(rows, 2, requires_grad=True), R(2, requires_grad=True)
        (actual,) = torch.autograd.grad(compiled(x, w)[1].sum(), x, create_graph=True)
        (expected,) = torch.autograd.grad(program(x, w)[1].sum(), x, create_graph=True)
        torch.testing.assert_close(actual, expected)
        torch.testing.assert_close(
            torch.autograd.grad(actual.sum(), w), torch.autograd.grad(expected.sum(), w)
        )
    assert thunder.cache_misses(compiled) == 1


def test_an_attribute_written_from_a_size_has_that_of_its_call():
    class Model(torch.nn.Module):
        def forward(self, x):
            self.seen = x.shape[0] * 2
            self.shape = x.shape
            return x + 1

    model = Model()
    compiled = thunder.jit(model, cache="symbolic values")
    for rows in (3, 5, 4):
        compiled(R(rows, 2))
        assert (compiled.seen, compiled.shape) == (2 * rows, torch.Size([rows, 2]))
        assert type(compiled.shape) is torch.Size


def test_inputs_that_overlap_have_fixed_sizes():
    def program(x, y):
        x.add_(1)
        return x.sum() + y.sum()

    compiled = thunder.jit(program, cache="symbolic values")
    for rows in (4, 6, 4):
        memory, other = torch.arange(8.0), torch.arange(8.0)
        actual = compiled(memory[:rows], memory[rows // 2 :])
        assert actual == program(other[:rows], other[rows // 2 :])
        assert torch.equal(memory, other)


def test_traces_of_symbolic_programs_are_checked():
    compiled = thunder.jit(
        lambda x, w: F.layer_norm(torch.softmax(x @ w, -1), (3,)),
        cache="symbolic values",
        debug_options=thunder.DebugOptions(check_traces=True),
    )
    w = R(4, 3, requires_grad=True)
    for rows in (3, 5):
        compiled(R(rows, 4), w).sum().backward()
    assert thunder.cache_misses(compiled) == 1
    assert failure_of(compiled) is None


def test_the_reason_of_a_recompile_names_the_relation_and_the_line_that_asked():
    def program(x):
        return x * 2 if x.shape[0] > 2 else x

    compiled = thunder.jit(program, cache="symbolic values")
    for rows in (4, 1):
        compiled(R(rows))
    (reason,) = thunder.compile_stats(compiled).last_recompile_reasons
    assert (reason.fact, reason.found, reason.source) == ("args[0].shape[0] >= 3", 1, "args[0].shape[0]")
    assert reason.expected.startswith("args[0].shape[0] >= 3, asked at ")
    assert reason.expected.endswith("return x * 2 if x.shape[0] > 2 else x")


class _Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.projection, self.out = torch.nn.Linear(8, 24), torch.nn.Linear(8, 8)
        self.register_buffer("mask", torch.tril(torch.ones(12, 12)))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            t.view(batch, length, 2, 4).transpose(1, 2) for t in self.projection(x).split(width, dim=2)
        )
        scores = (q @ k.transpose(-1, -2)).masked_fill(self.mask[:length, :length] == 0, -1e9)
        y = scores.softmax(-1) @ v + F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


def test_a_module_is_trained_on_batches_of_any_length_with_one_compile():
    torch.manual_seed(0)
    eager = _Attention()
    copy = _Attention()
    copy.load_state_dict(eager.state_dict())
    compiled = thunder.jit(copy, cache="symbolic values")
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (eager, copy)]
    for batch, length in ((2, 5), (3, 7), (4, 5), (2, 9), (5, 6)):
        x = R(batch, length, 8)
        for model, optimizer in zip((eager, compiled), optimizers, strict=True):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    for a, e in zip(copy.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(a, e, rtol=1e-4, atol=1e-5)
    assert thunder.cache_misses(compiled) == 1


@pytest.mark.parametrize("shape", [(0, 1, 5, 5), (3, 0, 4), (1, 1, 4), (2, 1, 1, 3), (5, 0)])
def test_strides_of_empty_dimensions_and_of_one_element_are_products_of_sizes(shape):
    compiled = thunder.jit(lambda x: x.exp() * 2, cache="symbolic values")
    for step in range(3):
        x = torch.randn([n + step if n > 1 else n for n in shape])
        torch.testing.assert_close(compiled(x), x.exp() * 2)
    assert thunder.cache_misses(compiled) == 1


@pytest.mark.parametrize("cache", ["symbolic values", "constant values"])
def test_what_cat_joins_has_a_gradient_without_elements_too(cache):
    compiled = thunder.jit(lambda x: torch.cat([x.new_zeros(0), x]), cache=cache)
    for n in (0, 3, 0):
        x = R(n, requires_grad=True)
        (gradient,) = torch.autograd.grad(compiled(x).sum(), x)
        assert torch.equal(gradient, torch.ones(n))


def test_the_gradient_of_a_quantile_fixes_no_size():
    compiled = thunder.jit(lambda x: torch.quantile(x, 0.3, 0), cache="symbolic values", executors=["torch"])
    for n in (5, 8, 4):
        x = R(n, 3, requires_grad=True)
        found, expected = (torch.autograd.grad(y.sum(), x) for y in (compiled(x), torch.quantile(x, 0.3, 0)))
        torch.testing.assert_close(found, expected)
    assert thunder.cache_misses(compiled) == 1


def test_the_memory_of_a_program_with_symbols_is_estimated_for_the_traced_call():
    def program(x, w):
        return F.conv2d(x, w, padding=1).relu().sum(1)

    texts = []
    for cache in ("symbolic values", "constant values"):
        compiled = thunder.jit(program, cache=cache, executors=["torch"])
        x, w = R(2, 3, 8, 8, requires_grad=True), R(4, 3, 3, 3, requires_grad=True)
        compiled(x, w).sum().backward()
        estimate = thunder.plan(compiled, x, w).memory
        assert all(type(n) is int for n in (estimate.peak, estimate.saved, estimate.backward))
        texts.append((estimate.peak, estimate.saved, estimate.backward))
    assert texts[0] == texts[1]
