"""Dropout and its relatives: identities in evaluation, random operators in training.

Torch draws the mask inside its kernel, so equal seeds have eager's numbers where torch runs the whole
operator; the decompositions keep the distribution.
"""

from __future__ import annotations

from typing import Any

from thunder.base.errors import OperatorError
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import Symbol
from thunder.ops import prims
from thunder.ops.primitive_batching.batched_random import WithSameNumbers
from thunder.ops.torch_errors import OperatorValueError
from thunder.torch.batch_rules import batched_layers as batched
from thunder.torch.inplace import write_back
from thunder.torch.meta_by_torch import meta_by_torch_or_inplace
from thunder.torch.namespace import ltorch
from thunder.torch.registration import torch_names, torchsymbol

_F = "torch.nn.functional."


def _check_probability(p: float) -> None:
    if p < 0.0 or p > 1.0:
        raise OperatorValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if p != p:  # torch's functions in Python take nan, and its kernels do not
        raise OperatorError("dropout probability has to be between 0 and 1, but got nan")


@torchsymbol(f"{_F}dropout", tags=(OpTags.RANDOM_OP,), batch=WithSameNumbers(batched.dropout))
def dropout(input: TensorProxy, p: float = 0.5, training: bool = True, inplace: bool = False) -> TensorProxy:
    """Srivastava et al., Dropout (2014): 0 with probability ``p``, else divided by ``1 - p``."""
    _check_probability(p)
    if not training or p == 0.0 or input.numel() == 0:
        return input
    if inplace:
        return write_back(dropout(input, p, training, False), input)
    if p == 1.0:
        return ltorch.mul(input, 0)
    drawn = prims.uniform(input.shape, 0.0, 1.0, device=input.device, dtype=input.dtype)
    mask = ltorch.to(ltorch.lt(drawn, 1 - p), dtype=input.dtype.torch_dtype)
    return ltorch.mul(input, ltorch.div(mask, 1 - p))


@torch_names("torch.dropout")
def torch_dropout(input: TensorProxy, p: float, train: bool) -> TensorProxy:
    """The kernel of ``torch.nn.functional.dropout``."""
    return dropout(input, p, train)


@torch_names("torch.dropout_")
def torch_dropout_(input: TensorProxy, p: float, train: bool) -> TensorProxy:
    """``torch.nn.functional.dropout`` with ``inplace=True``."""
    return dropout(input, p, train, True)


def _identity(input: TensorProxy, p: float, training: bool) -> bool:
    _check_probability(p)
    return not training or p == 0.0 or input.numel() == 0


def _whole_channels(name: str, training: bool) -> Any:
    def unchanged(input: TensorProxy, p: float, training: bool) -> bool:
        if name == "dropout1d" and len(input.shape) not in (2, 3):
            raise OperatorError(
                f"dropout1d: Expected 2D or 3D input, but received a {len(input.shape)}D input."
            )
        return _identity(input, p, training)

    return meta_by_torch_or_inplace(
        f"{_F}{name}", f"input, p=0.5, training={training}", unchanged=unchanged, tags=(OpTags.RANDOM_OP,)
    )


#: whole channels at a time (Tompson et al., Efficient Object Localization Using Convolutional Networks, 2015)
dropout1d, dropout2d, dropout3d = (_whole_channels(f"dropout{n}d", True) for n in (1, 2, 3))
#: keeps mean and variance (Klambauer et al., Self-Normalizing Neural Networks, 2017)
alpha_dropout, feature_alpha_dropout = (
    _whole_channels(name, False) for name in ("alpha_dropout", "feature_alpha_dropout")
)
rrelu = meta_by_torch_or_inplace(
    f"{_F}rrelu", f"input, lower={1 / 8!r}, upper={1 / 3!r}, training=False", tags=(OpTags.RANDOM_OP,)
)


def _add_with_train(name: str, symbol: Symbol) -> None:
    """Register ``torch.name(input, p, train)`` and its in-place variant.

    The function of ``torch.nn.functional`` calls them.
    """

    @torch_names(f"torch.{name}")
    def call(input: TensorProxy, p: float, train: bool) -> Any:
        return input if _identity(input, p, train) else symbol(input, p, train)

    @torch_names(f"torch.{name}_")
    def write(input: TensorProxy, p: float, train: bool) -> TensorProxy:
        return input if _identity(input, p, train) else write_back(symbol(input, p, train), input)


_add_with_train("alpha_dropout", alpha_dropout)
_add_with_train("feature_alpha_dropout", feature_alpha_dropout)
_add_with_train("feature_dropout", dropout2d)
