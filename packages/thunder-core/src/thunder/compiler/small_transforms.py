"""Two small transforms, as functions of compiled objects: `comment_fusions` and `noop`."""

from __future__ import annotations

from typing import Any

from thunder.compiler.jit import add_transform
from thunder.ir.trace import TraceCtx, TraceProvenance, from_trace
from thunder.ops import prims
from thunder.passes.transform import Transform

__all__ = ["comment_fusions", "noop"]


class _CommentFusions(Transform):
    stateless = True

    def transform_trace_post_optimization(self, computation_trace: TraceCtx, **kwargs: Any) -> TraceCtx:
        commented = from_trace(computation_trace)
        for bsym in computation_trace.bound_symbols:
            if not bsym.sym.is_fusion:
                commented.bound_symbols.append(bsym)
                continue
            begin, end = (prims.comment.bind(f"{w} {bsym.sym.name}", output=None) for w in ("Begin", "End"))
            commented.bound_symbols += [begin, bsym, end]
        commented.set_provenance(TraceProvenance("Comment Fusions"))
        return commented


class _Noop(Transform):
    stateless = True

    def transform_trace_post_optimization(self, computation_trace: TraceCtx, **kwargs: Any) -> TraceCtx:
        copy = from_trace(computation_trace)
        copy.bound_symbols = list(computation_trace.bound_symbols)
        copy.set_provenance(TraceProvenance("No-op Transform"))
        return copy


def comment_fusions(cfn: Any) -> Any:
    """Return a compiled object whose traces have comments before and after each fusion, with its name.

    Raises NotCompiled if `cfn` is not a compiled object.
    """
    return add_transform(cfn, transform=_CommentFusions())


def noop(cfn: Any) -> Any:
    """Return a compiled object with a transform that copies each final trace and changes nothing.

    The copy is one more entry of `thunder.last_traces`. Raises NotCompiled if `cfn` is not a compiled object.
    """
    return add_transform(cfn, transform=_Noop())
