"""A graph of TorchDynamo as a program: one part that thunder compiles, or a sequence of parts."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import thunder

from .context_calls import exit_of
from .graph_runs import Run, Runner, calls_of, runs_of
from .inductor_part import InductorPart
from .node_support import REFUSALS, node_of_error, reason_of_error, refused_nodes
from .part_info import Part, PartInfo
from .split_reasons import SplitReason, SplitReasonType, user_line, without_frames

__all__ = ["PartSequence", "PartSettings", "ThunderPart", "TorchPart"]


@dataclass(frozen=True, kw_only=True)
class PartSettings:
    """The settings that all parts of a graph have in common.

    `on_run` is called with each part that thunder has run.
    """

    thunder_options: Mapping[str, Any]
    on_run: Callable[[ThunderPart], None]


class ThunderPart:
    """A graph module that `thunder.jit` compiles at its first call.

    Where thunder refuses it, which is before anything of it runs, it is cut: into the nodes that thunder
    compiles, and those that it does not. From then on the parts run in its place.
    """

    def __init__(self, gm: torch.fx.GraphModule, settings: PartSettings) -> None:
        self.module = gm
        self.settings = settings
        self.compiled = thunder.jit(gm, **settings.thunder_options)
        self.replacement: Part | None = None
        self._cutting = threading.Lock()

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        """Return the results of the graph.

        Raises what the program raises, and errors of thunder that are not refusals.
        """
        if self.replacement is None:
            try:
                results: tuple[Any, ...] = self.compiled(*args)
            except REFUSALS as error:
                refusal = without_frames(error)
            else:
                self.settings.on_run(self)
                return results
            self._cut(refusal)
        assert self.replacement is not None, "a refused part has parts in its place"
        return self.replacement(*args)

    def infos(self) -> list[PartInfo]:
        """Return the part, or those that replaced it."""
        if self.replacement is not None:
            return self.replacement.infos()
        names = tuple(node.name for node in calls_of(self.module))
        part = PartInfo(
            runner=Runner.THUNDER.value, graph_module=self.module, calls=names, compiled=self.compiled
        )
        return [part]

    def _cut(self, error: Exception) -> None:
        """Replace this part by others; `error` is the refusal of the graph as a whole."""
        with self._cutting:
            if self.replacement is not None:
                return
            nodes = calls_of(self.module)
            refused = refused_nodes(self.module, nodes, self.settings.thunder_options)
            node = node_of_error(error, self.module)
            if not refused and node in nodes:
                refused = {node: reason_of_error(error, node)}
            if refused and len(refused) < len(nodes):
                runs = runs_of(self.module, refused, torch.is_grad_enabled())
                self.replacement = PartSequence(self.module, runs, self.settings)
            else:
                reasons = tuple(refused.values()) or (reason_of_error(error, None),)
                self.replacement = InductorPart(self.module, reasons)


class TorchPart:
    """One call that torch runs as it is: it enters or leaves a context, or sets grad mode."""

    def __init__(self, run: Run) -> None:
        self.run = run
        (node,) = run.nodes
        self.exit = exit_of(node)

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        """Return the results of the call."""
        results: tuple[Any, ...] = self.run.module.forward(*args)
        return results

    def infos(self) -> list[PartInfo]:
        """Return the part."""
        reason = SplitReason(
            type=SplitReasonType.UNSUPPORTED_NODE,
            info="the state holds on both sides of a cut",
            node=self.run.nodes[0].name,
            line=user_line(self.run.nodes[0]),
        )
        reasons = self.run.reasons or (reason,)
        calls = tuple(node.name for node in self.run.nodes)
        part = PartInfo(runner=Runner.TORCH.value, graph_module=self.run.module, calls=calls, reasons=reasons)
        return [part]


@dataclass(frozen=True)
class _Step:
    """One part in a sequence: the names of its arguments and results, and of values last used here."""

    part: Part
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    last_used: tuple[str, ...]


class PartSequence:
    """Parts that run one after the other, as the nodes of the graph do."""

    def __init__(self, gm: torch.fx.GraphModule, runs: Sequence[Run], settings: PartSettings) -> None:
        self._placeholders = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
        output = gm.graph.output_node()
        self._results: Any = output.args[0]
        self._attributes = {
            node.name: operator.attrgetter(str(node.target))(gm)
            for node in output.all_input_nodes
            if node.op == "get_attr"
        }
        kept = {node.name for node in output.all_input_nodes}
        steps: list[_Step] = []
        for run in reversed(runs):
            last_used = tuple(name for name in (*run.inputs, *run.outputs) if name not in kept)
            kept.update(run.inputs)
            steps.append(_Step(_part(run, settings), run.inputs, run.outputs, last_used))
        self._steps = steps[::-1]

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        """Return the results of the graph. After an error grad mode and contexts are as they were before."""
        values = {**self._attributes, **dict(zip(self._placeholders, args, strict=True))}
        del args  # what the caller does not hold is freed after its last use
        grad_enabled = torch.is_grad_enabled()
        entered: list[tuple[Callable[[Any], Any], Any]] = []
        try:
            for step in self._steps:
                results = step.part(*[values[name] for name in step.inputs])
                if isinstance(step.part, TorchPart):
                    _note_context(step.part, results, [values[name] for name in step.inputs], entered)
                values.update(zip(step.outputs, results, strict=True))
                del results
                for name in step.last_used:
                    del values[name]
        except BaseException:
            for leave, context in reversed(entered):
                leave(context)
            torch.set_grad_enabled(grad_enabled)
            raise
        outputs: tuple[Any, ...] = torch.fx.node.map_arg(self._results, lambda node: values[node.name])
        return outputs

    def infos(self) -> list[PartInfo]:
        """Return the parts in order."""
        return [info for step in self._steps for info in step.part.infos()]


def _note_context(
    part: TorchPart,
    results: tuple[Any, ...],
    arguments: Sequence[Any],
    entered: list[tuple[Callable[[Any], Any], Any]],
) -> None:
    """Add the context that a part entered to the list, or remove the one that it left."""
    if part.exit is not None and results:
        entered.append((part.exit, results[0]))
    elif entered and arguments and entered[-1][1] is arguments[0]:
        entered.pop()


def _part(run: Run, settings: PartSettings) -> Part:
    if run.runner is Runner.THUNDER:
        return ThunderPart(run.module, settings)
    if run.runner is Runner.TORCH:
        return TorchPart(run)
    return InductorPart(run.module, run.reasons)
