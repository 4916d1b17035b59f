"""Operators of `torch.library`: their spellings, and the primitives that calls of them become.

"acme::norm"   torch.ops.acme.norm   torch.ops.acme.norm.default   the definition of @custom_op
"""

from __future__ import annotations

from typing import Any

import torch
from torch._library.custom_ops import CustomOpDef

from thunder.base.autocast_state import AutocastState, under_autocast
from thunder.base.errors import UnsupportedOperator
from thunder.base.tags import OpTags
from thunder.ir.symbol import Symbol
from thunder.ops.meta_kernels import as_proxies, on_meta
from thunder.ops.operator import Operator, declare_rows, register, row_of, symbol_of

__all__ = ["is_custom", "library_operator", "operator_symbol", "overloads_of", "spellings_of_operator"]

Overload = torch._ops.OpOverload

#: namespaces of torch's own operators
_TORCHS = frozenset({"aten", "prim", "prims", "quantized", "c10d", "c10d_functional", "rngprims"})


def is_custom(fn: Any) -> bool:
    """Return whether a callable is an operator outside of torch's own namespaces."""
    if isinstance(fn, torch._ops.OpOverloadPacket):
        name = fn._qualified_op_name
    elif isinstance(fn, Overload):
        name = fn._schema.name
    else:
        return False
    namespace = name.partition("::")[0]
    return namespace not in _TORCHS and not namespace.startswith("_")


def library_operator(spelling: Any) -> Any:
    """Return the packet or overload of an operator in any spelling; None for anything else.

    A name is `"acme::norm"`, `"acme::norm.default"` or `"torch.ops.acme.norm"`.
    """
    if isinstance(spelling, CustomOpDef):
        return spelling._opoverload
    if isinstance(spelling, str):
        spelling = _named(spelling)
    return spelling if is_custom(spelling) else None


def _named(name: str) -> Any:
    """Return the packet or overload of a name, or None."""
    namespace, _, rest = name.removeprefix("torch.ops.").replace("::", ".", 1).partition(".")
    operator, _, overload = rest.partition(".")
    if not namespace or not operator or ("::" not in name and not name.startswith("torch.ops.")):
        return None
    packet = getattr(getattr(torch.ops, namespace), operator, None)
    return getattr(packet, overload, None) if overload and packet is not None else packet


def overloads_of(operator: Any) -> list[Overload]:
    """Return the overloads of a packet, or the one that is given."""
    return (
        [operator] if isinstance(operator, Overload) else [getattr(operator, n) for n in operator.overloads()]
    )


def spellings_of_operator(operator: Any) -> list[Any]:
    """Return the packet and the overloads that call an operator.

    An overload is called by its packet too if it is the only one.
    """
    if not isinstance(operator, Overload):
        return [operator, *overloads_of(operator)]
    packet = operator.overloadpacket
    return [operator, *([packet] if packet.overloads() == [operator._overloadname] else [])]


def operator_symbol(op: Overload, autocast: AutocastState | None = None) -> Symbol:
    """Return the primitive of an operator, which runs under an autocast state.

    Its row is registered at the first call, and replaced if the operator was defined again.
    """
    namespace, _, name = op._schema.name.partition("::")
    path: str | None = f"torch.ops.{namespace}.{name}"
    row_id = f"{namespace}_{name}"
    if op._overloadname != "default":
        path, row_id = f"{path}.{op._overloadname}", f"{row_id}_{op._overloadname}"
    kernel: Any = op
    tags: set[OpTags] = set()
    if autocast is not None:
        path, row_id = None, f"autocast.{autocast.label}.{row_id}"
        kernel, tags = under_autocast(autocast, op), {OpTags.CHECK_RESULTS}
    row = row_of(row_id)
    if row is not None and row.eager is kernel:
        return symbol_of(row_id)
    random = torch.Tag.nondeterministic_seeded in op.tags
    return register(
        Operator(
            id=row_id,
            eager=kernel,
            eager_path=path,
            meta=_meta(op),
            tags=frozenset(tags | ({OpTags.RANDOM_OP} if random else set())),
            autocast=None,  # its rule has been applied
        ),
        replace=row is not None and (autocast is not None or isinstance(row.eager, Overload)),
    )


def _register_named(row_id: str) -> None:
    """Register the row of an operator that a text names, such as ``acme_norm_out``."""
    words = row_id.split("_")
    for i in range(1, len(words)):
        namespace, rest = getattr(torch.ops, "_".join(words[:i]), None), words[i:]
        for j in range(len(rest), 0, -1):
            packet = getattr(namespace, "_".join(rest[:j]), None)
            op = getattr(packet, "_".join(rest[j:]) or "default", None)
            if isinstance(op, Overload):
                operator_symbol(op)
                return


declare_rows(_register_named)


def _meta(op: Overload) -> Any:
    """Return the meta function: the fake implementation, on meta tensors.

    The operator itself never runs.
    """

    def meta(*args: Any, **kwargs: Any) -> Any:
        try:
            result = on_meta(op, args, kwargs)
        except RuntimeError as error:
            if "data-dependent" not in str(error):  # torch has no class for this error on meta tensors
                raise
            raise UnsupportedOperator(
                f"the shape of a result of the operator {op._schema.name} depends on data",
                hint="Call it outside the compiled function, or let it return a tensor of the largest shape.",
                facts={"sizes": "data"},
            ) from error
        return as_proxies(result, args, kwargs)

    return meta
