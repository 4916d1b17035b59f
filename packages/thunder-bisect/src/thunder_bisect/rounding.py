"""What rounding does to the results of operators of ATen.

Note [What rounding explains]
The standard model of floating-point arithmetic is fl(x op y) = (x op y)(1 + d) with |d| <= u, the unit
roundoff of the dtype (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 2.2). For a sum of n
terms, and so for each element of a product of matrices, the error of any order of summation is at most
gamma_n Σ|x_i||y_i| with gamma_n = n·u / (1 - n·u) (3.1, 3.5, 4.2). Rounding errors that are independent and
of mean zero give √n in place of n with high probability (Higham and Mary, A New Approach to Probabilistic
Rounding Error Analysis, 2019), and partial sums are of the order of the sum itself, or of those of a random
walk where signs are random, √Σ(x_i y_i)² (Higham and Mary, Sharper Probabilistic Backward Error Analysis for
Basic Linear Algebra Kernels with Random Data, 2020).

These errors are drawn, and go through the rest of the program in float64: Monte Carlo arithmetic (Parker,
1997). A few such runs show how far from the exact result one that is only rounded can be, for each statement
by its own operators, lengths and operands; cancellation, and everything else that amplifies errors, is in
them. So are the other branches of comparisons between values that rounding does not tell apart.

    operator                       error that is drawn, r uniform in [-1, 1]
    any, of an operand computed    u(its dtype) |x| r, as it is stored
    any, of an input               u(float32) |x| r: of the arithmetic, since the input itself is exact
    product, convolution           gamma(√n, arithmetic) max(|z|, √Σ(x_i y_i)²) r
    sum, mean, scan                gamma(√n, arithmetic) max(|z|, √Σ x_i²) r
    exp, rsqrt, softmax, …         4 u(arithmetic) |z| r: libraries compute functions to a few units in the
                                   last place (CUDA Math API, accuracy of single-precision functions), and
                                   x86 has a reciprocal square root of 12 bits with one step of Newton

The arithmetic of float16 and bfloat16 is that of float32, which their kernels compute in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch

__all__ = [
    "FUNCTIONS",
    "FUNCTION_UNITS",
    "arithmetic_unit",
    "gamma",
    "length_of",
    "partial_sums",
    "summing",
    "unit",
]


def unit(dtype: torch.dtype) -> float:
    """Return the unit roundoff of a dtype: half the distance from 1 to the next number."""
    return torch.finfo(dtype).eps / 2


def arithmetic_unit(dtype: torch.dtype) -> float:
    """Return the unit roundoff of the arithmetic in which kernels of a dtype compute."""
    return min(unit(dtype), unit(torch.float32))


def gamma(n: int, u: float) -> float:
    """Return gamma_n with √n in place of n: what n rounded operations do to a sum."""
    steps = math.sqrt(max(n, 1)) * u
    return steps / (1 - steps) if steps < 0.5 else 1.0


def _products(args: Sequence[Any], out: torch.Tensor) -> int:
    """Return how many terms each element of a product of two tensors has."""
    operands = [x for x in args if isinstance(x, torch.Tensor) and x.ndim > 0]
    if len(operands) < 2 or not out.numel():
        return 1
    a, b = operands[-2:]
    return max(1, round(math.sqrt(a.numel() * b.numel() / out.numel())))


def _reduced(args: Sequence[Any], out: torch.Tensor) -> int:
    """Return how many elements are added for each element of a result."""
    operand: torch.Tensor = args[0]
    return max(1, operand.numel() // max(1, out.numel()))


def _scanned(args: Sequence[Any], out: torch.Tensor) -> int:
    """Return the most elements that are added for an element of a scan."""
    return max(out.shape, default=1)


#: operators that are linear in each tensor → the number of terms of an element. Of the squares of their
#: operands they compute Σ(x_i y_i)², and of a mean n times that.
_LENGTHS: Mapping[str, Callable[[Sequence[Any], torch.Tensor], int]] = {
    **dict.fromkeys(("mm", "bmm", "addmm", "baddbmm", "mv", "dot", "addmv", "matmul", "linear"), _products),
    **dict.fromkeys(("convolution", "_convolution"), _products),
    **dict.fromkeys(("sum", "mean", "nansum"), _reduced),
    "cumsum": _scanned,
}


#: functions that are computed to a few units in the last place
# fmt: off
FUNCTIONS: Final = frozenset((
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "pow", "rsqrt", "reciprocal", "sin", "cos",
    "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf",
    "erfc", "erfinv", "lgamma", "digamma", "sinc", "logit", "log_sigmoid_forward", "sigmoid", "gelu",
    "silu", "mish", "softplus", "elu", "logaddexp", "logsumexp", "linalg_vector_norm", "var",
    "var_mean", "std", "_softmax", "_log_softmax", "native_layer_norm", "native_group_norm",
    "native_batch_norm", "gelu_backward", "silu_backward", "mish_backward", "softplus_backward",
    "elu_backward", "_softmax_backward_data", "_log_softmax_backward_data",
    "native_layer_norm_backward", "native_group_norm_backward", "native_batch_norm_backward",
    "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
))
# fmt: on
#: their errors, in units of roundoff of the arithmetic
FUNCTION_UNITS: Final = 4


def summing(operator: str) -> bool:
    """Return whether an operator of ATen adds up many terms, and is linear in each operand."""
    return operator in _LENGTHS


def partial_sums(operator: str, result: torch.Tensor, squares: torch.Tensor, length: int) -> torch.Tensor:
    """Return the magnitude of the partial sums of each element."""
    weight = 1.0 / length if operator == "mean" else 1.0
    return torch.maximum(result.abs(), (squares * weight).clamp(min=0).sqrt())


def length_of(operator: str, args: Sequence[Any], out: torch.Tensor) -> int:
    """Return how many terms each element of such an operator's result has."""
    return _LENGTHS[operator](args, out)
