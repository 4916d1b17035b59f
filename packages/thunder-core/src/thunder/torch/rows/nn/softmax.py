"""Softmax and its relatives. Half precision is computed in float32, as in torch."""

from __future__ import annotations

from typing import Any

from thunder.base.dtypes import to_dtype
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ops import prims
from thunder.ops.casting import cast
from thunder.ops.same_operators import Arguments, declare_same
from thunder.torch.batch_rules import batched_layers as batched
from thunder.torch.mixed_precision import computed_in
from thunder.torch.namespace import ltorch
from thunder.torch.registration import torchsymbol


def default_dim(dim: int | None, ndim: int) -> int:
    """Return the dimension that torch uses where the call passes none.

    ``torch.nn.functional`` warns that it will no longer choose one.
    """
    return dim if dim is not None else 0 if ndim in (0, 1, 3) else 1


def _below_zero(x: TensorProxy, dim: int) -> TensorProxy:
    """Return ``x - max(x)``, so that exponentials do not overflow; ``x`` if it is empty."""
    return ltorch.sub(x, ltorch.amax(x, dim, True)) if x.numel() else x


def _softmax(x: TensorProxy, dim: int, dtype: Any) -> TensorProxy:
    """``exp(x - max) / sum(exp(x - max))``."""
    result = to_dtype(dtype) if dtype is not None else x.dtype
    x = computed_in(x, dtype)
    exponentials = ltorch.exp(_below_zero(x, dim))
    return cast(ltorch.div(exponentials, ltorch.sum(exponentials, dim, True)), result)


def _log_softmax(x: TensorProxy, dim: int, dtype: Any) -> TensorProxy:
    """``x - max - log(sum(exp(x - max)))``."""
    result = to_dtype(dtype) if dtype is not None else x.dtype
    x = computed_in(x, dtype)
    shifted = _below_zero(x, dim)
    total = ltorch.log(ltorch.sum(ltorch.exp(shifted), dim, True))
    return cast(ltorch.sub(shifted, total), result)


@torchsymbol("torch.softmax", "torch.special.softmax", methods=("softmax",), batch=batched.softmax)
def torch_softmax(input: TensorProxy, dim: int, dtype: Any = None) -> TensorProxy:
    """Softmax along ``dim``, computed and returned in ``dtype`` unless it is None."""
    return _softmax(input, dim, dtype)


@torchsymbol(
    "torch.log_softmax", "torch.special.log_softmax", methods=("log_softmax",), batch=batched.softmax
)
def torch_log_softmax(input: TensorProxy, dim: int, dtype: Any = None) -> TensorProxy:
    """The logarithm of softmax along ``dim``."""
    return _log_softmax(input, dim, dtype)


@torchsymbol("torch.nn.functional.softmax", batch=batched.softmax)
def softmax(
    input: TensorProxy, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> TensorProxy:
    """Softmax along ``dim``."""
    return _softmax(input, default_dim(dim, len(input.shape)), dtype)


@torchsymbol("torch.nn.functional.log_softmax", batch=batched.softmax)
def log_softmax(
    input: TensorProxy, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> TensorProxy:
    """The logarithm of softmax along ``dim``."""
    return _log_softmax(input, default_dim(dim, len(input.shape)), dtype)


def _to_functional(input: TensorProxy, dim: int, dtype: Any = None) -> Arguments:
    return (input, dim), {"dtype": dtype}


def _from_functional(
    input: TensorProxy, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> Arguments:
    return (input, default_dim(dim, len(input.shape)), dtype), {}


declare_same(torch_softmax, softmax, _to_functional, _from_functional)
declare_same(torch_log_softmax, log_softmax, _to_functional, _from_functional)


@torchsymbol("torch.nn.functional.softmin")
def softmin(
    input: TensorProxy, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> TensorProxy:
    """Softmax of ``-x``."""
    return _softmax(ltorch.neg(input), default_dim(dim, len(input.shape)), dtype)


@torchsymbol("torch.nn.functional.gumbel_softmax", tags=(OpTags.RANDOM_OP,))
def gumbel_softmax(
    logits: TensorProxy, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> TensorProxy:
    """Softmax of the logits with Gumbel noise.

    Jang et al., Categorical Reparameterization with Gumbel-Softmax (2017).
    """
    # -log of an exponential variate is a Gumbel variate; drawn as torch draws it, so equal seeds agree.
    drawn = prims.exponential(logits.shape, 1.0, device=logits.device, dtype=logits.dtype)
    gumbels = ltorch.neg(ltorch.log(drawn))
    soft = ltorch.softmax(ltorch.div(ltorch.add(logits, gumbels), tau), dim)
    if not hard:
        return soft
    index = ltorch.argmax(soft, dim, True)
    one_hot = ltorch.scatter(ltorch.zeros_like(soft), dim, index, 1.0)
    return ltorch.add(ltorch.sub(one_hot, ltorch.detach(soft)), soft)
