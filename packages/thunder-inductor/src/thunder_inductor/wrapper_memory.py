"""The memory that the function of a region allocates for itself, read from its text.

buf0 = empty_strided_cpu((8, 4), (4, 1), torch.float32)     128 bytes
cpp_fused_0(arg0_1, buf0)
buf1 = buf0; del buf0                                       the same memory
buf2 = empty_strided_cpu((8, ), (1, ), torch.float32)       32 bytes more
cpp_fused_1(buf1, buf2)
del buf1
return (buf2, )                                             160 at most, 128 beside the result
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

import torch

from thunder.core.errors import InternalError

__all__ = ["bytes_beside_results"]

#: functions that allocate a tensor of a size, of strides and of a dtype
_ALLOCATIONS = frozenset({"empty_strided_cpu", "empty_strided_cuda", "empty_strided_xpu", "empty_strided"})
#: a function that returns its first argument in another form
_VIEW = "reinterpret_tensor"


def bytes_beside_results(function: str, strides: Sequence[tuple[int, ...]]) -> int:
    """Return the most bytes that a run of `call(args)` has allocated at once, without those of its results.

    Results that have not these strides (elements), or that share memory, are copied after the run. What
    other functions of torch return is not counted: their text has no sizes.
    """
    (definition,) = ast.parse(function).body
    if not isinstance(definition, ast.FunctionDef):
        raise InternalError("the text of a region is not a function")
    memory = _Memory()
    for statement in definition.body:
        memory.execute(statement)
    return memory.beside_results(strides)


class _Memory:
    """The memory of the variables of a function while its statements run."""

    def __init__(self) -> None:
        self.live = self.most = 0
        self._sizes: dict[int, int] = {}  # number of an allocation → bytes
        self._allocation: dict[str, int] = {}  # variable → number of its allocation
        self._strides: dict[str, tuple[int, ...]] = {}
        self._results: list[ast.expr] = []

    def execute(self, statement: ast.stmt) -> None:
        """Follow one statement."""
        match statement:
            case ast.Assign([ast.Name(name)], value):
                self._assign(name, value)
            case ast.Delete(targets):
                self._delete(target.id for target in targets if isinstance(target, ast.Name))
            case ast.Return(ast.Tuple(results)):
                self._results = results

    def beside_results(self, strides: Sequence[tuple[int, ...]]) -> int:
        """Return the most bytes at once without those of the results, some of which are copied."""
        kept: set[int] = set()
        returned: set[int] = set()
        copies = 0
        for result, expected in zip(self._results, strides, strict=True):
            number = self._source(result)
            if number is None:
                continue
            returned.add(number)
            if number in kept or self._strides_of(result) != expected:
                copies += self._sizes[number]
            else:
                kept.add(number)
        size_kept = sum(self._sizes[number] for number in kept)
        size_returned = sum(self._sizes[number] for number in returned)
        return max(0, self.most - size_kept - copies, size_returned - size_kept)

    def _strides_of(self, value: ast.expr) -> tuple[int, ...] | None:
        match value:
            case ast.Name(name):
                return self._strides.get(name)
            case ast.Call(_, [_, _, strides, *_]) if self._source(value) is not None:
                return ast.literal_eval(strides)  # type: ignore[no-any-return]
            case ast.Call(_, [_, strides, *_]) if _allocated(value) is not None:
                return ast.literal_eval(strides)  # type: ignore[no-any-return]
        return None

    def _assign(self, name: str, value: ast.expr) -> None:
        number, strides = self._source(value), self._strides_of(value)
        if number is None and (size := _allocated(value)) is not None:
            number = len(self._sizes)
            self._sizes[number] = size
            self.live += size
            self.most = max(self.most, self.live)
        self._delete([name])
        if number is not None:
            self._allocation[name] = number
        if strides is not None:
            self._strides[name] = strides

    def _source(self, value: ast.expr) -> int | None:
        """Return the allocation of a variable or of a view of one; None for another value."""
        match value:
            case ast.Name(name):
                return self._allocation.get(name)
            case ast.Call(ast.Name(function), [ast.Name(name), *_]) if function == _VIEW:
                return self._allocation.get(name)
        return None

    def _delete(self, names: Iterable[str]) -> None:
        for name in names:
            number = self._allocation.pop(name, None)
            if number is not None and number not in self._allocation.values():
                self.live -= self._sizes[number]


def _allocated(value: ast.expr) -> int | None:
    """Return the bytes of the tensor that an expression allocates, or None if it does not."""
    match value:
        case ast.Call(ast.Name(function), [shape, strides, *rest], keywords) if function in _ALLOCATIONS:
            dtypes = [*rest, *(keyword.value for keyword in keywords if keyword.arg == "dtype")]
            dtype = next((d.attr for d in dtypes if isinstance(d, ast.Attribute)), None)
            itemsize = getattr(torch, dtype).itemsize if dtype is not None else 0
            sizes, steps = ast.literal_eval(shape), ast.literal_eval(strides)
            if 0 in sizes:
                return 0
            return itemsize * (1 + sum((n - 1) * step for n, step in zip(sizes, steps, strict=True)))  # type: ignore[no-any-return]
    return None
