"""Gradients of discrete Fourier transforms.

A transform is linear, so its gradient is its adjoint: the transform in the other direction without the factor
``1 / n`` that would make it the inverse. In terms of ``norm``, the factor moves to the other side:
``"backward"`` becomes ``"forward"``. Padding of a transform is cut off, and elements that it cut off are
zero.
"""

from __future__ import annotations

from collections.abc import Sequence

from thunder.ir.proxies import TensorProxy
from thunder.ops import prims
from thunder.ops.gradient_rules import VjpCall, conj, formulas
from thunder.torch.broadcasting import canonical_dims
from thunder.torch.namespace import ltorch
from thunder.torch.rows import torch_kernels  # noqa: F401  (the rows)

Tensor = TensorProxy

_ADJOINT_NORM = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}


def _dims(c: VjpCall) -> tuple[int, ...]:
    """Return the transformed dimensions, from the front.

    Where the call names none, they are the last ones, one for each item of ``s``.
    """
    rank = len(c.input.shape)
    if c.dim is None:
        return tuple(range(rank) if getattr(c, "s", None) is None else range(rank - len(c.s), rank))
    return canonical_dims(c.dim, rank)


def _fitting(g: Tensor, like: Tensor, dims: Sequence[int]) -> Tensor:
    """Cut ``g``, or pad it with zeros, to the sizes of ``like``."""
    if g.shape == like.shape:
        return g
    excess = [like.shape[d] - g.shape[d] if d in dims else 0 for d in range(len(g.shape))]
    return prims.pad(g, 0, tuple((0, n, 0) for n in excess))


def _of_complex(c: VjpCall, adjoint: str) -> Tensor:
    """The gradient of ``fft`` and ``ifft``."""
    dims = _dims(c)
    return _fitting(getattr(ltorch, adjoint)(c.g, None, dims, _ADJOINT_NORM[c.norm]), c.input, dims)


def _from_half(g: Tensor, c: VjpCall, norm: str) -> Tensor:
    """The gradient of ``rfft``, which returns half of a transform: the other half's is zero."""
    dims = _dims(c)
    sizes = [g.shape[d] for d in dims]
    sizes[-1] = _asked_size(c, dims[-1])
    return _fitting(ltorch.ifftn(g, tuple(sizes), dims, norm), c.input, dims)


def _asked_size(c: VjpCall, dim: int) -> int:
    """Return the size to which the last transformed dimension is cut or padded."""
    size = getattr(c, "n", None)
    if size is None and getattr(c, "s", None) is not None:
        size = c.s[-1]
    return c.input.shape[dim] if size is None or size == -1 else size


def _to_half(g: Tensor, c: VjpCall, norm: str) -> Tensor:
    """The gradient of ``irfft``: frequencies that represent two of the spectrum count twice."""
    dims = _dims(c)
    last, size = dims[-1], g.shape[dims[-1]]
    half = ltorch.rfftn(g, None, dims, norm)
    frequency = ltorch.arange(half.shape[last], device=g.device)
    single = (frequency == 0) | (frequency * 2 == size)
    mask = ltorch.reshape(single, tuple(half.shape[d] if d == last else 1 for d in range(len(g.shape))))
    return _fitting(ltorch.where(mask, half, half * 2), c.input, dims)


for _suffix in ("", "2", "n"):
    formulas(f"torch.fft.fft{_suffix}", input=lambda c: _of_complex(c, "ifftn"))
    formulas(f"torch.fft.ifft{_suffix}", input=lambda c: _of_complex(c, "fftn"))
    formulas(f"torch.fft.rfft{_suffix}", input=lambda c: _from_half(c.g, c, _ADJOINT_NORM[c.norm]))
    formulas(f"torch.fft.irfft{_suffix}", input=lambda c: _to_half(c.g, c, _ADJOINT_NORM[c.norm]))
    # ihfft is the conjugate of rfft, hfft is irfft of the conjugate, each with the factor of the other side
    formulas(f"torch.fft.ihfft{_suffix}", input=lambda c: _from_half(conj(c.g), c, c.norm or "backward"))
    formulas(f"torch.fft.hfft{_suffix}", input=lambda c: conj(_to_half(c.g, c, c.norm or "backward")))
