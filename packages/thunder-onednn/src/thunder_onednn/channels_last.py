"""The layout of images between convolutions: channels last, which oneDNN's kernels read and write.

    t0 = conv2d(x, w)                   c0 = contiguous(x, memory_format=torch.channels_last)
    t1 = relu(t0)                       t0 = conv2d(c0, w); t1 = relu(t0)
    t2 = t1.view(2, -1)            →    e0 = eager_layout0(t1, x); t2 = e0.view(2, -1)
    return t2, t0                       e1 = eager_layout1(t0, x); return t2, e1

Elementwise calls, pooling and reductions read the values in any layout. Before a call that makes views or
reads the layout, and before the return, a value is copied into the layout that eager would give it, which is
derived from the layouts of the program's inputs when the program runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

import thunder.torch as ltorch
from thunder import TensorProxy
from thunder.core.analysis import is_elementwise
from thunder.core.proxies import ProxyTag
from thunder.core.rewrite import substitute_operands
from thunder.core.symbol import BoundSymbol, Symbol, gather_tags
from thunder.core.tags import OpTags
from thunder.core.trace import TraceCtx, TraceProvenance, from_trace, tracectx
from thunder.extend import EagerStrides, ExpectedStrides, Region, with_sizes
from thunder_onednn.convolution import may_take

__all__ = ["channels_last"]

_CONVOLUTION: Final = "torch.nn.functional.conv2d"
#: tags of calls that take a value in eager's layout alone
_SENSITIVE: Final = frozenset(
    {
        OpTags.VIEW,
        OpTags.MAYBE_VIEW,
        OpTags.MAYBE_ARGUMENT,
        OpTags.READS_LAYOUT,
        OpTags.FALLBACK,
        OpTags.IN_PLACE,
        OpTags.RANDOM_OP,
        OpTags.UNINITIALIZED,
        OpTags.DONT_DCE,
        OpTags.CTX_MANAGER_ENTER_EXIT_OP,
    }
)
#: operators on windows, whose results have the layout of the first argument
_WINDOWS: Final = frozenset(
    f"torch.nn.functional.{name}" for name in ("max_pool2d", "avg_pool2d", "adaptive_avg_pool2d")
)


def channels_last(trace: TraceCtx) -> TraceCtx:
    """Return a trace in which convolutions that oneDNN may take have channels-last inputs, or the same."""
    if not any(_may_be_taken(b) for b in trace.bound_symbols):
        return trace
    layouts = _Layouts(trace)
    for bsym in trace.bound_symbols:
        layouts.add(bsym)
    layouts.new.set_provenance(TraceProvenance("Channels last"))
    return layouts.new


def _may_be_taken(bsym: BoundSymbol) -> bool:
    return bsym.sym.id == _CONVOLUTION and may_take(*bsym.args, **bsym.kwargs) is True


class _Layouts:
    """A program on the way to channels-last: `changed` are the names of values in another layout."""

    def __init__(self, trace: TraceCtx) -> None:
        self.new = from_trace(trace)
        self._trace = trace
        self._changed: set[str] = set()
        self._converted: dict[str, TensorProxy] = {}
        self._restored: dict[str, TensorProxy] = {}
        self._expected = ExpectedStrides(trace)

    def add(self, bsym: BoundSymbol) -> None:
        """Add a call of the program, with its operands in the layouts that it takes."""
        if _may_be_taken(bsym):
            x, *rest = bsym.args
            bsym = bsym.from_bsym(args=(self._in_channels_last(x), *rest))
            self._change(bsym, are_channels_last=True)
        elif not self._changed.isdisjoint(p.name for p in bsym.flat_proxy_args):
            if _takes_any_layout(bsym):
                self._change(bsym, are_channels_last=_keeps_layout(bsym))
            else:
                names = self._changed.intersection(p.name for p in bsym.flat_proxy_args)
                operands = {p.name: p for p in bsym.flat_proxy_args if p.name in names}
                bsym = substitute_operands(bsym, {n: self._as_in_eager(p) for n, p in operands.items()})
        self.new.bound_symbols.append(bsym)

    def _change(self, bsym: BoundSymbol, *, are_channels_last: bool) -> None:
        for p in bsym.flat_proxy_outs:
            if isinstance(p, TensorProxy):
                self._changed.add(p.name)
                if are_channels_last:
                    p.tags.add(ProxyTag.CHANNELS_LAST)

    def _in_channels_last(self, x: TensorProxy) -> TensorProxy:
        """Return the input of a convolution, copied unless it is channels-last."""
        if ProxyTag.CHANNELS_LAST in x.tags:
            return x
        if x.name not in self._converted:
            with tracectx(self.new), self.new.recording_into(self.new.bound_symbols):
                converted = ltorch.contiguous(x, memory_format=torch.channels_last)
            converted.tags.add(ProxyTag.CHANNELS_LAST)
            self._converted[x.name] = converted
        return self._converted[x.name]

    def _as_in_eager(self, p: TensorProxy) -> TensorProxy:
        """Return a value in the layout of eager."""
        if p.name not in self._restored:
            region = with_sizes(Region.of(self._needed(p), [p.name]))
            with tracectx(self.new):
                result = TensorProxy(like=p, strides=self._expected.of(p))
            run = _EagerLayout(f"eager_layout{len(self._restored)}", region)
            symbol = Symbol(
                name=run.__name__,
                id=f"onednn.{run.__name__}",
                is_fusion=True,
                tags=frozenset({OpTags.MAYBE_VIEW}),
                python_impl=run,
            )
            self.new.bound_symbols.append(symbol.bind(p, *region.inputs, output=result, subsymbols=()))
            self._restored[p.name] = result
        return self._restored[p.name]

    def _needed(self, p: TensorProxy) -> Sequence[BoundSymbol]:
        """Return the calls of the program that compute a value."""
        names, needed = {p.name}, []
        for bsym in reversed(self._trace.bound_symbols):
            if not names.isdisjoint(q.name for q in bsym.flat_proxy_outs):
                names.update(q.name for q in bsym.flat_proxy_args)
                needed.append(bsym)
        return needed[::-1]


def _takes_any_layout(bsym: BoundSymbol) -> bool:
    """Return whether an operator of torch reads values in any layout, and returns memory of its own.

    Random numbers are drawn in the order of memory.
    """
    is_of_torch = str(bsym.sym.id).startswith(("torch.", "prims."))
    return is_of_torch and gather_tags(bsym).isdisjoint(_SENSITIVE)


def _keeps_layout(bsym: BoundSymbol) -> bool:
    """Return whether the result of a call is channels-last because its operands are: surely, not probably."""
    if bsym.sym.id in _WINDOWS:
        return ProxyTag.CHANNELS_LAST in bsym.args[0].tags
    tensors = [p for p in bsym.flat_proxy_args if isinstance(p, TensorProxy)]
    are_alike = all(ProxyTag.CHANNELS_LAST in p.tags and p.shape == tensors[0].shape for p in tensors)
    return are_alike and is_elementwise(bsym)


class _EagerLayout:
    """A function that returns its first argument in the layout of eager, which the others determine."""

    def __init__(self, name: str, region: Region) -> None:
        self.__name__ = name
        self._strides = EagerStrides(region)

    def __call__(self, value: torch.Tensor, *inputs: Any) -> torch.Tensor:
        """Return the value, copied if its strides are others than in eager."""
        (result,) = self._strides.apply([value], inputs)
        return result  # type: ignore[no-any-return]
