"""Gradients of the operators of networks: what torch's database has no samples of, how much a forward grows,
and how much it keeps.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import thunder
from sweeping import one_in
from torch_language.gradients.differentiated_samples import (
    Sample,
    check_gradients,
    eager_derivatives,
    is_differentiated_by_torch,
    thunders_derivatives,
)

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, about modes that will change


def sample(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Sample:
    """A call of a function of torch, for the judge of gradients."""
    op = SimpleNamespace(
        name=fn.__name__, variant_test_name="", op=fn, gradcheck_wrapper=lambda fn, *a, **k: fn(*a, **k)
    )
    return Sample(op, lambda out: out, args, kwargs)


def real(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """A leaf of random numbers that requires grad."""
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


# -- against eager ---------------------------------------------------------------------------------


@pytest.mark.parametrize("align", [True, False])
@pytest.mark.parametrize("space", [(3, 4), (2, 3, 4)])
def test_affine_grid(space: tuple[int, ...], align: bool) -> None:
    n = len(space)
    assert check_gradients(sample(F.affine_grid, real(2, n, n + 1), (2, 3, *space), align), second=True)


@pytest.mark.parametrize(
    ("padding", "align"), [(p, a) for p in ("zeros", "border", "reflection") for a in (True, False)]
)
@pytest.mark.parametrize(
    ("mode", "space"),
    one_in(2, [("bilinear", 3), ("nearest", 3), ("bicubic", 2), ("nearest", 2), ("bilinear", 2)]),
)
def test_grid_sample_beyond_the_borders(mode: str, space: int, padding: str, align: bool) -> None:
    grid = (torch.rand(2, *(2,) * space, space, dtype=torch.float64) * 5 - 2.5).requires_grad_()
    x = real(2, 3, *range(3, 3 + space))
    second = space == 2 and is_differentiated_by_torch("grid_sampler_2d_backward")
    assert check_gradients(sample(F.grid_sample, x, grid, mode, padding, align), second=second)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_lp_pool(n: int) -> None:
    x = torch.rand(2, 3, *(6,) * n, dtype=torch.float64).add(0.5).requires_grad_()
    assert check_gradients(sample(getattr(F, f"lp_pool{n}d"), x, 3, 2, 2), second=True)


@pytest.mark.parametrize("name", ["max_pool2d", "adaptive_max_pool3d", "max_pool1d"])
def test_a_maximum_with_its_indices(name: str) -> None:
    x = real(2, 3, *(6,) * int(name[-2]))
    assert check_gradients(sample(getattr(F, name), x, 2, return_indices=True), second=True)


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("padding", [None, 1, -2])
def test_rows_that_are_looked_up_more_than_once(padding: int | None, scale: bool) -> None:
    index = torch.tensor([[1, 1, 2], [4, 1, 0]])
    assert check_gradients(sample(F.embedding, index, real(5, 3), padding, None, 2.0, scale), not scale)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("how", [{"size": (3, 9)}, {"scale_factor": (0.6, 1.7)}])
def test_antialiased_interpolation(mode: str, how: dict[str, Any]) -> None:
    assert check_gradients(sample(F.interpolate, real(2, 3, 5, 6), mode=mode, antialias=True, **how), True)


@pytest.mark.parametrize("recompute", [False, True])
def test_scales_are_those_of_the_user_unless_computed_again(recompute: bool) -> None:
    how = {"scale_factor": 1.7, "mode": "linear", "recompute_scale_factor": recompute}
    assert check_gradients(sample(F.interpolate, real(2, 3, 7), **how), second=True)


@pytest.mark.parametrize("kernel", [2, 3, (4, 1)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_a_convolution_of_the_same_size(kernel: Any, dtype: torch.dtype) -> None:
    sizes = (kernel, kernel) if isinstance(kernel, int) else kernel
    x, w, b = (real(*s, dtype=dtype) for s in ((2, 4, 5, 6), (6, 2, *sizes), (6,)))
    assert check_gradients(sample(F.conv2d, x, w, b, padding="same", dilation=2, groups=2), second=True)


def heads(batched: bool, separate: bool, mask: Any, padding: Any, biases: bool, **more: Any) -> Sample:
    e, h, b, n = 4, 2, 3, 5
    shape = (n, b, e) if batched else (n, e)
    batches = b if batched else 1
    later = torch.ones(n, n, dtype=torch.bool).triu(1)
    masks = {None: None, "bool": later, "2d": torch.zeros(n, n).double().masked_fill(later, -torch.inf)}
    masks["3d"] = torch.randn(batches * h, n, n).double()
    padded = {None: None, "bool": torch.arange(n).eq(n - 1), "float": torch.randn(n).double()}[padding]
    if padded is not None and batched:
        padded = padded.expand(b, n)
    weights = {f"{x}_proj_weight": real(e, e) for x in "qkv"} if separate else {}
    packed = None if separate else real(3 * e, e)
    in_bias = real(3 * e) if biases else None
    key_values = (real(1, 1, e), real(1, 1, e)) if biases else (None, None)
    arguments = (e, h, packed, in_bias, *key_values, biases, 0.0, real(e, e), real(e))
    inputs = (real(*shape), real(*shape), real(*shape))
    more = {**more, **weights, "use_separate_proj_weight": separate, "training": False}
    masking = {"attn_mask": masks[mask], "key_padding_mask": padded}
    return sample(F.multi_head_attention_forward, *inputs, *arguments, **masking, **more)


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize(("batched", "separate"), [(True, False), (False, True)])
def test_multi_head_attention(batched: bool, separate: bool, need_weights: bool) -> None:
    every = itertools.product((None, "bool", "2d", "3d"), (None, "bool", "float"), (False, True))
    for mask, padding, biases in every:
        call = heads(batched, separate, mask, padding, biases, need_weights=need_weights)
        assert check_gradients(call), (mask, padding, biases)


def test_a_causal_hint_without_weights() -> None:
    assert check_gradients(heads(True, False, "bool", None, False, need_weights=False, is_causal=True))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("key_heads", [4, 2])
def test_attention_by_the_kernel_is_differentiated_twice(key_heads: int, causal: bool) -> None:
    """Eager's kernel is not, so its formulas without it are the judge."""
    q, k, v = real(2, 4, 5, 8), real(2, key_heads, 6, 8), real(2, key_heads, 6, 8)
    call = sample(F.scaled_dot_product_attention, q, k, v, is_causal=causal, enable_gqa=key_heads < 4)
    found = thunders_derivatives(call, second=True)
    with sdpa_kernel(SDPBackend.MATH):
        expected = eager_derivatives(call, second=True)
    for order in ("results", "first", "second"):
        torch.testing.assert_close(list(getattr(found, order)), list(getattr(expected, order)))


# -- through thunder.jit ---------------------------------------------------------------------------


def kept_bytes(fn: Callable[..., Any], *args: torch.Tensor) -> tuple[torch.Tensor, int]:
    """The result, and the bytes of storages that autograd keeps for the backward, without the arguments'."""
    given = {x.untyped_storage().data_ptr() for x in args}
    kept: dict[int, int] = {}

    def pack(x: torch.Tensor) -> torch.Tensor:
        storage = x.untyped_storage()
        if storage.data_ptr() not in given:
            kept[storage.data_ptr()] = storage.nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        out = fn(*args)
    return out, sum(kept.values())


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def classify(x: torch.Tensor, w: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x @ w, t)


def layer(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x.sin(), (32,), w, b)


def root(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x.sin(), (32,), w)


def group(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.group_norm(x.sin(), 4, w, b)


def batch(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.batch_norm(x.sin(), None, None, w, b, True)


def soft(x: torch.Tensor) -> torch.Tensor:
    return F.softmax(x.sin(), -1)


def pool(x: torch.Tensor) -> torch.Tensor:
    return F.max_pool2d(x.sin(), 2)


def convolve(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.conv2d(x.sin(), w, b, padding=1)


#: function, shapes of its arguments, what its forward runs
PROGRAMS = [
    (attend, [(2, 4, 16, 8)] * 3, ["torch_flash_attention_for_cpu_impl"]),
    (layer, [(16, 32), (32,), (32,)], ["sin", "native_layer_norm"]),
    (root, [(16, 32), (32,)], ["sin", "rms_norm"]),
    (group, [(4, 8, 6), (8,), (8,)], ["sin", "torch_native_group_norm_impl"]),
    (batch, [(4, 8, 6), (8,), (8,)], ["sin", "torch_native_batch_norm_impl"]),
    (soft, [(16, 32)], ["sin", "softmax"]),
    (pool, [(2, 3, 8, 8)], ["sin", "max_pool2d_with_indices"]),
    (convolve, [(2, 3, 8, 8), (4, 3, 3, 3), (4,)], ["sin", "conv2d"]),
]
IDS = [fn.__name__ for fn, _, _ in PROGRAMS]


def executed(jitted: Any) -> list[str]:
    """Names of the operators that the last forward ran; of a result that is kept a view is returned."""
    structural = ("python_return", "python_del", "unpack_trivial", "comment", "torch_shallow_copy_prim_impl")
    return [b.sym.name for b in thunder.last_traces(jitted)[-1].bound_symbols if b.sym.name not in structural]


@pytest.mark.parametrize(("fn", "shapes", "names"), PROGRAMS, ids=IDS)
def test_a_forward_stays_whole(fn: Any, shapes: Any, names: list[str]) -> None:
    jitted = thunder.jit(fn)
    jitted(*(real(*s) for s in shapes))
    assert executed(jitted) == names


@pytest.mark.parametrize(("fn", "shapes"), [p[:2] for p in PROGRAMS], ids=IDS)
def test_no_more_is_kept_than_eager_keeps(fn: Any, shapes: Any) -> None:
    args = [real(*s) for s in shapes]
    jitted = thunder.jit(fn)
    jitted(*args)  # compiles
    (ours, kept), (theirs, known) = kept_bytes(jitted, *args), kept_bytes(fn, *args)
    assert kept <= known
    g = torch.randn_like(theirs)
    for a, b in zip(torch.autograd.grad(ours, args, g), torch.autograd.grad(theirs, args, g), strict=True):
        torch.testing.assert_close(a, b)


def test_cross_entropy_keeps_the_logarithms_alone() -> None:
    args = (real(64, 16), real(16, 128), torch.randint(0, 128, (64,)))
    jitted = thunder.jit(classify)
    jitted(*args)
    (ours, kept), (theirs, known) = kept_bytes(jitted, *args), kept_bytes(classify, *args)
    assert executed(jitted) == ["matmul", "log_softmax", "nll_loss"]
    assert kept <= known
    ours.backward()
    found = [x.grad for x in args[:2]]
    expected = torch.autograd.grad(theirs, args[:2])
    torch.testing.assert_close(found, list(expected))


@pytest.mark.parametrize(("fn", "shapes"), [p[:2] for p in PROGRAMS], ids=IDS)
def test_half_precision(fn: Any, shapes: Any) -> None:
    args = [real(*s, dtype=torch.bfloat16) for s in shapes]
    ours, theirs = thunder.jit(fn)(*args), fn(*args)
    g = torch.randn_like(theirs)
    found, expected = (torch.autograd.grad(out, args, g) for out in (ours, theirs))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=5e-2, atol=5e-2)


def statistics() -> Iterator[tuple[Any, torch.nn.Module]]:
    for affine in (False, True):
        for kind in (torch.nn.BatchNorm1d, torch.nn.InstanceNorm1d):
            yield kind, kind(4, affine=affine, track_running_stats=True)


@pytest.mark.parametrize("training", [True, False])
def test_running_statistics_after_a_step(training: bool) -> None:
    for kind, module in statistics():
        other = kind(4, affine=module.affine, track_running_stats=True)
        other.load_state_dict(module.state_dict())
        module.train(training), other.train(training)
        x, g = real(3, 4, 5, dtype=torch.float32), torch.randn(3, 4, 5)
        found = torch.autograd.grad(thunder.jit(module)(x), [x, *module.parameters()], g)
        expected = torch.autograd.grad(other(x), [x, *other.parameters()], g)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(module.state_dict(), other.state_dict(), rtol=0, atol=0)


def test_a_sparse_gradient_is_refused_by_name() -> None:
    look_up = thunder.jit(lambda i, w: F.embedding(i, w, sparse=True))
    with pytest.raises(thunder.core.errors.UnsupportedOperator, match="sparse"):
        look_up(torch.tensor([1]), real(3, 2))


def test_rows_are_scaled_before_they_are_looked_up() -> None:
    module, other = (torch.nn.Embedding(5, 3, max_norm=0.5) for _ in range(2))
    other.load_state_dict(module.state_dict())
    index, g = torch.tensor([1, 1, 4]), torch.randn(3, 3)
    thunder.jit(module)(index).backward(g)
    other(index).backward(g)
    torch.testing.assert_close(module.weight.grad, other.weight.grad)
    torch.testing.assert_close(module.weight, other.weight, rtol=0, atol=0)


def statistics_by_strides() -> Iterator[tuple[torch.Tensor, torch.Tensor, tuple[int, ...]]]:
    """Inputs, plain gradients, and strides in which the gradients are channels-last for a batch of one."""
    for shape, strides in [((1, 4, 3, 3), (4, 1, 12, 4)), ((1, 4, 5, 1), (1, 1, 4, 9))]:
        yield real(*shape), torch.randn(shape, dtype=torch.float64), strides


def test_a_gradient_in_other_strides_is_that_of_the_same_numbers() -> None:
    for x, plain, strides in statistics_by_strides():
        g = torch.empty_strided(x.shape, strides, dtype=x.dtype).copy_(plain)
        (expected,) = torch.autograd.grad(F.batch_norm(x, None, None, training=True), x, plain)
        program = thunder.jit(lambda x: F.batch_norm(x, None, None, training=True))
        torch.testing.assert_close(torch.autograd.grad(program(x), x, g)[0], expected)


def test_a_gradient_of_a_product_reaches_batch_norm_as_numbers_in_the_order_of_its_input() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        normal = F.batch_norm(x, None, None, training=True)
        return torch.einsum("bcn,bnc->b", normal.flatten(2), w)

    x, w = real(1, 4, 3, 3), torch.randn(1, 9, 4, dtype=torch.float64)
    expected, found = (torch.autograd.grad(f(x, w), x) for f in (program, thunder.jit(program)))
    torch.testing.assert_close(found, expected)
