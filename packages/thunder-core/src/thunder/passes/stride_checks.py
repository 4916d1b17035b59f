"""The strides of what a package's kernel returns, against those that eager would give, under `check_traces`.

A kernel that runs an operator of torch, or one that is `like=` a Python function, has the operator's calls as
subsymbols. They are run on tensors without data that have the strides of the kernel's arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from thunder.base.errors import OperatorError, UnsupportedProgram
from thunder.base.pytree import tree_map
from thunder.base.tags import OpTags
from thunder.ir.proxies import NumberProxy, TensorProxy
from thunder.ir.symbol import BoundSymbol, has_tags, with_parts
from thunder.ops.layouts import Layouts
from thunder.ops.operator import row_of

__all__ = ["other_strides"]

Strides = tuple[int, ...]

#: tags of calls that are not run a second time
_ONCE = frozenset({OpTags.RANDOM_OP, OpTags.IN_PLACE})


def other_strides(
    bsym: BoundSymbol, arguments: Mapping[str, torch.Tensor], results: Mapping[str, Any]
) -> tuple[Strides, Strides] | None:
    """Return eager's strides and a result's, where a result of a kernel has others; else None.

    `arguments` and `results` are tensors by the names of their proxies. Dimensions of length 1 do not count.
    None is returned too where eager's strides cannot be derived.
    """
    if not bsym.subsymbols or any(part.sym.executor is not None for part in with_parts(bsym.subsymbols)):
        return None
    inputs = [p for p in bsym.flat_proxy_args if isinstance(p, TensorProxy)]
    if has_tags(bsym, _ONCE) or any(p.name not in arguments for p in inputs):
        return None
    layouts = Layouts([p.replace(strides=arguments[p.name].stride()) for p in inputs], bsym.subsymbols)
    for p in bsym.flat_proxy_outs:
        result = results.get(p.name)
        if not isinstance(p, TensorProxy) or not isinstance(result, torch.Tensor):
            continue
        if not _is_comparable(p, result):
            continue
        try:
            eager = layouts.strides(p)
        except (UnsupportedProgram, OperatorError):
            return None
        if _differ(eager, result) and not _is_confirmed(bsym.subsymbols, arguments, p, result):
            return eager, tuple(result.stride())
    return None


def _is_comparable(p: TensorProxy, result: torch.Tensor) -> bool:
    has_shape = tuple(result.shape) == tuple(p.shape)
    return result.layout is torch.strided and has_shape and result.numel() > 1


def _differ(eager: Strides, result: torch.Tensor) -> bool:
    pairs = zip(result.shape, eager, result.stride(), strict=True)
    return any(a != b for n, a, b in pairs if n > 1)


def _is_confirmed(
    calls: Sequence[BoundSymbol], arguments: Mapping[str, torch.Tensor], p: TensorProxy, result: torch.Tensor
) -> bool:
    """Return whether torch's function itself, run on the arguments, returns strides like the kernel's.

    Some of torch's kernels return others than tensors without data have.
    """
    row = row_of(calls[0].sym)
    if len(calls) != 1 or row is None or row.eager is None or not isinstance(calls[0].output, TensorProxy):
        return False

    def value(leaf: Any) -> Any:
        if isinstance(leaf, TensorProxy):
            return arguments[leaf.name]
        return leaf.value if isinstance(leaf, NumberProxy) else leaf

    args, kwargs = tree_map(value, (calls[0].args, calls[0].kwargs))
    with torch.no_grad():
        eager = row.eager(*args, **kwargs)
    return not _differ(tuple(eager.stride()), result)
