"""``torch.einsum``: operands in common dimensions, contracted two at a time from the left.

einsum("bij,bjk->bik", a, b)   →   one matrix product over j, batched over b
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thunder.base.errors import OperatorError, UnsupportedOperator
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ops import prims
from thunder.ops.casting import cast
from thunder.ops.promotion import sum_result
from thunder.torch.argument_binding import unpacked
from thunder.torch.namespace import ltorch
from thunder.torch.registration import torchsymbol

#: the subscript of dimension ``i`` (from the end) of an ellipsis; letters are the user's
_ELLIPSIS = "0123456789"


def _spelling(equation: Any, *operands: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if not isinstance(equation, str):
        raise UnsupportedOperator(
            "torch.einsum with lists of dimensions", hint='Write the equation as a string: "ij,jk->ik".'
        )
    return (equation, *unpacked(operands)), {}


def parse(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Return the subscripts of each operand and of the result, one character per dimension.

    Raises OperatorError.
    """
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise OperatorError(
            f"einsum(): {'more' if len(ranks) > len(terms) else 'fewer'} operands were provided "
            "than specified in the equation"
        )
    widest = 0
    expanded = []
    for term, rank in zip(terms, ranks, strict=True):
        named = term.replace("...", "")
        spare = rank - len(named)
        if spare < 0 or (spare and "..." not in term) or (not named.replace("_", "").isalpha() and named):
            raise OperatorError(
                f"einsum(): the number of subscripts in the equation ({len(named)}) does not match the "
                f"number of dimensions ({rank}) for an operand, or a subscript is not a letter"
            )
        widest = max(widest, spare)
        expanded.append(term.replace("...", _ELLIPSIS[:spare][::-1]))
    batch = _ELLIPSIS[:widest][::-1]
    if arrow:
        return expanded, right.replace("...", batch)
    counts = {c: "".join(expanded).count(c) for c in "".join(expanded) if c not in batch}
    return expanded, batch + "".join(sorted(c for c, n in counts.items() if n == 1))


def _without_repeats(a: TensorProxy, term: str) -> tuple[TensorProxy, str]:
    """Take the diagonal for a subscript that an operand has twice."""
    for letter in dict.fromkeys(term):
        while term.count(letter) > 1:
            first = term.index(letter)
            second = term.index(letter, first + 1)
            if a.shape[first] != a.shape[second]:
                raise OperatorError(f"einsum(): subscript {letter} is repeated but the sizes don't match")
            a = prims.diagonal(a, 0, first, second)
            term = term[:first] + term[first + 1 : second] + term[second + 1 :] + letter
    return a, term


def _summed(a: TensorProxy, term: str, needed: str) -> tuple[TensorProxy, str]:
    gone = tuple(d for d, c in enumerate(term) if c not in needed)
    return (prims.sum(a, gone) if gone else a), "".join(c for c in term if c in needed)


def _arranged(a: TensorProxy, term: str, order: str, sizes: dict[str, int]) -> TensorProxy:
    """Return the dimensions in this order; missing ones, and those of length 1, are repeated."""
    present = [c for c in order if c in term]
    a = prims.transpose(a, tuple(term.index(c) for c in present))
    return prims.broadcast_in_dim(a, tuple(sizes[c] for c in order), tuple(order.index(c) for c in present))


def _contracted(
    a: TensorProxy, left: str, b: TensorProxy, right: str, needed: str, sizes: dict[str, int]
) -> tuple[TensorProxy, str]:
    """Return the product of two operands, summed over the subscripts that no later term has."""
    a, left = _summed(a, left, right + needed)
    b, right = _summed(b, right, left + needed)
    shared = [c for c in left if c in right]
    batch = "".join(c for c in shared if c in needed)
    inner = "".join(c for c in shared if c not in needed)
    rows = "".join(c for c in left if c not in right)
    columns = "".join(c for c in right if c not in left)
    for letter in inner:  # one of the two may have length 1
        sizes[letter] = max(a.shape[left.index(letter)], b.shape[right.index(letter)])
    if a.dtype != b.dtype and not inner:  # no sum of products: torch multiplies, and promotes
        result = batch + rows + columns
        return ltorch.mul(*(_arranged(x, term, result, sizes) for x, term in ((a, left), (b, right)))), result

    def flat(x: TensorProxy, term: str, first: str, second: str) -> TensorProxy:
        wide = _arranged(x, term, batch + first + second, sizes)
        return prims.reshape(wide, (*(sizes[c] for c in batch), _count(first, sizes), _count(second, sizes)))

    product = prims.matmul(flat(a, left, rows, inner), flat(b, right, inner, columns))
    result = batch + rows + columns
    return prims.reshape(product, tuple(sizes[c] for c in result)), result


def _count(letters: str, sizes: dict[str, int]) -> int:
    total = 1
    for letter in letters:
        total *= sizes[letter]
    return total


@torchsymbol("torch.einsum", "torch.functional.einsum", spelling=_spelling, tags=(OpTags.MATMUL_OP,))
def einsum(equation: str, *operands: TensorProxy) -> TensorProxy:
    """Products of the operands summed over the subscripts that the result lacks."""
    terms, result = parse(equation, [len(t.shape) for t in operands])
    sizes: dict[str, int] = {}
    for a, term in zip(operands, terms, strict=True):
        for length, letter in zip(a.shape, term, strict=True):
            size_so_far = sizes.setdefault(letter, length)
            if size_so_far != length and 1 not in (size_so_far, length):
                raise OperatorError(
                    f"einsum(): subscript {letter} has size {length} for an operand which does not broadcast "
                    f"with previously seen size {size_so_far}"
                )
            sizes[letter] = max(size_so_far, length) if 0 not in (size_so_far, length) else 0
    if len(set(result)) != len(result) or any(c not in sizes for c in result):
        raise OperatorError(
            f"einsum(): the output subscripts {result!r} do not name distinct subscripts of the operands"
        )
    pairs = [_without_repeats(a, term) for a, term in zip(operands, terms, strict=True)]
    a, term = pairs[0]
    if len(pairs) == 1 and set(term) - set(result):  # a plain sum, which torch computes in int64 for integers
        a = cast(a, sum_result(a.dtype))
    for i, (b, right) in enumerate(pairs[1:], 2):
        needed = result + "".join(t for _, t in pairs[i:])
        a, term = _contracted(a, term, b, right, needed, sizes)
    a, term = _summed(a, term, result)
    if term != result or a.shape != tuple(sizes[c] for c in result):
        return _arranged(a, term, result, sizes)
    return prims.shallow_copy(a) if any(a is operand for operand in operands) else a
