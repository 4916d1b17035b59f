"""Programs of one operator, whose first compile imports no part of torch that takes long to import.

Run in a process of its own: prints, in JSON, the modules of ``HEAVY`` that the first call of each program has
imported. Torch imports sympy, ``torch._dynamo`` and more (0.5 to 2 seconds) where its metadata in Python are
asked, or its ``FakeTensorMode``.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import thunder

HEAVY = ("sympy", "torch._dynamo", "torch._inductor", "torch.fx.experimental.symbolic_shapes")

MODES = ("nearest", "bilinear", "bicubic", "area")

Program = tuple[Callable[..., Any], tuple[Any, ...]]


def tensor(*shape: int, grad: bool = False) -> torch.Tensor:
    """Return a tensor of random numbers."""
    return torch.randn(*shape, requires_grad=grad)


def image(*, grad: bool = False) -> torch.Tensor:
    """Return an image, larger than what is asked with zeros on the CPU."""
    return tensor(2, 4, 96, 96, grad=grad)


def of_matrices() -> dict[str, Program]:
    """Return programs of spectra, matrices and products."""
    linalg, fft, a = torch.linalg, torch.fft, tensor(6, 6)
    names = ("svd", "svdvals", "qr", "inv", "det", "slogdet", "pinv", "matrix_norm", "norm", "vector_norm")
    return {
        **{f"linalg.{name}": (getattr(linalg, name), (a,)) for name in names},
        "linalg.eigh": (lambda x: linalg.eigh(x + x.T), (a,)),
        "linalg.cholesky": (lambda x: linalg.cholesky(x @ x.T + 5 * torch.eye(6)), (a,)),
        "linalg.solve": (linalg.solve, (a, a)),
        "linalg.inv, training": (lambda x: linalg.inv(x).sum(), (tensor(6, 6, grad=True),)),
        "matrix_exp": (torch.matrix_exp, (a,)),
        **{f"fft.{name}": (getattr(fft, name), (a,)) for name in ("fft", "rfft", "irfft", "fft2", "fftn")},
        "fft.fftshift": (fft.fftshift, (a,)),
        "fft.rfft, training": (lambda x: fft.rfft(x).abs().sum(), (tensor(6, 6, grad=True),)),
        "matmul": (torch.matmul, (a, a)),
        "einsum": (lambda x: torch.einsum("ij,jk,kl->il", x, x, x), (a,)),
        "kron": (torch.kron, (a, a)),
        "cdist": (torch.cdist, (a, a)),
    }


def of_networks() -> dict[str, Program]:
    """Return modules, losses and attention."""
    x, y, target = tensor(3, 2, 4), tensor(4, 4), torch.rand(4, 4)
    layer, attention = nn.TransformerEncoderLayer(4, 2, 8), nn.MultiheadAttention(4, 2)
    q = tensor(1, 2, 8, 4)
    return {
        **{kind.__name__: (kind(4, 5), (x,)) for kind in (nn.LSTM, nn.GRU, nn.RNN, nn.Linear)},
        "LSTMCell": (nn.LSTMCell(4, 5), (tensor(2, 4),)),
        "MultiheadAttention": (attention, (x, x, x)),
        "TransformerEncoderLayer": (layer, (x,)),
        "TransformerEncoderLayer, evaluation": (nn.TransformerEncoderLayer(4, 2, 8).eval(), (x,)),
        "Embedding": (nn.Embedding(9, 3), (torch.randint(9, (4, 5)),)),
        "EmbeddingBag": (nn.EmbeddingBag(9, 3), (torch.randint(9, (4, 5)),)),
        "LayerNorm": (nn.LayerNorm(4), (x,)),
        "RMSNorm": (nn.RMSNorm(4), (x,)),
        "Bilinear": (nn.Bilinear(4, 4, 3), (y, y)),
        "attention": (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), (q,)),
        "attention, training": (
            lambda q: F.scaled_dot_product_attention(q, q, q).sum(),
            (tensor(1, 2, 8, 4, grad=True),),
        ),
        "cross_entropy": (F.cross_entropy, (tensor(4, 4, grad=True), torch.zeros(4, dtype=torch.int64))),
        "binary_cross_entropy": (lambda x, t: F.binary_cross_entropy(x.sigmoid(), t), (y, target)),
        "with logits": (F.binary_cross_entropy_with_logits, (y, target)),
        "huber_loss": (F.huber_loss, (y, target)),
        "smooth_l1_loss": (F.smooth_l1_loss, (y, target)),
        "mse_loss": (F.mse_loss, (y, target)),
        "cosine_similarity": (F.cosine_similarity, (y, target)),
        "ctc_loss": (
            lambda x, t, n, m: F.ctc_loss(x.log_softmax(-1), t, n, m),
            (tensor(8, 2, 5), torch.ones(2, 2, dtype=torch.int64), *map(torch.tensor, ([8, 8], [2, 2]))),
        ),
    }


def of_images() -> dict[str, Program]:
    """Return programs on images."""
    x = image()
    sizes: dict[str, dict[str, Any]] = {
        **{f"by {mode}": {"scale_factor": 2, "mode": mode} for mode in MODES},
        "to a size": {"size": (7, 7), "mode": "bilinear", "align_corners": True},
        "antialiased": {"size": (48, 48), "mode": "bilinear", "antialias": True},
    }
    return {
        **{f"interpolate {how}": (lambda x, k=k: F.interpolate(x, **k), (x,)) for how, k in sizes.items()},
        "interpolate, training": (
            lambda x: F.interpolate(x, size=(7, 7), mode="bilinear").sum(),
            (image(grad=True),),
        ),
        "Conv1d": (nn.Conv1d(2, 3, 3), (tensor(1, 2, 8),)),
        "Conv2d": (nn.Conv2d(4, 3, 3), (x,)),
        "ConvTranspose2d": (nn.ConvTranspose2d(4, 3, 3), (x,)),
        "BatchNorm2d": (nn.BatchNorm2d(4), (x,)),
        "GroupNorm": (nn.GroupNorm(2, 4), (x,)),
        "InstanceNorm2d": (nn.InstanceNorm2d(4), (x,)),
        "max_pool2d": (lambda x: F.max_pool2d(x, 2), (x,)),
        "max_pool2d, training": (lambda x: F.max_pool2d(x, 3, 2, 1).sum(), (image(grad=True),)),
        "max_pool1d": (lambda x: F.max_pool1d(x, 2), (tensor(1, 2, 8),)),
        "avg_pool2d": (lambda x: F.avg_pool2d(x, 2), (x,)),
        "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, 3), (x,)),
        "adaptive_avg_pool2d to one": (lambda x: F.adaptive_avg_pool2d(x, 1), (x,)),
        "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, 3), (x,)),
        "unfold": (lambda x: F.unfold(x, 3), (x,)),
        "fold": (lambda x: F.fold(F.unfold(x, 3), (96, 96), 3), (x,)),
        "grid_sample": (lambda x: F.grid_sample(x, torch.zeros(2, 3, 3, 2), align_corners=False), (x,)),
        "affine_grid": (lambda x: F.affine_grid(x, (1, 1, 3, 3), align_corners=False), (tensor(1, 2, 3),)),
        "pad": (lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"), (x,)),
        "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), (x,)),
    }


def of_elements() -> dict[str, Program]:
    """Return elementwise functions, selections and random numbers."""
    x = tensor(4, 4)
    return {
        "mask": (lambda x: x[x > 0], (x,)),
        "index_add": (lambda x: x.index_add(0, torch.tensor([0, 1]), x[:2]), (x,)),
        "scatter": (lambda x: x.scatter(0, torch.zeros(4, 4, dtype=torch.int64), x), (x,)),
        **{name: (getattr(torch, name), (x,)) for name in ("sort", "nonzero", "unique", "median", "mode")},
        "kthvalue": (lambda x: x.kthvalue(2), (x,)),
        "quantile": (lambda x: x.quantile(0.5), (x,)),
        "topk": (lambda x: x.topk(2), (x,)),
        "cumsum": (lambda x: x.cumsum(0), (x,)),
        "isin": (lambda x: torch.isin(x, x[0]), (x,)),
        "histc": (torch.histc, (x,)),
        "polar": (torch.polar, (x.abs(), x)),
        "special": (lambda x: torch.special.i0e(x) + torch.special.erfcx(x), (x,)),
        "polygamma": (lambda x: torch.polygamma(1, x), (x,)),
        "item": (lambda x: x * x.sum().item(), (x,)),
        **{name: (getattr(torch, name), (x,)) for name in ("rand_like", "randn_like")},
        "randn": (lambda x: x + torch.randn(4, 4), (x,)),
        "randperm": (lambda x: x[torch.randperm(4)], (x,)),
        "bernoulli": (lambda x: torch.bernoulli(x.sigmoid()), (x,)),
        "multinomial": (lambda x: torch.multinomial(x.softmax(-1), 2), (x,)),
        "dropout": (F.dropout, (x,)),
        "gumbel_softmax": (F.gumbel_softmax, (x,)),
        "vmap": (lambda x: torch.vmap(lambda y: y.sin())(x), (x,)),
        "func.grad": (lambda x: torch.func.grad(lambda y: y.sin().sum())(x), (x,)),
        "autograd.grad": (lambda x: torch.autograd.grad((x * x).sum(), x)[0], (tensor(4, 4, grad=True),)),
    }


def imported() -> dict[str, list[str]]:
    """Run each program once; return the modules of ``HEAVY`` that each has imported."""
    found: dict[str, list[str]] = {}
    for name, (fn, args) in {**of_matrices(), **of_networks(), **of_images(), **of_elements()}.items():
        before = {m for m in HEAVY if m in sys.modules}
        thunder.jit(fn, executors=["torch", "python"])(*args)
        found[name] = [m for m in HEAVY if m in sys.modules and m not in before]
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps({"before": [m for m in HEAVY if m in sys.modules], "by": imported()}))
