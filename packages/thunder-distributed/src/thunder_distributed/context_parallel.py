"""`context_parallel`: the sequence of a program is divided between the processes of a group."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final

from thunder.core.errors import InvalidArgument
from thunder.core.module import get_thunder_module
from thunder.core.proxies import TensorProxy
from thunder.core.rewrite import module_tensors
from thunder.core.trace import TraceCtx

from .buckets import buckets_of_bytes, checked_size
from .distribution import Distributing, distributed_parameters
from .division.operators import assembled
from .forms import forms_of
from .layouts import DistParallelType
from .sequences.division import divide_program
from .sequences.parts import ARRANGEMENTS
from .sequences.programs import Settings
from .sharding.shard import Shard
from .stages import add_division
from .synchronization import synchronize

__all__ = ["ContextParallelTransform", "context_parallel"]

#: the values that each option has
CHOICES: Final = {
    "rotate": ("ring", "allgather"),
    "arrangement": ARRANGEMENTS,
    "otherwise": ("refuse", "gather"),
}

#: the statements of a computation that compute a parameter from what a process has of it
GATHERED: Final = frozenset({synchronize.id, assembled.id})
#: the statements of a prologue that take an argument from those of a call
UNPACKS: Final = frozenset({"prims.unpack_getitem", "prims.unpack_dict_key"})


class ContextParallelTransform(Distributing):
    """Context parallelism: each process computes with a part of the sequence.

    Each process calls the module with the same arguments: the whole sequences. The program divides them. Its
    results are whole, and equal in all processes, and so are the gradients of its parameters.

    Args:
        divide: name of an argument of `forward` → its dimension that is the sequence.
        rotate: how queries see the keys of other processes: "ring" passes these on from process to process,
            "allgather" collects them.
        arrangement: "zigzag" gives process r of n the chunks r and 2n - 1 - r of 2n, which balances causal
            attention; "plain" the r-th of n.
        otherwise: what becomes of operators that compute along the sequence, and have no rule: "refuse" them,
            or "gather" the sequence for them.
        broadcast_from: the rank of the group whose parameters and buffers all processes begin with; None:
            they are equal already.
        bucket_size_in_mb: the most megabytes (2**20 bytes) of gradients that are communicated together.
        process_group: a ProcessGroup or one dimension of a DeviceMesh; None for the default group.
    """

    made_by = "context_parallel"
    kind = DistParallelType.REPLICATED

    def __init__(
        self,
        divide: Mapping[str, int] | None = None,
        *,
        rotate: str = "ring",
        arrangement: str = "zigzag",
        otherwise: str = "refuse",
        broadcast_from: int | None = 0,
        bucket_size_in_mb: float = 25.0,
        process_group: Any = None,
    ) -> None:
        chosen = {"rotate": rotate, "arrangement": arrangement, "otherwise": otherwise}
        for name, value in chosen.items():
            if value not in CHOICES[name]:
                raise InvalidArgument(
                    f"{name}={value!r} is not a choice of context_parallel",
                    found={"choices": ", ".join(map(repr, CHOICES[name]))},
                )
        if not isinstance(divide, Mapping) or not divide or not all(type(d) is int for d in divide.values()):
            raise InvalidArgument(
                f"divide={divide!r} names no argument of the module",
                hint="It has the dimension of the sequence by argument: divide={'input_ids': 1}.",
            )
        super().__init__(process_group, broadcast_from)
        self.divide = dict(divide)
        self.rotate, self.arrangement, self.otherwise = rotate, arrangement, otherwise
        self.bucket_size_in_mb = checked_size(bucket_size_in_mb)
        #: dotted name of a parameter → the bucket of its gradient
        self._buckets: dict[str, str] = {}
        self._positions: dict[str, int] = {}

    def validate(self, fn: Any, options: Mapping[str, Any]) -> None:
        """Raise UserError for what is not a module, for arguments that it has not, and without a group."""
        super().validate(fn, options)
        module = get_thunder_module(fn)
        parameters = inspect.signature(module.forward).parameters.values()
        named = [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        missing = [name for name in self.divide if name not in named]
        if missing and not any(p.kind is p.VAR_KEYWORD for p in parameters):
            raise InvalidArgument(
                f"divide= names {missing[0]!r}, which is not an argument of {type(module).__name__}.forward",
                found={"arguments": ", ".join(named)},
            )
        self._positions = {name: position for position, name in enumerate(named)}

    def transform_module(self, model: Any) -> None:
        """Give parameters and buffers the values of the chosen rank."""
        self.check_groups(model)
        self.check_weights(model)
        for _, tensor in (*model.named_parameters(), *model.named_buffers()):
            self.broadcast(tensor)
        trained = {n: p for n, p in distributed_parameters(model) if p.requires_grad}
        self._buckets = buckets_of_bytes(trained, self.bucket_size_in_mb * 2**20)
        self._known = {name for name, _ in model.named_parameters(remove_duplicate=False)}

    def configure_pipeline(self, pipeline: Any, options: Mapping[str, Any]) -> None:
        """Add the stage that divides the program, after the transforms that change its inputs."""
        super().configure_pipeline(pipeline, options)
        add_division(pipeline, f"distributed.context.{self.members.group}", self._divided)

    def _divided(self, trace: TraceCtx, context: Any) -> TraceCtx:
        inputs = {p.name: p for p in trace.args if isinstance(p, TensorProxy)}
        layouts = {}
        for name, proxy in self._arguments(context.prologue).items():
            if proxy.name in inputs:
                layouts[proxy.name] = self._layout(name, inputs[proxy.name])
        if any(type(n) is not int for p in inputs.values() for n in p.shape):
            raise InvalidArgument(
                "context_parallel divides sequences of known lengths, and the sizes of inputs are free",
                hint="Leave out dynamic sizes: a length of the sequence is compiled once.",
            )
        if not layouts:
            raise InvalidArgument(
                "context_parallel found none of the arguments to divide among the tensors of the program",
                found={"divide": self.divide, "tensors": ", ".join(inputs)},
                hint="The program may not read them, or they may be within a container.",
            )
        settings = Settings(
            members=self.members,
            rotates=self.rotate == "ring",
            gather=self.otherwise == "gather",
            buckets=self._buckets_of(trace, context.prologue),
        )
        return divide_program(trace, layouts, settings)

    def _buckets_of(self, trace: TraceCtx, prologue: TraceCtx) -> dict[str, str]:
        """Return the buckets by the names of proxies: parameters, and what is gathered from their parts."""
        tensors = module_tensors(prologue)
        buckets = {tensors[name].name: bucket for name, bucket in self._buckets.items() if name in tensors}
        for bsym in trace.bound_symbols:
            if bsym.sym.id in GATHERED and bsym.args[0].name in buckets:
                buckets[bsym.output.name] = buckets[bsym.args[0].name]
        return buckets

    def _arguments(self, prologue: TraceCtx) -> dict[str, TensorProxy]:
        """Return the tensors of a call that are divided, by the name of the argument."""
        found = {}
        for bsym in prologue.bound_symbols:
            if bsym.sym.id in UNPACKS and isinstance(bsym.output, TensorProxy):
                owner, key = bsym.args
                for name in self.divide:
                    if (owner.name, key) in (("args", self._positions.get(name)), ("kwargs", name)):
                        found[name] = bsym.output
        return found

    def _layout(self, name: str, p: TensorProxy) -> Shard:
        dim, size = self.divide[name], self.members.size
        if not -len(p.shape) <= dim < len(p.shape):
            raise InvalidArgument(f"divide= has dimension {dim} of {name}, whose shape is {tuple(p.shape)}")
        dim %= len(p.shape)
        parts = size if self.arrangement == "plain" else 2 * size
        if p.shape[dim] == 0 or p.shape[dim] % parts:
            raise InvalidArgument(
                f"the sequence of {name} does not consist of {parts} equal chunks",
                found={"shape": tuple(p.shape), "dimension": dim, "processes": size},
                hint=f"Pad it to a multiple of {parts}.",
            )
        return Shard(self.members.group, dim, p.shape[dim], arrangement=self.arrangement)


context_parallel = forms_of(ContextParallelTransform, "context parallelism")
