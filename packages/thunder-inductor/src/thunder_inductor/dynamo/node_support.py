"""Which nodes of a graph thunder compiles, and the reasons for the others."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

import thunder
from thunder.core.errors import OperatorError, ThunderError, UnsupportedOperator, UnsupportedProgram

from .context_calls import changes_unknown_state, grad_modes, is_context_call, is_of_inference_mode
from .graph_runs import module_of
from .split_reasons import SplitReason, SplitReasonType, user_line, without_frames

__all__ = ["REFUSALS", "node_of_error", "reason_of_error", "refused_nodes"]

#: the errors with which thunder refuses a program before it runs
REFUSALS = (UnsupportedProgram, OperatorError)

_PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter, FakeTensor)
_CALLS = ("call_function", "call_method", "call_module")
#: what `x[i] = y`, `x += y`, … call
_WRITING_OPERATORS = frozenset(
    {
        *(
            operator.setitem,
            operator.iadd,
            operator.isub,
            operator.imul,
            operator.itruediv,
            operator.ifloordiv,
        ),
        *(operator.imod, operator.ipow, operator.imatmul, operator.iand, operator.ior, operator.ixor),
        *(operator.ilshift, operator.irshift),
    }
)
#: options that are about a whole program
_OF_PROGRAMS = ("transforms", "debug_options", "require")


class _Undescribed(Exception):
    """A value whose metadata are not numbers."""


def refused_nodes(
    gm: torch.fx.GraphModule, nodes: Sequence[torch.fx.Node], options: Mapping[str, Any]
) -> dict[torch.fx.Node, SplitReason]:
    """Return the nodes that thunder does not compile, each with its reason.

    Each call is compiled by itself, and not run, for tensors with the metadata that TorchDynamo found; calls
    that are described alike are compiled once. Nodes from the first to the last one that changes a state
    which thunder does not follow are refused together.
    """
    refused = _within_unknown_state(nodes)
    settings = {name: value for name, value in options.items() if name not in _OF_PROGRAMS}
    judged: dict[object, Exception | None] = {}
    modes = grad_modes(nodes, torch.is_grad_enabled())
    for node, grad_enabled in zip(nodes, modes, strict=True):
        if is_of_inference_mode(node):
            refused[node] = _reason(SplitReasonType.UNSUPPORTED_NODE, node, "torch changes inference mode")
        if node in refused or is_context_call(node) or node.op not in _CALLS:
            continue
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            text = f"thunder does not compile the higher-order operator {node.target.name()}"
            refused[node] = _reason(SplitReasonType.UNSUPPORTED_NODE, node, text)
            continue
        try:
            arguments = _arguments(node)
        except _Undescribed as error:
            refused[node] = _reason(SplitReasonType.EXCEPTION_PROXY_THUNDER_OP, node, str(error))
            continue
        key = (grad_enabled, _key(gm, node, arguments))
        if key not in judged:
            judged[key] = _refusal(gm, node, arguments, grad_enabled, settings)
        refusal = judged[key]
        if refusal is not None:
            refused[node] = reason_of_error(refusal, node)
    return refused


def reason_of_error(error: Exception, node: torch.fx.Node | None) -> SplitReason:
    """Return the reason that an error of thunder is; `node` is where it was raised, if that is known."""
    missing = isinstance(error, UnsupportedOperator)
    kind = SplitReasonType.MISSING_OP_SUPPORT if missing else SplitReasonType.EXCEPTION_META_THUNDER_OP
    return _reason(kind, node, str(error).partition("\n")[0], error)


def node_of_error(error: Exception, gm: torch.fx.GraphModule) -> torch.fx.Node | None:
    """Return the node of a graph in whose line an error was raised, None if it has no such line.

    A line of the graph's code begins with the name of its node, `sin = torch.sin(x)`.
    """
    file = gm.forward.__code__.co_filename
    names = {
        place.text.partition(" = ")[0].strip() for place in getattr(error, "where", ()) if place.file == file
    }
    return next((node for node in gm.graph.nodes if node.name in names), None)


def _reason(
    kind: SplitReasonType, node: torch.fx.Node | None, info: str, error: Exception | None = None
) -> SplitReason:
    error = without_frames(error) if error is not None else None
    name, line = (node.name, user_line(node)) if node is not None else (None, "")
    return SplitReason(type=kind, info=info, node=name, line=line, exception=error)


def _within_unknown_state(nodes: Sequence[torch.fx.Node]) -> dict[torch.fx.Node, SplitReason]:
    positions = [i for i, node in enumerate(nodes) if changes_unknown_state(node)]
    if not positions:
        return {}
    first, last = nodes[positions[0]], nodes[positions[-1]]
    text = f"from {first.name} to {last.name}, calls such as {first.name} may change torch's state"
    span = nodes[positions[0] : positions[-1] + 1]
    placed = next((node for node in span if user_line(node)), first)
    reason = _reason(SplitReasonType.UNSUPPORTED_NODE, placed, text)
    return dict.fromkeys(span, reason)


def _refusal(
    gm: torch.fx.GraphModule,
    node: torch.fx.Node,
    arguments: Sequence[Any],
    grad_enabled: bool,
    options: Mapping[str, Any],
) -> Exception | None:
    """Return the error with which thunder refuses a node, None if it compiles it."""
    module = module_of(gm, [node], [node])
    try:
        with torch.set_grad_enabled(grad_enabled):
            thunder.plan(module, *arguments, **options)
    except ThunderError as error:
        if not isinstance(error, REFUSALS):
            raise
        return error
    except Exception as error:  # a program's own error, which its run raises again with the real values
        return error
    return None


# -- the arguments of a call, tensors without data


def _arguments(node: torch.fx.Node) -> list[Any]:
    """Return values with the metadata of a node's arguments, for the module that `module_of` makes of it."""
    name = str(getattr(node.target, "__name__", node.target))
    writes = name.endswith("_") or node.target in _WRITING_OPERATORS
    arguments = []
    for source in node.all_input_nodes:
        if source.op == "get_attr":
            continue
        if "example_value" not in source.meta:
            raise _Undescribed(f"torch does not describe the value of {source.name}")
        arguments.append(_concrete(source.meta["example_value"], writes))
    return arguments


def _key(gm: torch.fx.GraphModule, node: torch.fx.Node, arguments: Sequence[Any]) -> object:
    """Return a description that is equal for calls that thunder compiles alike."""

    def mark(source: torch.fx.Node) -> str:
        if source.op != "get_attr":
            return "<value>"
        return f"<{id(operator.attrgetter(str(source.target))(gm))}>"

    constants = repr(torch.fx.node.map_arg((node.args, node.kwargs), mark))
    same = tuple(map(node.all_input_nodes.index, _sources(node)))
    return node.op, node.target, constants, same, tuple(map(_description, arguments))


def _sources(node: torch.fx.Node) -> list[torch.fx.Node]:
    """Return the nodes among the arguments of a node, one that is used twice twice."""
    sources: list[torch.fx.Node] = []
    torch.fx.node.map_arg((node.args, node.kwargs), sources.append)
    return sources


def _concrete(value: Any, writes: bool) -> Any:
    """Return a value with the metadata of an example; tensors have memory, and no data."""
    if isinstance(value, torch.Tensor):
        if type(value) not in _PLAIN_TENSORS:
            raise _Undescribed(f"a {type(value).__name__} is not a plain tensor")
        if value.layout is not torch.strided:
            raise _Undescribed(f"a tensor with the layout {value.layout}")
        shape = [_number(size) for size in value.shape]
        strides = [_number(stride) for stride in value.stride()]
        tensor = torch.empty_strided(shape, strides, dtype=value.dtype, device=value.device)
        if value.requires_grad:
            tensor.requires_grad_()
            if writes and not value.is_leaf:
                tensor = tensor.clone()
        return tensor
    if isinstance(value, list | tuple):
        return type(value)(_concrete(item, writes) for item in value)
    return _number(value)


def _number(value: Any) -> Any:
    """Return a number in place of a symbolic one: the one of the call for which the graph was made."""
    if not isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return value
    hint = value.node.hint
    if hint is None or isinstance(value, torch.SymFloat):  # a graph's floats are read from tensors
        raise _Undescribed(f"the number {value} depends on data")
    return hint


def _description(value: Any) -> object:
    if isinstance(value, torch.Tensor):
        return (value.shape, value.stride(), value.dtype, value.device, value.requires_grad, value.is_leaf)
    if isinstance(value, list | tuple):
        return tuple(_description(item) for item in value)
    return (type(value), repr(value))
