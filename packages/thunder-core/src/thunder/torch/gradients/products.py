"""Gradients of products of matrices and vectors.

Of ``C = A B`` they are ``G Bᴴ`` and ``Aᴴ G`` (Giles, An extended collection of matrix derivative results for
forward and reverse mode algorithmic differentiation, 2008, section 2.2.2); the rest is about dimensions.
"""

from __future__ import annotations

import math
from typing import Any

from thunder.ir.proxies import TensorProxy
from thunder.ir.symbolic_sizes import are_same
from thunder.ops import prims
from thunder.ops.casting import cast
from thunder.ops.gradient_rules import VjpCall, conj, formulas, vjp
from thunder.torch.namespace import ltorch
from thunder.torch.rows import linalg
from thunder.torch.rows.nn import linear  # noqa: F401  (the rows)

Tensor = TensorProxy


def adjoint(x: Tensor) -> Tensor:
    """Transpose and conjugate the matrices of ``x: (*, m, n)``."""
    turned = ltorch.t(x) if len(x.shape) == 2 else ltorch.transpose(x, -2, -1)
    return conj(turned)


def scaled(x: Tensor, factor: Any) -> Tensor:
    """Return ``conj(factor) * x``, or ``x`` if the factor is 1."""
    return x if factor == 1 else x * conj(factor)


def flattened(x: Tensor) -> Tensor:
    """Flatten all dimensions but the last: ``(*, k)`` → ``(n, k)``."""
    return x if len(x.shape) == 2 else ltorch.reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))


def is_in_columns(x: Tensor) -> bool:
    """Return whether the matrices of ``x: (*, m, n)`` are stored column by column."""
    return x.strides is not None and are_same(x.strides[-2:], (1, x.shape[-2]))


def _product_for(operand: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Return ``left @ right``, the gradient of a matrix, in columns where the matrix is (torch's layout)."""
    if is_in_columns(operand):
        return adjoint(ltorch.mm(adjoint(right), adjoint(left)))
    return ltorch.mm(left, right)


# -- matmul --------------------------------------------------------------------------------------------------


def left_gradient(g: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The gradient of ``a`` in ``matmul(a, b)``, broadcast dimensions not yet summed."""
    if len(b.shape) == 1:
        return (ltorch.unsqueeze(g, -1) if g.shape else g) * conj(b)
    if len(a.shape) == 1:  # b: (*, k, n), g: (*, n)
        return ltorch.squeeze(ltorch.matmul(conj(b), ltorch.unsqueeze(g, -1)), -1)
    if len(a.shape) == len(b.shape) == 2:
        return _product_for(a, g, adjoint(b))
    return ltorch.matmul(g, adjoint(b))


def right_gradient(g: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The gradient of ``b`` in ``matmul(a, b)``, broadcast dimensions not yet summed."""
    if len(a.shape) == 1:
        if len(b.shape) == 1:
            return g * conj(a)
        return ltorch.unsqueeze(conj(a), -1) * ltorch.unsqueeze(g, -2)
    if len(b.shape) == 1:  # a: (*, m, k), g: (*, m)
        rows = ltorch.reshape(g, (math.prod(g.shape),))
        return ltorch.matmul(rows, conj(flattened(a)))
    if len(b.shape) == 2:  # one product over all the rows, rather than one for each batch and their sum
        return _product_for(b, adjoint(flattened(a)), flattened(g))
    return ltorch.matmul(adjoint(a), g)


def grouped_gradient(operand: Tensor, left: Tensor, right: Tensor, offsets: Tensor | None) -> Tensor:
    """The gradient of an operand of a grouped product, in columns where an input is (torch's layout)."""
    if is_in_columns(operand):
        return adjoint(prims._grouped_mm(adjoint(right), adjoint(left), offsets))
    return prims._grouped_mm(left, right, offsets)


formulas("prims.matmul", a=lambda c: left_gradient(c.g, c.a, c.b), b=lambda c: right_gradient(c.g, c.a, c.b))
formulas(
    "prims._grouped_mm",  # the three forms are each other's gradients
    a=lambda c: grouped_gradient(c.a, c.g, adjoint(c.b), c.offsets),
    b=lambda c: grouped_gradient(c.b, adjoint(c.a), c.g, c.offsets),
)
formulas(
    "torch.matmul",
    input=lambda c: left_gradient(c.g, c.input, c.other),
    other=lambda c: right_gradient(c.g, c.input, c.other),
)
formulas(
    "torch.mm",
    input=lambda c: _product_for(c.input, c.g, adjoint(c.mat2)),
    mat2=lambda c: _product_for(c.mat2, adjoint(c.input), c.g),
)
formulas(
    "torch.bmm",
    input=lambda c: ltorch.bmm(c.g, adjoint(c.mat2)),
    mat2=lambda c: ltorch.bmm(adjoint(c.input), c.g),
)
formulas(
    "torch.mv",
    input=lambda c: ltorch.outer(c.g, conj(c.vec)),
    vec=lambda c: ltorch.mv(adjoint(c.input), c.g),
)
formulas("torch.dot", input=lambda c: c.g * conj(c.tensor), tensor=lambda c: c.g * conj(c.input))
formulas("torch.vdot", input=lambda c: conj(c.g) * c.other, other=lambda c: c.g * c.input)
formulas(
    "torch.outer",
    input=lambda c: ltorch.mv(c.g, cast(conj(c.vec2), c.g.dtype)),
    vec2=lambda c: ltorch.mv(ltorch.t(c.g), cast(conj(c.input), c.g.dtype)),
)
formulas(
    "torch.linalg.vecdot",
    x=lambda c: conj(ltorch.unsqueeze(c.g, c.dim)) * c.y,
    y=lambda c: ltorch.unsqueeze(c.g, c.dim) * c.x,
)

# -- with a weight -------------------------------------------------------------------------------------------


def _input_gradient(g: Tensor, x: Tensor, w: Tensor) -> Tensor:
    """``x: (*, i)``, ``w: (o, i)`` or ``(i,)``."""
    if len(w.shape) == 1:
        return ltorch.unsqueeze(g, -1) * conj(w)
    if len(x.shape) == 2:
        return _product_for(x, g, conj(w))
    return ltorch.matmul(g, conj(w))


def _weight_gradient(g: Tensor, x: Tensor, w: Tensor) -> Tensor:
    if len(w.shape) == 1:
        return ltorch.matmul(ltorch.reshape(g, (math.prod(g.shape),)), conj(flattened(x)))
    rows, columns = (g, conj(x)) if len(x.shape) == 1 else (flattened(g), conj(flattened(x)))
    if w.strides is not None and not are_same(
        w.strides, (w.shape[1], 1)
    ):  # torch multiplies by its transpose
        return ltorch.t(_summed_outer(columns, rows))
    return _summed_outer(rows, columns)


def _summed_outer(a: Tensor, b: Tensor) -> Tensor:
    """``a: (m,)``, ``b: (n,)`` or, summed over the rows, ``(*, m)`` and ``(*, n)`` → ``(m, n)``."""
    return ltorch.outer(a, b) if len(a.shape) == 1 else ltorch.mm(ltorch.t(a), b)


def _bias_gradient(g: Tensor, bias: Tensor) -> Tensor:
    """The sum over the rows; over all broadcast dimensions if the bias is not ``(o,)``."""
    leading = len(g.shape) - 1
    if leading < 1 or bias.shape != g.shape[-1:]:
        return g
    return ltorch.sum(g, 0 if leading == 1 else tuple(range(leading)))


formulas(
    "prims.linear",
    a=lambda c: _input_gradient(c.g, c.a, c.w),
    w=lambda c: _weight_gradient(c.g, c.a, c.w),
    bias=lambda c: _bias_gradient(c.g, c.bias),
)
formulas(
    "torch.nn.functional.linear",
    input=lambda c: _input_gradient(c.g, c.input, c.weight),
    weight=lambda c: _weight_gradient(c.g, c.input, c.weight),
    bias=lambda c: _bias_gradient(c.g, c.bias),
)


@vjp("torch.nn.functional.bilinear")
def _of_bilinear(c: VjpCall) -> dict[str, Any]:
    """``input1: (*, i)``, ``input2: (*, j)``, ``weight: (o, i, j)``, ``bias: (o,)``."""
    g, x, y, grads = flattened(c.g), flattened(c.input1), flattened(c.input2), {}
    if c.needs("input1"):
        of_x = ltorch.einsum("no,oij,nj->ni", g, conj(c.weight), conj(y))
        grads["input1"] = ltorch.reshape(of_x, c.input1.shape)
    if c.needs("input2"):
        of_y = ltorch.einsum("no,oij,ni->nj", g, conj(c.weight), conj(x))
        grads["input2"] = ltorch.reshape(of_y, c.input2.shape)
    if c.needs("weight"):
        grads["weight"] = ltorch.einsum("no,ni,nj->oij", g, conj(x), conj(y))
    if c.needs("bias"):
        grads["bias"] = ltorch.sum(g, 0)
    return grads


# -- added to a tensor: beta * input + alpha * product -------------------------------------------------------


def _of_input(c: VjpCall) -> Tensor:
    return scaled(c.g, c.beta)


formulas(
    "torch.addmm",
    input=_of_input,
    mat1=lambda c: scaled(_product_for(c.mat1, c.g, adjoint(c.mat2)), c.alpha),
    mat2=lambda c: scaled(_product_for(c.mat2, adjoint(c.mat1), c.g), c.alpha),
)
formulas(
    "torch.addmv",
    input=_of_input,
    mat=lambda c: scaled(ltorch.outer(c.g, conj(c.vec)), c.alpha),
    vec=lambda c: scaled(ltorch.mv(adjoint(c.mat), c.g), c.alpha),
)
formulas(
    "torch.baddbmm",
    input=_of_input,
    batch1=lambda c: scaled(ltorch.bmm(c.g, adjoint(c.batch2)), c.alpha),
    batch2=lambda c: scaled(ltorch.bmm(adjoint(c.batch1), c.g), c.alpha),
)
formulas(  # the batch is summed, so each of its products has the same cotangent
    "torch.addbmm",
    input=_of_input,
    batch1=lambda c: scaled(ltorch.matmul(c.g, adjoint(c.batch2)), c.alpha),
    batch2=lambda c: scaled(ltorch.matmul(adjoint(c.batch1), c.g), c.alpha),
)
formulas(
    "torch.addr",
    input=_of_input,
    vec1=lambda c: scaled(ltorch.mv(c.g, cast(conj(c.vec2), c.g.dtype)), c.alpha),
    vec2=lambda c: scaled(ltorch.mv(ltorch.t(c.g), cast(conj(c.vec1), c.g.dtype)), c.alpha),
)


# -- chains, traces, vector products -------------------------------------------------------------------------


@vjp("torch.linalg.multi_dot")
def _of_multi_dot(c: VjpCall) -> dict[str, Any]:
    """For each factor, the product of those before, the cotangent, and those after it."""
    first, *inner, last = c.tensors
    row, column = len(first.shape) == 1, len(last.shape) == 1
    factors = [
        ltorch.unsqueeze(first, 0) if row else first,
        *inner,
        ltorch.unsqueeze(last, 1) if column else last,
    ]
    shape = (factors[0].shape[0], factors[-1].shape[1])
    before = [c.g if are_same(c.g.shape, tuple(shape)) else ltorch.reshape(c.g, shape)]
    for factor in factors[:-1]:
        before.append(ltorch.mm(adjoint(factor), before[-1]))
    gradients, after = [], None
    for tensor, factor, g in zip(reversed(c.tensors), reversed(factors), reversed(before), strict=True):
        gradient = g if after is None else ltorch.mm(g, after)
        gradients.append(gradient if len(tensor.shape) == 2 else ltorch.reshape(gradient, tensor.shape))
        after = adjoint(factor) if after is None else ltorch.mm(after, adjoint(factor))
    return {"tensors": gradients[::-1]}


def _vector_product(x: Tensor, y: Tensor, dim: int) -> Tensor:
    return linalg.cross(x, y, dim=dim)


def _crossed_dim(c: VjpCall) -> int:
    """Return the dimension of ``torch.cross``: by default, the first of length 3."""
    return c.dim if c.dim is not None else c.input.shape.index(3)


formulas(
    "torch.trace",
    input=lambda c: c.g * ltorch.eye(*c.input.shape, dtype=c.g.dtype, device=c.g.device),
)
formulas(
    "torch.linalg.cross",
    input=lambda c: _vector_product(conj(c.other), c.g, c.dim),
    other=lambda c: _vector_product(c.g, conj(c.input), c.dim),
)
formulas(
    "torch.cross",
    input=lambda c: _vector_product(conj(c.other), c.g, _crossed_dim(c)),
    other=lambda c: _vector_product(c.g, conj(c.input), _crossed_dim(c)),
)
