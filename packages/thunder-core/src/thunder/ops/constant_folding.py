"""Values of tensors that are known while a program is traced, because they depend on no input.

    position = torch.arange(0, n)          →   n is a number, and guarded
    if position[0] > 0: …                  →   the answer is the same at each call of this program

What the few operators between constants and the question compute is computed, once, when the program asks.
Only integers and truth values: they are the same on every device, and floating-point numbers are not.

One more is known without its operands: a number that `torch.rand` draws is neither below 0 nor 1 or above, as
in the layer dropout of a model that leaves out none: `if torch.rand([]) < 0.0`. It is drawn all the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import torch

from thunder.base.devices import Device
from thunder.base.pytree import tree_map
from thunder.base.tags import OpTags
from thunder.ir.effects import KEPT
from thunder.ir.proxies import Proxy, TensorProxy
from thunder.ir.symbol import BoundSymbol, has_tags, with_parts
from thunder.ir.trace import TraceCtx
from thunder.ops.operator import row_of

#: elements of the largest tensor that is computed while tracing
_LARGEST: Final = 1 << 16
_OF_TORCH: Final = ("torch.", "ltorch.")
#: of operators whose results are not determined by their arguments
_UNDETERMINED: Final = KEPT | {OpTags.FALLBACK}
#: comparison with a number → whether it holds of numbers of [0, 1), where that is known
_OF_FRACTIONS: Final[dict[str, Callable[[Any], bool | None]]] = {
    "torch.lt": lambda bound: False if bound <= 0 else True if bound >= 1 else None,
    "torch.le": lambda bound: False if bound < 0 else True if bound >= 1 else None,
    "torch.gt": lambda bound: True if bound < 0 else False if bound >= 1 else None,
    "torch.ge": lambda bound: True if bound <= 0 else False if bound >= 1 else None,
}


def known_value(trace: TraceCtx, x: TensorProxy) -> torch.Tensor | None:
    """The value of ``x``, on the CPU, in the program recorded so far; None unless it depends on no input."""
    recorded = [bsym for scope in trace.scopes for bsym in scope]
    makers = {id(out): bsym for bsym in recorded for out in bsym.flat_proxy_outs}
    needed = _made_of_constants(x, makers)
    if needed is None:
        return _of_a_fraction(x, makers, recorded)
    if any(_writes_to(recorded, needed)):
        return None
    values: dict[int, Any] = {}
    for bsym in recorded:
        if any(bsym is n for n in needed):
            _run(bsym, values)
    found: torch.Tensor = values[id(x)]
    return found


def _made_of_constants(x: TensorProxy, makers: dict[int, BoundSymbol]) -> list[BoundSymbol] | None:
    """The calls that make ``x`` out of nothing but constants, or None."""
    needed: list[BoundSymbol] = []
    waiting: list[Any] = [x]
    while waiting:
        bsym = makers.get(id(waiting.pop()))
        if bsym is None or not _is_determined(bsym):
            return None
        if not any(bsym is n for n in needed):
            needed.append(bsym)
            waiting += bsym.flat_proxy_args
    return needed


def _is_determined(bsym: BoundSymbol) -> bool:
    """Whether a call computes small exact results out of its arguments alone."""
    row = row_of(bsym.sym)
    return (
        row is not None
        and row.eager is not None
        and row.id.startswith(_OF_TORCH)  # what others registered may do more than compute
        and all(_is_exact(p) for p in (*bsym.flat_proxy_outs, *bsym.flat_proxy_args))
        and not has_tags(bsym, _UNDETERMINED)
        and not any("empty" in b.sym.name for b in with_parts((bsym,)))
    )


def _is_exact(p: Any) -> bool:
    return isinstance(p, TensorProxy) and not p.dtype.is_inexact and math.prod(p.shape) <= _LARGEST


def _writes_to(recorded: Iterable[BoundSymbol], needed: list[BoundSymbol]) -> Iterator[bool]:
    """For each call of the program, whether it writes in place to something made of what is ``needed``."""
    reached = {id(out) for bsym in needed for out in bsym.flat_proxy_outs}
    for bsym in recorded:
        if any(id(p) in reached for p in bsym.flat_proxy_args):
            reached.update(id(out) for out in bsym.flat_proxy_outs)
            yield has_tags(bsym, {OpTags.IN_PLACE})


def _run(bsym: BoundSymbol, values: dict[int, Any]) -> None:
    """Computes a call on the CPU; ``values`` are the results so far, by the ids of their proxies."""

    def here(value: Any) -> Any:
        if isinstance(value, Proxy | TensorProxy):
            return values[id(value)]
        return torch.device("cpu") if isinstance(value, torch.device | Device) else value

    eager = getattr(row_of(bsym.sym), "eager", None)
    assert eager is not None, "a call of something else is not taken to be determined"
    args, kwargs = tree_map(here, (bsym.args, bsym.kwargs))
    if kwargs.get("device") is not None:
        kwargs["device"] = torch.device("cpu")
    result = eager(*args, **kwargs)
    outs = bsym.output if isinstance(bsym.output, tuple | list) else (bsym.output,)
    results = result if isinstance(result, tuple | list) else (result,)
    values.update({id(out): value for out, value in zip(outs, results, strict=True)})


def _of_a_fraction(
    x: TensorProxy, makers: dict[int, BoundSymbol], recorded: Iterable[BoundSymbol]
) -> torch.Tensor | None:
    """What a comparison of numbers of ``torch.rand`` with a number comes to, where that is known."""
    bsym = makers.get(id(x))
    rule = _OF_FRACTIONS.get(bsym.sym.id) if bsym is not None else None
    if bsym is None or rule is None or len(bsym.args) < 2:
        return None
    drawn, bound = bsym.args[:2]
    maker = makers.get(id(drawn))
    if maker is None or maker.sym.id != "torch.rand" or type(bound) not in (int, float):
        return None
    if any(_writes_to(recorded, [maker])):
        return None
    answer = rule(bound)
    return None if answer is None else torch.full(x.shape, answer)
