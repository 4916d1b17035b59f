"""Whether an edited program computes what the unedited one does, on the inputs of a call.

Both run on copies of the inputs, with the same random numbers; results, gradients of all inputs for random
cotangents, and what inputs hold afterwards are compared in float64. How far they may be apart follows from
the program: it runs with inputs that differ by their rounding, and what that changes is what rounding can
change (the perturbation of Monte Carlo arithmetic, Parker 1997, of the inputs alone).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch

from thunder.core.entries import CacheEntry, TensorProxy, TraceCtx, default_generators_kept
from thunder.core.pytree import tree_flatten
from thunder_store.edited.forms import values_in
from thunder_store.edited.refusals import EditedProgramError

__all__ = ["CheckedOnce", "refuse_effects"]

#: how much more than by the rounding of its inputs a result may differ, since calls round too
_ROUNDINGS: Final = 32.0
#: roundings of the result itself
_OWN_ROUNDINGS: Final = 8.0
_PERTURBATIONS: Final = 2
_SEED: Final = 20_061


def refuse_effects(entry: CacheEntry, path: str) -> None:
    """Raise EditedProgramError for a program that cannot run twice to be compared."""
    plan = entry.failures
    reason = None
    if plan.prints or plan.is_opaque:
        reason = "it prints, or calls code that is not traced"
    elif plan.host_generators or plan.decides or plan.decides_on_made:
        reason = "it draws random numbers of Python or NumPy, or decides on data"
    elif any("c10d" in b.sym.id for b in entry.computation_traces[-1].bound_symbols):
        reason = "other processes take part in it"
    if reason is not None:
        raise EditedProgramError(
            f"{path} cannot be compared with the unedited program: {reason}",
            hint="Pass check=False, and compare it yourself.",
        )


class CheckedOnce:
    """The computation of an edited entry, whose first call compares it with that of the unedited one."""

    def __init__(self, entry: Any, edited: Callable[..., Any], path: str) -> None:
        self.entry, self.edited, self.path = entry, edited, path

    def __call__(self, *args: Any) -> Any:
        """Compare, and run the edited program; raise EditedProgramError where the two differ."""
        unedited: CacheEntry = self.entry.unedited
        _Comparison(unedited.computation_fn, self.edited, args, _unit(unedited), self.path).run()
        self.entry.computation_fn = self.edited
        return self.edited(*args)


def _unit(entry: CacheEntry) -> float:
    """Return the rounding of the coarsest dtype in which the program computes; 0 without one."""
    traces: list[TraceCtx] = [entry.computation_traces[0], *entry.backward_traces[-1:]]
    values = [p for t in traces for b in t.bound_symbols for p in values_in((b.args, b.output))]
    dtypes = {p.dtype.torch_dtype for p in values if isinstance(p, TensorProxy) and p.dtype.is_inexact}
    return max((torch.finfo(dtype).eps for dtype in dtypes), default=0.0)


@dataclass(frozen=True)
class _Outcome:
    """What a run has given: (what it is, value) in order."""

    values: list[tuple[str, Any]]


class _Comparison:
    def __init__(
        self,
        unedited: Callable[..., Any],
        edited: Callable[..., Any],
        args: Sequence[Any],
        unit: float,
        path: str,
    ) -> None:
        self.unedited, self.edited, self.args, self.unit, self.path = unedited, edited, args, unit, path

    def run(self) -> None:
        expected = self._outcome(self.unedited)
        try:
            found = self._outcome(self.edited)
        except Exception as error:
            raise EditedProgramError(
                f"{self.path} raises {type(error).__name__}, and the unedited program does not",
                found={"error": error},
            ) from error
        if [name for name, _ in expected.values] != [name for name, _ in found.values]:
            self._refuse("results", "the edited program has other results")
        others = [self._outcome(self.unedited, seed) for seed in range(1, _PERTURBATIONS + 1)]
        for i, (name, value) in enumerate(expected.values):
            self._compare(name, value, found.values[i][1], [o.values[i][1] for o in others])

    def _outcome(self, fn: Callable[..., Any], perturbation: int = 0) -> _Outcome:
        """Run a program on copies of the inputs, and compute the gradients of what requires grad."""
        with default_generators_kept(), _generators_kept(self.args):
            copies = _Copies(self.args, self.unit if perturbation else 0.0, perturbation)
            leaves = tree_flatten(fn(*copies.args))[0]
            results = [(f"result {i}", x) for i, x in enumerate(leaves)]
            values = [(name, _Result.of(x, copies, leaves) if _is_tensor(x) else x) for name, x in results]
            values += [(f"input {i} after the call", x.detach().clone()) for i, x in copies.tensors()]
            values += _gradients(leaves, copies)
            return _Outcome(values)

    def _compare(self, name: str, expected: Any, found: Any, others: Sequence[Any]) -> None:
        if isinstance(expected, _Result):
            if not isinstance(found, _Result) or found.form != expected.form:
                shown = found.form if isinstance(found, _Result) else repr(found)
                self._refuse(name, "is another tensor", shown, expected.form)
            expected, found = expected.value, found.value
            others = [o.value for o in others]
        if not _is_tensor(expected):
            if type(found) is not type(expected) or not (found == expected or found is expected):
                self._refuse(name, "is another value", repr(found), repr(expected))
            return
        if not _is_tensor(found) or found.shape != expected.shape or found.dtype != expected.dtype:
            self._refuse(name, "is another tensor", repr(found), repr(expected))
        self._compare_numbers(name, expected, found, others)

    def _compare_numbers(
        self, name: str, expected: torch.Tensor, found: torch.Tensor, others: Sequence[torch.Tensor]
    ) -> None:
        if not (expected.is_floating_point() or expected.is_complex()):
            moved = torch.zeros_like(expected, dtype=torch.bool)
            for other in others:
                moved |= other != expected
            wrong = (found != expected) & ~moved
            if bool(wrong.any()):
                self._refuse(name, f"differs in {int(wrong.sum())} of {wrong.numel()} elements")
            return
        own_unit = torch.finfo(expected.dtype).eps
        a, b = _exact(expected), _exact(found)
        is_finite = a.isfinite()
        if not torch.equal(is_finite, b.isfinite()) or not torch.equal(
            a[~is_finite].nan_to_num(), b[~is_finite].nan_to_num()
        ):
            self._refuse(name, "has NaN or infinity in other places")
        scale = float(a[is_finite].abs().max()) if bool(is_finite.any()) else 0.0
        moved_by = max((_distance(a, _exact(other), is_finite) for other in others), default=0.0)
        allowed = _ROUNDINGS * moved_by + _OWN_ROUNDINGS * max(own_unit, self.unit) * scale
        distance = _distance(a, b, is_finite)
        if not distance <= allowed:
            self._refuse(name, f"differs by {distance:.3g}, and rounding explains {allowed:.3g}")

    def _refuse(self, name: str, what: str, found: str = "", expected: str = "") -> None:
        facts = {"found": found, "expected": expected} if expected else None
        raise EditedProgramError(
            f"{self.path} does not compute what the unedited program does: {name} {what}",
            found=facts,
            hint="thunder.diff shows what was edited; check=False uses it unchecked.",
        )


@dataclass(frozen=True)
class _Result:
    """A tensor that a program returns: its values, and its form as text."""

    value: torch.Tensor
    form: str

    @classmethod
    def of(cls, x: torch.Tensor, copies: _Copies, results: Sequence[Any]) -> _Result:
        layout = str(tuple(x.stride())) if x.layout is torch.strided else str(x.layout)
        places = [f"input {i}" for i, y in copies.tensors() if _shares_memory(x, y)]
        places += [
            f"result {i}"
            for i, y in enumerate(results)
            if y is not x and _is_tensor(y) and _shares_memory(x, y)
        ]
        form = f"{x.device} {x.dtype} {tuple(x.shape)}, strides {layout}, requires_grad={x.requires_grad}"
        return cls(x.detach().clone(), form + (f", in the memory of {', '.join(places)}" if places else ""))


def _is_tensor(x: Any) -> bool:
    return isinstance(x, torch.Tensor)


def _has_storage(x: torch.Tensor) -> bool:
    return x.layout is torch.strided and type(x) in (torch.Tensor, torch.nn.Parameter) and not x.is_meta


def _shares_memory(x: torch.Tensor, y: torch.Tensor) -> bool:
    if not (_has_storage(x) and _has_storage(y)) or not x.numel() or not y.numel():
        return x is y
    return x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()


def _exact(x: torch.Tensor) -> torch.Tensor:
    if x.is_complex():
        return torch.view_as_real(x.resolve_conj()).to(torch.float64)
    return x.to(torch.float64)


def _distance(a: torch.Tensor, b: torch.Tensor, is_finite: torch.Tensor) -> float:
    difference = (a - b)[is_finite].abs()
    difference = difference[difference.isfinite()]
    return float(difference.max()) if difference.numel() else 0.0


class _Copies:
    """Copies of inputs that share memory with each other as the inputs do."""

    def __init__(self, args: Sequence[Any], unit: float, seed: int) -> None:
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._unit, self._random = unit, torch.Generator().manual_seed(_SEED + seed)
        #: position of an input that requires grad → the leaf whose gradient is that of the input
        self.leaves: dict[int, torch.Tensor] = {}
        self.args = [self._copied(i, x) if _is_tensor(x) else x for i, x in enumerate(args)]

    def tensors(self) -> Iterator[tuple[int, torch.Tensor]]:
        """Yield the inputs that are tensors."""
        return ((i, x) for i, x in enumerate(self.args) if _is_tensor(x))

    def _copied(self, i: int, x: torch.Tensor) -> torch.Tensor:
        copy = self._memory(x) if _has_storage(x) else x.detach().clone()
        if not x.requires_grad:
            return copy
        leaf = copy.requires_grad_()
        self.leaves[i] = leaf
        # a program may write to an input that is not a leaf
        return leaf if x.is_leaf else leaf.clone(memory_format=torch.preserve_format)

    def _memory(self, x: torch.Tensor) -> torch.Tensor:
        storage = x.untyped_storage()
        known = self._storages.get(storage.data_ptr()) if storage.nbytes() else None
        if known is None:
            known = storage.clone()
            copy = _view_of(known, x)
            if self._unit and (x.is_floating_point() or x.is_complex()):
                self._perturb(copy)
            if storage.nbytes():
                self._storages[storage.data_ptr()] = known
        return _view_of(known, x)

    def _perturb(self, copy: torch.Tensor) -> None:
        """Change each value by its rounding, up or down."""
        signs = torch.randint(0, 2, tuple(copy.shape), generator=self._random) * 2 - 1
        factors = 1 + signs.to(copy.device, torch.float64) * self._unit
        wide = torch.complex128 if copy.is_complex() else torch.float64
        with torch.no_grad():
            copy.copy_(copy.to(wide) * factors)


def _view_of(storage: torch.UntypedStorage, like: torch.Tensor) -> torch.Tensor:
    empty = torch.empty(0, dtype=like.dtype, device=like.device)
    return empty.set_(storage, like.storage_offset(), like.shape, like.stride())


def _gradients(results: Sequence[Any], copies: _Copies) -> list[tuple[str, Any]]:
    """Return the gradients of the inputs, for cotangents that are the same in each run."""
    random = torch.Generator().manual_seed(_SEED)
    found = [x for x in results if _is_tensor(x) and x.requires_grad]
    if not found or not copies.leaves:
        return []
    cotangents = [torch.randn(tuple(x.shape), generator=random).to(x.device, x.dtype) for x in found]
    leaves = [*copies.leaves.values()]
    grads = torch.autograd.grad(found, leaves, cotangents, allow_unused=True)
    return [(f"gradient of input {i}", g) for i, g in zip(copies.leaves, grads, strict=True)]


@contextmanager
def _generators_kept(args: Sequence[Any]) -> Iterator[None]:
    """Restore the generators among the inputs at the end."""
    states = [(x, x.get_state()) for x in args if isinstance(x, torch.Generator)]
    try:
        yield
    finally:
        for generator, state in states:
            generator.set_state(state)
