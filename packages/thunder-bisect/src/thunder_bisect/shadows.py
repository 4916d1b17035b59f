"""Computations of torch, also done exactly and with other rounding errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from thunder_bisect.rounding import (
    FUNCTION_UNITS,
    FUNCTIONS,
    arithmetic_unit,
    gamma,
    length_of,
    partial_sums,
    summing,
    unit,
)

__all__ = ["SHADOWS", "Shadow", "Shadows"]

#: how many computations with drawn rounding errors there are
SAMPLES = 4


@dataclass(frozen=True)
class Shadow:
    """One of the computations: its dtype, and whether rounding errors are drawn."""

    dtype: torch.dtype
    seed: int | None = None

    @property
    def complex_dtype(self) -> torch.dtype:
        """The complex dtype of the same precision."""
        return torch.complex128 if self.dtype is torch.float64 else torch.complex64


#: the exact computation, the one in float32, and those with drawn errors
SHADOWS = (
    Shadow(torch.float64),
    Shadow(torch.float32),
    *(Shadow(torch.float64, seed) for seed in range(1, SAMPLES + 1)),
)


#: the namespace of collectives, whose results are waited for
_COLLECTIVES = "_c10d_functional"


class Shadows(TorchDispatchMode):
    """Within the context, each operator of ATen is computed again for every one of `SHADOWS`.

    The program itself runs as it is. Each of the other computations follows its own values, also in what it
    decides by comparing them, and takes the program's where it cannot: random draws, results of another
    size, bits of a dtype, operators that torch does not have in its dtype. A backward within the context is
    computed so too.

    A tensor is found again by its memory, of which nothing is released meanwhile: the context needs the
    memory of all values of the program, seven times that of float32.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._shadows: dict[tuple[Any, ...], list[torch.Tensor]] = {}
        self._computed: set[tuple[Any, ...]] = set()
        self._alive: list[torch.Tensor] = []
        self._generators = [_generator(s) for s in SHADOWS]

    # -- values

    def of(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Return the other computations of a tensor, in the order of `SHADOWS`."""
        found = self._shadows.get(_key(x))
        if found is None:
            with _outside():
                found = [_as(x, shadow) for shadow in SHADOWS]
            self._enter(x, found)
        return found

    def set(self, x: torch.Tensor, shadows: Sequence[torch.Tensor], *, computed: bool) -> None:
        """Give a tensor of the program the values of another one, whose computations went before."""
        self._enter(x, list(shadows))
        if computed:
            self._computed.add(_key(x))

    def _enter(self, x: torch.Tensor, shadows: list[torch.Tensor]) -> None:
        self._shadows[_key(x)] = shadows
        self._alive.append(x)

    # -- operators

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        before = [self.of(x) for x in _tensors((args, kwargs))]
        result = func(*args, **kwargs)
        if func is torch.ops.aten._local_scalar_dense.default or not _tensors(result):
            return result
        results = [self._run(i, func, args, kwargs, result, before) for i in range(len(SHADOWS))]
        written = {id(x) for x in _tensors((args, kwargs))}
        for number, x in enumerate(_tensors(result)):
            if id(x) not in written:
                self._enter(x, [shadow[number] for shadow in results])
            if not _aliases(func) or any(_key(y) in self._computed for y in _tensors((args, kwargs))):
                self._computed.add(_key(x))
        return result

    def _run(
        self, i: int, func: Any, args: Any, kwargs: Any, result: Any, before: list[list[torch.Tensor]]
    ) -> list[torch.Tensor]:
        """Return the tensors of one computation's result.

        The program's where it cannot compute them.
        """
        shadow, wanted = SHADOWS[i], _tensors(result)
        if _draws(func, args, kwargs) or _reads_bits(func, args):
            return self._taken(i, func, args, wanted)
        if (
            func.namespace == _COLLECTIVES and func.overloadpacket.__name__ == "wait_tensor"
        ):  # the shadows of a collective have arrived
            return [self.of(x)[i] for x in _tensors(args)]
        written = _written(func)
        noisy = shadow.seed is not None and not _aliases(func)

        def value(x: Any) -> Any:
            if isinstance(x, torch.Tensor):
                other = self.of(x)[i]
                return self._perturbed(i, x, other) if noisy else other
            return _wide(x, shadow)

        try:
            operands, named = tree_map(value, (args, kwargs))
            computed = func(*operands, **named)
            if func.namespace == _COLLECTIVES:
                computed = tree_map(torch.ops._c10d_functional.wait_tensor, computed)
        except (RuntimeError, NotImplementedError, IndexError, ValueError, TypeError):
            # torch has no such kernel in this dtype, or the shadow's own decision leads to another program
            if written:
                return self._taken(i, func, args, wanted)
            return self._in_own_dtypes(i, func, args, kwargs, wanted)
        tensors = _tensors(computed)
        if written:
            return tensors
        if [x.shape for x in tensors] != [x.shape for x in wanted]:
            return self._taken(i, func, args, wanted)
        tensors = [
            _as(x, shadow) if x.dtype is not _wide(w.dtype, shadow) else x
            for x, w in zip(tensors, wanted, strict=True)
        ]
        name = func.overloadpacket.__name__
        if noisy and summing(name) and wanted[0].is_floating_point():
            tensors = [
                self._summed(
                    i,
                    name,
                    operands,
                    tensors[0],
                    wanted[0].dtype,
                    func(*tree_map(_square, operands), **named),
                )
            ]
        elif noisy and name in FUNCTIONS:
            tensors = [self._rounded(i, x, w.dtype) for x, w in zip(tensors, wanted, strict=True)]
        return tensors

    def _rounded(self, i: int, value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return the result of a function with the error of a library."""
        if not dtype.is_floating_point or not value.numel():
            return value
        return value * (1 + FUNCTION_UNITS * arithmetic_unit(dtype) * self._drawn(i, value))

    def _in_own_dtypes(
        self, i: int, func: Any, args: Any, kwargs: Any, wanted: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        """Return the results that the program's dtypes give for the values of a computation."""

        def value(x: Any) -> Any:
            if not isinstance(x, torch.Tensor):
                return x
            other = self.of(x)[i]
            other = self._perturbed(i, x, other) if SHADOWS[i].seed is not None else other
            return torch.empty_like(x).copy_(other)

        try:
            computed = _tensors(func(*tree_map(value, args), **tree_map(value, kwargs)))
        except (RuntimeError, NotImplementedError, IndexError, ValueError, TypeError):
            return self._taken(i, func, args, wanted)
        if [x.shape for x in computed] != [x.shape for x in wanted]:
            return self._taken(i, func, args, wanted)
        return [_as(x, SHADOWS[i]) for x in computed]

    def _taken(self, i: int, func: Any, args: Any, wanted: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the program's own results as those of a computation."""
        taken = [_as(x, SHADOWS[i]) for x in wanted]
        operands = {id(x): x for x in _tensors(args)}
        for x, value in zip(wanted, taken, strict=True):
            if id(x) in operands:  # written in place
                self.of(x)[i].copy_(value)
        return taken

    def _perturbed(self, i: int, x: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        if not x.is_floating_point() or not value.is_floating_point() or not x.numel():
            return value
        u = unit(x.dtype) if _key(x) in self._computed else arithmetic_unit(x.dtype)
        return value * (1 + u * self._drawn(i, value))

    def _summed(
        self,
        i: int,
        operator: str,
        operands: Any,
        result: torch.Tensor,
        dtype: torch.dtype,
        squares: torch.Tensor,
    ) -> torch.Tensor:
        """Return a result with the error of adding up its terms."""
        length = length_of(operator, operands, result)
        sums = partial_sums(operator, result, squares, length)
        return result + gamma(length, arithmetic_unit(dtype)) * sums * self._drawn(i, result)

    def _drawn(self, i: int, like: torch.Tensor) -> torch.Tensor:
        drawn = torch.rand(like.shape, generator=self._generators[i], dtype=torch.float64)
        return (2 * drawn - 1).to(like.device)


def _generator(shadow: Shadow) -> torch.Generator | None:
    return None if shadow.seed is None else torch.Generator().manual_seed(shadow.seed)


def _outside() -> Any:
    return torch.utils._python_dispatch._disable_current_modes()


def _key(x: torch.Tensor) -> tuple[Any, ...]:
    """Return what identifies the elements of a tensor: where they are, and their layout."""
    if x.layout is not torch.strided:
        return (id(x),)
    storage = x.untyped_storage()
    place = storage.data_ptr() or id(storage)
    return (place, x.storage_offset(), tuple(x.shape), x.stride(), x.dtype, x.is_conj(), x.is_neg())


def _tensors(values: Any) -> list[torch.Tensor]:
    return [x for x in tree_flatten(values)[0] if isinstance(x, torch.Tensor)]


def _as(x: torch.Tensor, shadow: Shadow) -> torch.Tensor:
    """Return a copy of a tensor in a computation's dtype; integers keep theirs."""
    return x.detach().to(_wide(x.dtype, shadow), copy=True)


def _wide(x: Any, shadow: Shadow) -> Any:
    """Return a dtype of floating point as that of a computation; other values as they are."""
    if not isinstance(x, torch.dtype):
        return x
    if x.is_complex:
        return shadow.complex_dtype
    return shadow.dtype if x.is_floating_point else x


def _square(x: Any) -> Any:
    return x.square() if isinstance(x, torch.Tensor) and x.is_floating_point() else x


def _draws(func: Any, args: Any, kwargs: Any) -> bool:
    """Return whether an operator draws random numbers; an attention without dropout does not."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return False
    names = [argument.name for argument in func._schema.arguments]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    return not ("dropout_p" in names and given.get("dropout_p", 0.0) == 0.0)


def _reads_bits(func: Any, args: Any) -> bool:
    return func is torch.ops.aten.view.dtype


def _aliases(func: Any) -> bool:
    return any(a.alias_info is not None for a in func._schema.arguments)


def _written(func: Any) -> bool:
    return any(a.alias_info is not None and a.alias_info.is_write for a in func._schema.arguments)
