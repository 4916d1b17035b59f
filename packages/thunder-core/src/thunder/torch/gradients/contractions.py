"""Gradients of products summed over dimensions: einsum, tensordot, inner.

A contraction is linear in each operand, so the gradient of an operand contracts the cotangent with the other
operands: of ``einsum("ij,jk->ik", a, b)`` with respect to ``a`` it is ``einsum("ik,jk->ij", g, b)``.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

from thunder.ir.proxies import TensorProxy
from thunder.ops.casting import cast
from thunder.ops.gradient_rules import (
    VjpCall,
    conj,
    fitted,
    formulas,
    gradient_rule,
    summed_to,
    vjp,
    wants_grad,
)
from thunder.ops.prims.gradient import get_grad, put_grad
from thunder.torch.namespace import ltorch
from thunder.torch.rows import einsum, linalg  # noqa: F401  (the rows)
from thunder.torch.rows.einsum import parse
from thunder.torch.rows.linalg import summed_dims

Tensor = TensorProxy


@gradient_rule("torch.einsum")
def _einsum(equation: str, *operands: Tensor) -> Tensor:
    out = ltorch.einsum(equation, *operands)
    g = get_grad(out)
    terms, result = _in_letters(*parse(equation, [len(t.shape) for t in operands]))
    pairs = list(zip(operands, terms, strict=True))
    for i, operand in enumerate(operands):
        if wants_grad(operand):
            others = [(cast(t, g.dtype), term) for j, (t, term) in enumerate(pairs) if j != i]
            put_grad(operand, fitted(_of_operand(g, result, operand, terms[i], others), operand))
    return out


def _in_letters(terms: Sequence[str], result: str) -> tuple[list[str], str]:
    """Return the subscripts with letters for the dimensions of an ellipsis."""
    used = set("".join(terms))
    free = [letter for letter in string.ascii_letters if letter not in used]
    names = {digit: free.pop() for digit in sorted(used) if digit.isdigit()}
    table = str.maketrans(names)
    return [term.translate(table) for term in terms], result.translate(table)


def _of_operand(
    g: Tensor, result: str, operand: Tensor, term: str, others: Sequence[tuple[Tensor, str]]
) -> Tensor:
    if 0 in operand.shape:
        return ltorch.zeros_like(operand)
    letters = "".join(dict.fromkeys(term))
    present = "".join(c for c in letters if c in result or any(c in other for _, other in others))
    left = ",".join([result, *(other for _, other in others)])
    if left != present:
        g = ltorch.einsum(f"{left}->{present}", g, *(conj(t) for t, _ in others))
    for d, letter in enumerate(letters):  # the dimensions that only this operand has were summed
        if letter not in present:
            g = ltorch.unsqueeze(g, d)
    sizes = tuple(operand.shape[term.index(letter)] for letter in letters)
    wide = tuple(max(size, n) for size, n in zip(sizes, g.shape, strict=True))
    g = g if g.shape == wide else ltorch.expand(g, wide)
    return _on_diagonals(summed_to(g, sizes), term)


def _on_diagonals(g: Tensor, term: str) -> Tensor:
    """Write dimensions of ``g`` to the diagonal of each subscript that a term repeats."""
    letters = list(dict.fromkeys(term))
    for position, letter in enumerate(term):
        if letters[position : position + 1] != [letter]:
            first = term.index(letter)
            g = ltorch.diag_embed(ltorch.movedim(g, first, -1), 0, first, position)
            letters.insert(position, letter)
    return g


# -- tensordot -----------------------------------------------------------------------------------------------


def _contraction_gradient(
    g: Tensor, like: Tensor, summed: Sequence[int], other: Tensor, others_summed: Sequence[int], is_left: bool
) -> Tensor:
    """Return the gradient of one operand of a tensordot.

    The dimensions of ``g`` are the free ones of the left operand, then those of the right.
    """
    free = [d for d in range(len(like.shape)) if d not in summed]
    others_free = [d for d in range(len(other.shape)) if d not in others_summed]
    meeting = range(len(free), len(g.shape)) if is_left else range(len(others_free))
    product = ltorch.tensordot(g, conj(other), (list(meeting), others_free))
    # its dimensions: those that are free in ``like``, then the summed ones in the order of ``other``
    met = [summed[i] for i in sorted(range(len(summed)), key=lambda i: others_summed[i])]
    order = [*free, *met]
    gradient = ltorch.permute(product, tuple(order.index(d) for d in range(len(order))))
    # a summed dimension of length 1 multiplies the sum over one of any length
    wide = tuple(max(n, size) for n, size in zip(gradient.shape, like.shape, strict=True))
    return gradient if gradient.shape == wide or 0 in like.shape else ltorch.expand(gradient, wide)


@vjp("torch.tensordot")
def _of_tensordot(c: VjpCall) -> dict[str, Any]:
    left, right = summed_dims(c.a, c.b, c.dims)
    gradients = {}
    if c.needs("a"):
        gradients["a"] = _contraction_gradient(c.g, c.a, left, c.b, right, True)
    if c.needs("b"):
        gradients["b"] = _contraction_gradient(c.g, c.b, right, c.a, left, False)
    return gradients


def _of_inner(c: VjpCall, operand: Tensor, other: Tensor, is_left: bool) -> Tensor:
    if not c.input.shape or not c.other.shape:
        return c.g * conj(other)
    last, others_last = [len(operand.shape) - 1], [len(other.shape) - 1]
    return _contraction_gradient(c.g, operand, last, other, others_last, is_left)


formulas(
    "torch.inner",
    input=lambda c: _of_inner(c, c.input, c.other, True),
    other=lambda c: _of_inner(c, c.other, c.input, False),
)
