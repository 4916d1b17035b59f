"""A trace as a picture: a graph of its statements, drawn by graphviz."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thunder.base.errors import InvalidArgument
from thunder.base.structural_ids import COMMENT, DEL, RETURN
from thunder.ir.proxies import Proxy, TensorProxy
from thunder.ir.trace import TraceCtx

if TYPE_CHECKING:
    import graphviz

__all__ = ["make_trace_dot"]


def make_trace_dot(trace: TraceCtx, show_metadata: bool = False) -> graphviz.Digraph:
    """Return the graph of a trace: nodes for inputs, statements and the result, edges for values read.

    Args:
        show_metadata: whether edges have the types of the values, `cpu f32[2, 4]`, below their names.

    Raises InvalidArgument if the Python library graphviz is not installed. `.source` of the graph is text;
    `.render()` needs the programs of graphviz as well.
    """
    graph = _digraph()
    producers: dict[str, str] = {}
    for arg in trace.args:
        if isinstance(arg, Proxy | TensorProxy):
            graph.node(arg.name, arg.name, shape="ellipse")
            producers[arg.name] = arg.name
    for position, bsym in enumerate(trace.bound_symbols):
        if bsym.sym.id in (DEL, COMMENT):
            continue
        node = "return" if bsym.sym.id == RETURN else f"{position}"
        graph.node(node, "return" if bsym.sym.id == RETURN else bsym.sym.name, shape="box")
        for read in {p.name: p for p in bsym.flat_proxy_args}.values():
            if read.name in producers:
                graph.edge(producers[read.name], node, label=_label(read, show_metadata))
        producers.update({out.name: node for out in bsym.flat_proxy_outs if out.name not in producers})
    return graph


def _label(proxy: Proxy | TensorProxy, show_metadata: bool) -> str:
    if show_metadata and isinstance(proxy, TensorProxy):
        return f"{proxy.name}\n{proxy.type_string()}"
    return proxy.name


def _digraph() -> graphviz.Digraph:
    try:
        import graphviz
    except ModuleNotFoundError as error:
        raise InvalidArgument(
            "make_trace_dot draws with the Python library graphviz, which is not installed",
            hint="Install it with: pip install graphviz",
        ) from error
    return graphviz.Digraph()
