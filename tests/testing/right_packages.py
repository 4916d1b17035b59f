"""Ten small packages that are right, each of another kind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from testing.example_executors import Trial, name, tensor
from thunder import TensorProxy
from thunder.core.pytree import tree_map
from thunder.core.transforms import get_grad, put_grad, put_grads
from thunder.extend import EagerStrides, FusionExecutor, OperatorExecutor, Refusal
from thunder.ops.operator import row_of
from thunder.torch.namespace import ltorch

__all__ = ["PACKAGES"]


# -- 1: an elementwise kernel, whose operator has the name of one of torch -----------------------------------


def elementwise() -> Trial:
    """A softplus with a width, in place of a function, beside a kernel of torch's softplus."""

    def softplus(x: torch.Tensor, width: float = 1.0) -> torch.Tensor:
        return torch.log1p(torch.exp(-torch.abs(x / width))) * width + torch.relu(x)

    def kernel(x: torch.Tensor, width: float = 1.0) -> torch.Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        return softplus(wide, width).to(x.dtype)

    def checker(x: Any, width: float = 1.0) -> bool | Refusal:
        return width > 0 or Refusal("width", "the width is a positive number", width=width)

    executor = OperatorExecutor(name())
    own = executor.register_operator("softplus", like=softplus, fn=kernel, replaces=softplus)
    executor.register_implementation(own, own, checker=checker)
    torchs = executor.register_operator("torchs_softplus", like=F.softplus, fn=F.softplus)
    executor.register_implementation(F.softplus, torchs)
    return Trial(executor, {"samples": {"softplus": [(tensor(3, 4),), ((tensor(5), 0.5), {})]}})


# -- 2: a compiler of regions, in which some operators form none alone ---------------------------------------


class _Regions(FusionExecutor):
    """Computes regions of elementwise operators that end in a comparison or a sum."""

    def compile_region(self, region: Any) -> Any:
        if sum(call.sym.id in ("torch.sin", "torch.mul") for call in region.bsyms) < 2:
            return Refusal("small", "a region has at least two elementwise calls")
        strides = EagerStrides(region)

        def run(*tensors: torch.Tensor) -> list[torch.Tensor]:
            values = {p.name: x for p, x in zip(region.inputs, tensors, strict=True)}
            for call in region.bsyms:
                args, kwargs = tree_map(
                    lambda x: values.get(getattr(x, "name", None), x), (call.args, call.kwargs)
                )
                values[call.output.name] = row_of(call.sym.id).eager(*args, **kwargs)
            return strides.apply([values[p.name] for p in region.outputs], tensors)

        return run


def fusion() -> Trial:
    """A fusion executor of elementwise operators, comparisons and sums."""
    executor = _Regions(name())
    for operator_id in ("torch.sin", "torch.mul", "torch.lt", "torch.sum"):
        executor.register_supported(operator_id)
    x, y = tensor(3, 4), tensor(3, 4, seed=1)
    samples = {
        "torch.sin": [(x,)],
        "torch.mul": [(x, y)],
        "torch.lt": [(x, y)],
        "torch.sum": [((x, 1), {})],
    }
    return Trial(executor, {"samples": samples})


# -- 3: a reduction, with a result that has no gradient ------------------------------------------------------


def reduction() -> Trial:
    """A log-sum-exp of rows, and the largest element of each, without gradient, for the backward."""

    def rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.logsumexp(x, -1), x.amax(-1)

    def meta(x: Any) -> Any:
        shape = tuple(x.shape)[:-1]
        return TensorProxy(like=x, shape=shape), TensorProxy(like=x, shape=shape, requires_grad=False)

    def kernel(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        largest = wide.amax(-1, keepdim=True)
        shift = torch.where(largest.isfinite(), largest, 0.0)
        total = (wide - shift).exp().sum(-1).log() + shift.squeeze(-1)
        return total.to(x.dtype).contiguous(), x.amax(-1)

    def checker(x: Any) -> bool | Refusal:
        if not x.dtype.is_floating_point:
            return Refusal("dtype", "rows are of floating-point numbers", found=x.dtype)
        return (x.ndim > 0 and x.shape[-1] > 0) or Refusal("shape", "a row has at least one element")

    executor = OperatorExecutor(name())
    symbol = executor.register_operator("rows", meta=meta, fn=kernel)

    def rule(x: Any) -> Any:
        total, largest = symbol(x)
        share = ltorch.exp(ltorch.sub(x, ltorch.unsqueeze(total, -1)))
        put_grad(x, ltorch.mul(ltorch.unsqueeze(get_grad(total), -1), share))
        return total, largest

    executor.register_implementation(symbol, symbol, checker=checker, grad_transform=rule)
    samples = {"rows": [(tensor(3, 4),), (torch.zeros(2, 5),)]}
    return Trial(executor, {"samples": samples, "references": {"rows": rows}})


# -- 4: attention by torch's own kernel ----------------------------------------------------------------------


def attention() -> Trial:
    """Torch's attention by its kernel for CPUs, with the gradient of torch's operator."""

    def kernel(query: Any, key: Any, value: Any, is_causal: bool = False) -> Any:
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query.contiguous(), key.contiguous(), value.contiguous(), 0.0, is_causal
        )[0].contiguous()

    def checker(
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: Any = None,
        enable_gqa: bool = False,
    ) -> bool | Refusal:
        if attn_mask is not None or dropout_p or scale is not None or enable_gqa or query.ndim != 4:
            return Refusal("arguments", "plain attention of four dimensions alone")
        if query.device.type != "cpu" or not query.dtype.is_floating_point or 0 in query.shape:
            return Refusal("tensors", "tensors with elements on CPUs")
        same = query.shape[-1] == key.shape[-1] == value.shape[-1] and query.shape[:2] == key.shape[:2]
        dense = query.dtype is key.dtype is value.dtype and 0 not in key.shape
        return (same and dense and key.shape == value.shape) or Refusal("shape", "heads of one width")

    def by_kernel(query: Any, key: Any, value: Any, *rest: Any, **named: Any) -> Any:
        is_causal = named.get("is_causal", rest[2] if len(rest) > 2 else False)
        return flash(query, key, value, is_causal)

    executor = OperatorExecutor(name())

    def meta(query: Any, key: Any, value: Any, is_causal: bool = False) -> Any:
        return TensorProxy(like=query)

    flash = executor.register_operator("attention", meta=meta, fn=kernel)
    executor.register_implementation(
        "torch.nn.functional.scaled_dot_product_attention",
        checker=checker,
        execution_transform=by_kernel,
    )
    q, k, v = (tensor(2, 2, 6, 8, seed=i) for i in range(3))
    return Trial(
        executor,
        {
            "samples": {
                "attention": [(q, k, v)],
                "torch.nn.functional.scaled_dot_product_attention": [
                    (q, k, v),
                    ((q, k, v), {"is_causal": True}),
                ],
            },
            "references": {"attention": F.scaled_dot_product_attention},
            "operators": "torch.*",
        },
    )


# -- 5: an operator that writes to its arguments -------------------------------------------------------------


def in_place() -> Trial:
    """A cache of keys and values that a call extends, and the sum of the new ones."""

    def extend(k: torch.Tensor, v: torch.Tensor, new: torch.Tensor, at: int) -> torch.Tensor:
        k[at].copy_(new)
        v[at].copy_(new * 2)
        return new.sum(-1)

    def meta(k: Any, v: Any, new: Any, at: int) -> Any:
        return TensorProxy(like=new, shape=tuple(new.shape)[:-1])

    def checker(k: Any, v: Any, new: Any, at: int) -> bool | Refusal:
        fits = tuple(k.shape) == tuple(v.shape) and tuple(k.shape)[1:] == tuple(new.shape)
        if not (fits and k.ndim == 2 and 0 <= at < k.shape[0]):
            return Refusal("shape", "a row that is in the cache is written")
        return k.dtype is v.dtype is new.dtype or Refusal("dtype", "the tensors have one dtype")

    executor = OperatorExecutor(name())
    symbol = executor.register_operator("extend", meta=meta, fn=extend, mutates=("k", "v"), replaces=extend)
    executor.register_implementation(symbol, symbol, checker=checker)
    samples = [((torch.zeros(4, 3), torch.zeros(4, 3), tensor(3), 1), {})]
    return Trial(executor, {"samples": {"extend": samples}})


# -- 6: an operator of torch.library with a backward ---------------------------------------------------------


@torch.library.custom_op("rightpackages::square_norm", mutates_args=())
def square_norm(x: torch.Tensor, scale: float) -> torch.Tensor:
    """The squares of x, times a number."""
    return x * x * scale


@square_norm.register_fake
def _(x: torch.Tensor, scale: float) -> torch.Tensor:
    return torch.empty_like(x)


square_norm.register_autograd(
    lambda ctx, g: (2 * g * ctx.saved_tensors[0] * ctx.scale, None),
    setup_context=lambda ctx, inputs, output: (
        ctx.save_for_backward(inputs[0]),
        setattr(ctx, "scale", inputs[1]),
    ),
)


def custom_operator() -> Trial:
    """A kernel of an operator of torch.library, with a gradient."""

    def kernel(x: torch.Tensor, scale: float) -> torch.Tensor:
        return (x.square() * scale).to(x.dtype)

    executor = OperatorExecutor(name())
    symbol = executor.register_operator(
        "square_norm",
        meta=lambda x, scale: TensorProxy(like=x),
        fn=kernel,
        replaces=square_norm,
        vjp={"x": lambda c: 2 * c.g * c.x * c.scale, "scale": None},
    )
    samples = {symbol: [((tensor(3, 4), 0.5), {})]}
    return Trial(executor, {"samples": samples, "references": {symbol: lambda x, scale: x * x * scale}})


# -- 7: random numbers ---------------------------------------------------------------------------------------


def random_numbers() -> Trial:
    """A tensor with noise."""
    from thunder.core.prims import OpTags

    def noisy(x: torch.Tensor, scale: float = 0.1) -> torch.Tensor:
        return x + scale * torch.randn(x.shape, dtype=x.dtype, device=x.device)

    executor = OperatorExecutor(name())
    symbol = executor.register_operator(
        "noisy",
        meta=lambda x, scale=0.1: TensorProxy(like=x),
        fn=lambda x, scale: torch.empty_like(x).copy_(noisy(x, scale)),
        tags=(OpTags.RANDOM_OP,),
        vjp={"x": lambda c: c.g, "scale": None},
    )
    return Trial(
        executor,
        {
            "samples": {symbol: [(tensor(3, 4),)]},
            "references": {symbol: lambda x, scale=0.1: torch.empty_like(x).copy_(noisy(x, scale))},
            "dtypes": (torch.float32, torch.float64),
        },
    )


# -- 8: a workspace ------------------------------------------------------------------------------------------


class _Workspace(threading.local):
    """One buffer for each thread, as large as the largest call needed it."""

    buffer = torch.empty(0)

    def of(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """A tensor of so many elements, whose content is undefined."""
        if self.buffer.numel() < count or self.buffer.dtype is not dtype:
            self.buffer = torch.empty(count, dtype=dtype)
        return self.buffer[:count]


def workspace() -> Trial:
    """A kernel that computes in a workspace, and tries again in less memory."""
    space = _Workspace()

    def kernel(x: torch.Tensor) -> torch.Tensor:
        dtype = torch.promote_types(x.dtype, torch.float32)
        try:
            out = torch.empty_like(x)
            buffer = space.of(x.numel(), dtype).view(x.shape)
            torch.exp(x.to(dtype), out=buffer)
            return out.copy_(buffer / (1 + buffer))
        except torch.OutOfMemoryError:
            try:
                return torch.sigmoid(x.clone())
            except torch.OutOfMemoryError:
                raise

    def stable(x: torch.Tensor) -> torch.Tensor:
        return torch.where(x.abs() < 80, kernel(x), torch.sigmoid(x))

    executor = OperatorExecutor(name())
    symbol = executor.register_operator("logistic", like=torch.sigmoid, fn=stable)
    executor.register_implementation(torch.sigmoid, symbol, workspace=lambda input: 4 * input.numel())
    return Trial(executor, {"samples": {"torch.sigmoid": [(tensor(3, 4),)]}, "operators": "torch.*"})


# -- 9: a kernel for a rewrite rule --------------------------------------------------------------------------


def rewritten() -> Trial:
    """The operator by which a rule replaces a product of a sigmoid."""

    def gated(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(w)

    def kernel(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.mul(torch.sigmoid(w), x) if x.stride() == w.stride() else gated(x, w)

    executor = OperatorExecutor(name())
    symbol = executor.register_operator("gated", like=gated, fn=kernel)
    return Trial(executor, {"samples": {symbol: [(tensor(3, 4), tensor(3, 4, seed=1))]}})


# -- 10: a gradient of torch's operator ----------------------------------------------------------------------


def gradient() -> Trial:
    """The gradient of torch's layer_norm over the last dimension, by two operators."""

    def meta(x: Any, weight: Any, bias: Any, eps: float) -> Any:
        rows = tuple(x.shape)[:-1]
        statistic = TensorProxy(like=x, shape=(*rows, 1), requires_grad=False)
        return TensorProxy(like=x), statistic, TensorProxy(like=x, shape=(*rows, 1), requires_grad=False)

    def forward(x: Any, weight: Any, bias: Any, eps: float) -> Any:
        return torch.native_layer_norm(x, x.shape[-1:], weight, bias, eps)

    def backward(g: Any, x: Any, mean: Any, rstd: Any, weight: Any, bias: Any) -> Any:
        return torch.ops.aten.native_layer_norm_backward(
            g.contiguous(), x.contiguous(), x.shape[-1:], mean, rstd, weight, bias, [True, True, True]
        )

    def backward_meta(g: Any, x: Any, mean: Any, rstd: Any, weight: Any, bias: Any) -> Any:
        return TensorProxy(like=x), TensorProxy(like=weight), TensorProxy(like=bias)

    def checker(input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> bool | Refusal:
        if weight is None or bias is None or len(normalized_shape) != 1:
            return Refusal("arguments", "one dimension, with weight and bias")
        if not (input.dtype.is_floating_point and input.dtype is weight.dtype is bias.dtype):
            return Refusal("dtype", "the tensors have one floating-point dtype", found=input.dtype)
        return (input.ndim > 1 and 0 not in input.shape) or Refusal("shape", "rows with elements")

    executor = OperatorExecutor(name())
    norm = executor.register_operator("norm", meta=meta, fn=forward)
    norm_backward = executor.register_operator("norm_backward", meta=backward_meta, fn=backward)

    def by_kernel(input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Any:
        out, mean, rstd = norm(input, weight, bias, eps)
        put_grads((input, weight, bias), norm_backward(get_grad(out), input, mean, rstd, weight, bias))
        return out

    executor.register_implementation(
        F.layer_norm, checker=checker, execution_transform=by_kernel, grad_transform=by_kernel
    )
    x, w, b = tensor(3, 4, 6), tensor(6), tensor(6, seed=1)
    return Trial(
        executor,
        {
            "samples": {
                "torch.nn.functional.layer_norm": [((x, (6,), w, b, 1e-5), {}), ((x + 1, (6,), w, b), {})]
            },
            "operators": "torch.*",
        },
    )


#: what each package has → its executor
PACKAGES: dict[str, Callable[[], Trial]] = {
    "an elementwise kernel": elementwise,
    "a compiler of regions": fusion,
    "a reduction": reduction,
    "attention": attention,
    "an in-place operator": in_place,
    "an operator of torch.library": custom_operator,
    "random numbers": random_numbers,
    "a workspace": workspace,
    "an operator for a rewrite rule": rewritten,
    "a gradient": gradient,
}
