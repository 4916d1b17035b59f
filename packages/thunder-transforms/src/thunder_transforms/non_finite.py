"""The first operation that computes NaN or infinity, with the user's line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

import thunder
from thunder.core.errors import Location, TraceError, UserError
from thunder.core.proxies import TensorProxy
from thunder.core.pytree import tree_flatten
from thunder.core.symbol import BoundSymbol
from thunder.core.tags import OpTags
from thunder.core.trace import TraceCtx
from thunder.extend import evaluate_calls
from thunder_transforms.observing import branch_of, is_computing, module_of, observer, with_observers

__all__ = ["NonFiniteDetector", "NonFiniteResult"]


class NonFiniteResult(UserError, FloatingPointError):
    """An operation of a compiled program has computed NaN, or infinity from finite values."""

    default_hint = (
        "The operands are described above. In a backward, gradients of later operations are among them."
    )


class NonFiniteDetector(thunder.Transform):
    """Names the first operation whose result has NaN, or infinities that its arguments do not have.

    Each result of forward and backward is checked after it is computed. Infinity is accepted where an
    argument of the operation is infinite: masks of attention are filled with it. The memory of `torch.empty`
    is not checked. In a fusion, the operation is found by computing the fusion's calls one by one with torch.

    Args:
        infinities: whether infinity is looked for, too.
        inputs: whether NaN in the program's inputs is an error.
        raises: whether the first finding is raised as a `NonFiniteResult`; else the program goes on, and
            `findings` has the error of each operation that computed such a value.
    """

    observes = True

    def __init__(self, *, infinities: bool = True, inputs: bool = True, raises: bool = True) -> None:
        self.infinities, self.inputs, self.raises = infinities, inputs, raises
        #: the errors that were not raised, one for each operation and compile
        self.findings: list[NonFiniteResult] = []
        self._checked: list[_Check] = []
        self._symbol = observer("check_finite", self._check)
        self._of_inputs = observer("check_inputs", self._check_inputs)

    def transform_trace_post_optimization(self, computation_trace: TraceCtx, **kwargs: Any) -> TraceCtx:
        branch = branch_of(computation_trace)

        def after(bsym: BoundSymbol) -> list[BoundSymbol]:
            results = [p for p in bsym.flat_proxy_outs if _is_checked(p)]
            if not results or OpTags.UNINITIALIZED in _all_tags(bsym):
                return []
            operands = [p for p in bsym.flat_proxy_args if isinstance(p, TensorProxy)]
            self._checked.append(_Check(bsym, branch, [p.name for p in operands]))
            return [self._symbol.bind(len(self._checked) - 1, tuple(results), tuple(operands), output=None)]

        new = with_observers(computation_trace, type(self).__name__, after=after)
        arguments = [p for p in computation_trace.args if _is_checked(p)]
        if self.inputs and arguments:
            names = tuple(p.name for p in arguments)
            first = next((i for i, b in enumerate(new.bound_symbols) if is_computing(b)), 0)
            new.bound_symbols.insert(first, self._of_inputs.bind(names, *arguments, output=None))
        return new

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without statements of compiled programs; a copy compiles its own."""
        return self.__dict__ | {"_checked": []}

    def _check_inputs(self, names: Sequence[str], *tensors: torch.Tensor) -> None:
        for name, tensor in zip(names, tensors, strict=True):
            if _has_nan(tensor):
                self._report(
                    NonFiniteResult(
                        f"the input {name} has NaN",
                        found={name: _described(tensor)},
                        hint="NonFiniteDetector(inputs=False) accepts it.",
                    )
                )

    def _check(self, index: int, results: Sequence[Any], operands: Sequence[Any]) -> None:
        if not any(self._is_bad(r) for r in results):
            return
        check = self._checked[index]
        error = check.error(results, operands, self.infinities)
        if error is not None:
            self._report(error)

    def _is_bad(self, tensor: Any) -> bool:
        if not isinstance(tensor, torch.Tensor) or tensor.device.type == "meta":
            return False
        return not bool(_finite(tensor).all()) if self.infinities else _has_nan(tensor)

    def _report(self, error: NonFiniteResult) -> None:
        if self.raises:
            raise error
        if not any(e.asked == error.asked and e.where == error.where for e in self.findings):
            self.findings.append(error)


class _Check:
    """A statement whose results are checked; `operands` are the names of its tensor arguments."""

    def __init__(self, bsym: BoundSymbol, branch: str, operands: Sequence[str]) -> None:
        self.bsym, self.branch, self.operands = bsym, branch, tuple(operands)

    def error(
        self, results: Sequence[Any], operands: Sequence[Any], infinities: bool
    ) -> NonFiniteResult | None:
        """Return the error of a statement with non-finite results, or None if its arguments explain them."""
        values = dict(zip(self.operands, operands, strict=True))
        named = dict(zip((p.name for p in self.bsym.flat_proxy_outs if _is_checked(p)), results, strict=True))
        if _new_kind(self.bsym, results, operands, infinities) is None:
            return None
        if self.bsym.sym.is_fusion:
            inner = _first_in_fusion(self.bsym, values, infinities)
            if inner is not None:
                call, computed = inner
                return _error(call, self.branch, computed, values, self.bsym.sym.name, self.bsym.locations)
            if all(_is_explained(tensor, values.get(name)) for name, tensor in named.items()):
                return None  # by an infinity that a call of the fusion was given
        return _error(self.bsym, self.branch, named, values, None, ())


def _first_in_fusion(
    fusion: BoundSymbol, values: dict[str, Any], infinities: bool
) -> tuple[BoundSymbol, dict[str, Any]] | None:
    """Return the first call of a fusion that computes non-finite values, with its results by name.

    The results of earlier calls are entered into `values`. A call that torch cannot compute ends the search.
    """
    for call in fusion.subsymbols:
        operands = [values[p.name] for p in call.flat_proxy_args if p.name in values]
        computed: dict[str, Any] = dict(values)
        try:
            evaluate_calls([call], computed)
        except TraceError:
            return None
        results = {p.name: computed[p.name] for p in call.flat_proxy_outs if _is_checked(p)}
        if _new_kind(call, list(results.values()), operands, infinities) is not None:
            return call, results
        values.update(computed)
    return None


def _is_explained(tensor: Any, computed: Any) -> bool:
    """Return whether a result has only such non-finite values as the calls of its fusion compute."""
    return (_has_nan(computed) or not _has_nan(tensor)) and (
        _has_infinity(computed) or not _has_infinity(tensor)
    )


def _new_kind(
    bsym: BoundSymbol, results: Sequence[Any], operands: Sequence[Any], infinities: bool
) -> str | None:
    """Return `"NaN"` or `"infinity"` if the results have it and the arguments do not; else None."""
    tensors = [t for t in results if isinstance(t, torch.Tensor)]
    if any(map(_has_nan, tensors)) and not any(map(_has_nan, operands)):
        return "NaN"
    if infinities and any(map(_has_infinity, tensors)):
        numbers = [x for x in tree_flatten((bsym.args, bsym.kwargs))[0] if isinstance(x, float)]
        if not (any(map(_has_infinity, operands)) or any(map(math.isinf, numbers))):
            return "infinity"
    return None


def _error(
    bsym: BoundSymbol,
    branch: str,
    results: Mapping[str, Any],
    values: Mapping[str, Any],
    fusion: str | None,
    where: Sequence[Location],
) -> NonFiniteResult:
    has_nan = any(_has_nan(t) for t in results.values())
    found: dict[str, object] = {} if fusion is None else {"fusion": fusion}
    found["statement"] = bsym.line.partition("  # ")[0]
    module = module_of(bsym)
    if module:
        found["module"] = module
    operands = dict.fromkeys(p.name for p in bsym.flat_proxy_args)
    found |= {n: _described(values[n]) for n in operands if isinstance(values.get(n), torch.Tensor)}
    found |= {name: _described(t) for name, t in results.items() if name not in found}
    part = " in the backward" if branch == "backward" else ""
    return NonFiniteResult(
        f"{bsym.sym.name} computes {'NaN' if has_nan else 'infinity'}{part}",
        found=found,
        where=bsym.locations or list(where),
    )


def _is_checked(p: Any) -> bool:
    return isinstance(p, TensorProxy) and p.dtype.is_inexact


def _all_tags(bsym: BoundSymbol) -> frozenset[Any]:
    return frozenset(bsym.tags).union(*(_all_tags(part) for part in bsym.subsymbols))


def _finite(tensor: torch.Tensor) -> torch.Tensor:
    return _comparable(tensor).isfinite()


def _comparable(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of a dtype for which torch has `isfinite`; those of one byte are converted."""
    values = tensor.detach()
    return values.float() if values.is_floating_point() and values.itemsize == 1 else values


def _has_nan(tensor: Any) -> bool:
    return _is_inexact(tensor) and bool(_comparable(tensor).isnan().any())


def _has_infinity(tensor: Any) -> bool:
    return _is_inexact(tensor) and bool(_comparable(tensor).isinf().any())


def _is_inexact(tensor: Any) -> bool:
    return (
        isinstance(tensor, torch.Tensor)
        and tensor.device.type != "meta"
        and (tensor.is_floating_point() or tensor.is_complex())
    )


def _described(tensor: torch.Tensor) -> str:
    """Return the form of a tensor, how many elements are not finite, and the range of the others."""
    form = f"{tensor.device} {str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
    if not _is_inexact(tensor):
        return form
    values = _comparable(tensor)
    parts: Iterable[tuple[str, torch.Tensor]] = (("NaN", values.isnan()), ("infinite", values.isinf()))
    texts = [
        f"{int(mask.sum())} of {mask.numel()} elements {name}, first at {tuple(mask.nonzero()[0].tolist())}"
        for name, mask in parts
        if bool(mask.any())
    ]
    finite = values[values.isfinite()]
    if finite.numel() and not finite.is_complex():
        texts.append(f"from {finite.min().item():.6g} to {finite.max().item():.6g}")
    return f"{form}: {', '.join(texts)}" if texts else form
