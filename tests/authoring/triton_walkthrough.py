"""The walk of the tutorials, cell by cell, with kernels of Triton: what a reader would have in a notebook.

Run as a program, `TRITON_INTERPRET=1 python triton_walkthrough.py cpu`, or without the variable for `cuda`;
it prints what the cells found as JSON. Triton reads the variable when it is imported: a process is a walk.

The mathematics of the kernels: y = x r w with r = 1 / sqrt(mean(x²) + eps) over a row (Zhang and Sennrich,
Root Mean Square Layer Normalization, 2019, eq. 4). Its derivative, with n = x r and h = w dy, is
dx = r (h - n mean(h n)).
"""

# %%
import copy
import json
import sys

import litgpt.model
import torch
import triton
import triton.language as tl

import thunder
from thunder import TensorProxy
from thunder.core.transforms import get_grad, put_grads
from thunder.extend import Refusal

DEVICE = sys.argv[1]
torch.manual_seed(0)
found = {}  # what the cells show


def deviation(actual, expected):
    """The largest difference from what float64 gives."""
    return (actual.double() - expected).abs().max().item()


def in_float64(module, *args):
    """What eager computes in float64."""
    return copy.deepcopy(module).double()(*(a.double() if a.is_floating_point() else a for a in args))


# %% the executor
my_ex = thunder.extend.OperatorExecutor("my_ex", version="0.0.1")
thunder.extend.register_executor(my_ex)
found["executor"] = repr(my_ex)


# %% an operator: what it returns, and what runs it
def rms_norm_impl(x, weight, dim, eps, add_unit_offset):
    scale = torch.rsqrt(x.float().square().mean(dim, keepdim=True) + eps)
    normed = (x.float() * scale).to(x.dtype)
    return normed * (1 + weight) if add_unit_offset else normed * weight


def rms_norm_meta(x, weight, dim, eps, add_unit_offset):
    return TensorProxy(like=x)


rms_norm = my_ex.register_operator("rms_norm", meta=rms_norm_meta, fn=rms_norm_impl)


# %% the model calls it while it is compiled
class ThunderizedRMSNorm(litgpt.model.RMSNorm):
    def forward(self, x):
        if thunder.core.interpreter.is_jitting():
            return rms_norm(x, self.weight, self.dim, self.eps, self.add_unit_offset)
        return super().forward(x)


litgpt.model.RMSNorm = ThunderizedRMSNorm


def norm(size, **settings):
    """A norm with weights that are not all one, and want no gradient."""
    module = ThunderizedRMSNorm(size, **settings).to(DEVICE)
    module.weight.data.uniform_(0.5, 1.5)
    return module.requires_grad_(False)


# %% the operator runs
module, x = norm(96), torch.randn(16, 96, device=DEVICE)
compiled = thunder.jit(module, executors=(my_ex, *thunder.get_default_executors()))
found["operator"] = {
    "deviation": deviation(compiled(x), in_float64(module, x)),
    "trace": str(thunder.last_traces(compiled)[-1]),
}


# %% the kernels, forward and backward: a program for each row
@triton.jit
def norm_rows(y, x, w, r, n, eps, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * n + i, mask=i < n, other=0.0).to(tl.float32)
    weights = tl.load(w + i, mask=i < n, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, axis=0) / n + eps)
    tl.store(r + row, scale)
    tl.store(y + row * n + i, values * scale * weights, mask=i < n)


@triton.jit
def norm_rows_backward(dx, dy, x, w, r, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    scale = tl.load(r + row)
    normed = tl.load(x + row * n + i, mask=i < n, other=0.0).to(tl.float32) * scale
    weights = tl.load(w + i, mask=i < n, other=0.0).to(tl.float32)
    h = tl.load(dy + row * n + i, mask=i < n, other=0.0).to(tl.float32) * weights
    tl.store(dx + row * n + i, scale * (h - normed * (tl.sum(h * normed, axis=0) / n)), mask=i < n)


# %% what launches them, and what they return
def block_and_warps(n):
    block = triton.next_power_of_2(n)
    return block, 8 if block >= 2048 else 4


def forward_impl(x, weight, eps):
    rows, (block, warps) = x.reshape(-1, x.shape[-1]).contiguous(), block_and_warps(x.shape[-1])
    y, r = torch.empty_like(rows), rows.new_empty(len(rows), dtype=torch.float32)
    weight = weight.contiguous()
    norm_rows[(len(rows),)](y, rows, weight, r, rows.shape[1], eps, BLOCK=block, num_warps=warps)
    return y.view(x.shape), (r, block, warps)


def forward_meta(x, weight, eps):
    rows = x.numel() // x.shape[-1]
    r = TensorProxy(shape=(rows,), device=x.device, dtype=thunder.dtypes.float32, requires_grad=False)
    return TensorProxy(like=x), (r, *block_and_warps(x.shape[-1]))


def backward_impl(x, weight, r, block, warps, dy):
    rows, cotangents = (t.reshape(-1, x.shape[-1]).contiguous() for t in (x, dy))
    dx = torch.empty_like(rows)
    norm_rows_backward[(len(rows),)](
        dx, cotangents, rows, weight.contiguous(), r, rows.shape[1], BLOCK=block, num_warps=warps
    )
    return dx.view(x.shape)


def backward_meta(x, weight, r, block, warps, dy):
    return TensorProxy(like=dy)


kernel_forward = my_ex.register_operator("kernel_forward", meta=forward_meta, fn=forward_impl)
kernel_backward = my_ex.register_operator("kernel_backward", meta=backward_meta, fn=backward_impl)


# %% the kernel is an implementation of the operator, where it can be
def to_kernel(x, weight, dim, eps, add_unit_offset):
    result, _ = kernel_forward(x, weight, eps)
    return result


def checker(x, weight, dim, eps, add_unit_offset):
    if dim != -1 or add_unit_offset:
        return Refusal("arguments", "the kernel norms the last dimension", dim=dim, offset=add_unit_offset)
    if x.dtype is thunder.float64:
        return Refusal("dtype", "the kernel computes in float32", dtype=x.dtype)
    if weight.requires_grad:
        return Refusal("gradient", "the kernel's backward has no gradient of the weight")
    return x.device.type == DEVICE or Refusal("device", f"the kernel runs on {DEVICE}", device=x.device)


my_ex.register_implementation(rms_norm, checker=checker, execution_transform=to_kernel)

# %% a module
module, x = norm(96), torch.randn(2, 8, 96, device=DEVICE)
compiled = thunder.jit(module, executors=[my_ex])
found["kernel"] = {
    "deviation": deviation(compiled(x), in_float64(module, x)),
    "trace": str(thunder.last_traces(compiled)[-1]),
    "claimed": [(row.symbol, row.claimed_by) for row in thunder.explain(compiled).rows],
}

# %% a model
sizes = {"n_layer": 2, "n_embd": 64, "n_head": 4, "intermediate_size": 128, "padded_vocab_size": 50}
config = litgpt.Config.from_name("Llama-2-7b-hf", block_size=16, **sizes)
with torch.device(DEVICE):
    gpt = litgpt.model.GPT(config).requires_grad_(False)
    tokens = torch.randint(1, 50, (1, 12))
compiled = thunder.jit(gpt, executors=(my_ex, *thunder.get_default_executors()))
found["model"] = {
    "deviation": deviation(compiled(tokens), in_float64(gpt, tokens)),
    "lines": [
        line.strip() for line in str(thunder.last_traces(compiled)[-1]).splitlines() if "= kernel_" in line
    ],
}


# %% the backward
def norm_with_gradient(x, weight, dim, eps, add_unit_offset):
    result, (r, block, warps) = kernel_forward(x, weight, eps)
    put_grads((x,), (kernel_backward(x, weight, r, block, warps, get_grad(result)),))
    return result


my_ex.register_implementation(
    rms_norm, checker=checker, execution_transform=to_kernel, grad_transform=norm_with_gradient
)

# %% values and gradients
module, x = norm(96), torch.randn(2, 8, 96, device=DEVICE, requires_grad=True)
compiled = thunder.jit(module, executors=(my_ex, *thunder.get_default_executors()))
x64, cotangent = x.detach().double().requires_grad_(), torch.randn(2, 8, 96, device=DEVICE)
actual, expected = compiled(x), in_float64(module, x64)
(gradient,) = torch.autograd.grad(actual, x, cotangent)
(gradient64,) = torch.autograd.grad(expected, x64, cotangent.double())
found["gradient"] = {
    "deviation": deviation(actual.detach(), expected.detach()),
    "gradients": deviation(gradient, gradient64),
    "forward": str(thunder.last_traces(compiled)[-1]),
    "backward": str(thunder.last_backward_traces(compiled)[-1]),
    "claimed": [(row.trace, row.symbol, row.claimed_by) for row in thunder.explain(compiled).rows],
}


# %% where the kernel declines
def declined(module, x):
    """What runs the operator, how far off it is, and why the kernel does not."""
    compiled = thunder.jit(module, executors=[my_ex])
    off = deviation(compiled(x), in_float64(module, x))
    (row,) = thunder.explain(compiled).rows
    return {"runs": row.symbol, "deviation": off, "reasons": [(r.code, r.message) for r in row.refusals]}


found["declined"] = {
    "dim": declined(norm(1, dim=0), torch.randn(96, device=DEVICE)),
    "dtype": declined(norm(96).double(), torch.randn(16, 96, device=DEVICE, dtype=torch.float64)),
    "offset": declined(norm(96, add_unit_offset=True), torch.randn(16, 96, device=DEVICE)),
}
try:  # nothing differentiates the operator itself
    thunder.jit(norm(96).requires_grad_(True), executors=[my_ex])(torch.randn(16, 96, device=DEVICE))
except thunder.MissingGradient as error:
    found["declined"]["weight"] = str(error)

print(json.dumps(found))
