"""The common part of the transforms that distribute the parameters of a module over a group of processes."""

from __future__ import annotations

import dataclasses
import itertools
import warnings
import weakref
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

import thunder
from thunder.core.errors import InvalidArgument, UnsupportedProgram
from thunder.core.module import get_thunder_module
from thunder.core.rewrite import module_tensors, replace_inputs
from thunder.core.trace import TraceCtx

from .agreement import agree_on_weights
from .disagreements import WeightsDiffer
from .layouts import IN_PARTS, DistParallelType
from .lost_processes import finished, naming_missing
from .optimizer_states import before_steps
from .part_gradients import mark_gradient
from .parts_in_use import connect
from .process_groups import Members, group_named, members_of
from .program_sequences import register_record, sequences_record
from .running import HANG_TIMEOUT, running_in
from .sharded_tensors import accepted, presented
from .stages import add_stages
from .tensor_hashes import hashes_of

__all__ = ["Distributing", "distributed_parameters", "tied_names"]

#: an earlier and a later transform in a list that may be over the same processes
TOGETHER: Final = frozenset(
    {
        ("context_parallel", "ddp"),
        ("ddp", "context_parallel"),
        ("context_parallel", "fsdp"),
        *itertools.product(("column_parallel", "row_parallel"), repeat=2),
    }
)
#: those that may be over the same processes, all of them: the later one has what the earlier one leaves
EQUALLY: Final = frozenset({("expert_parallel", "ddp"), ("expert_parallel", "fsdp")})


#: transform → the compiled module that it belongs to
_models: Final[WeakKeyDictionary[Any, weakref.ref[Any]]] = WeakKeyDictionary()


class Distributing(thunder.Transform):
    """A transform of a module, for the processes of a group.

    Args:
        process_group: a ProcessGroup or one dimension of a DeviceMesh; None for the default group.
        broadcast_from: the rank of the group whose parameters and buffers all processes begin with; None:
            each has its own.
    """

    #: the function that makes the transform, for messages
    made_by: str
    kind: DistParallelType
    #: whether state dicts with whole parameters are on the CPU
    move_state_dict_to_cpu = False

    def __init__(self, process_group: Any, broadcast_from: int | None) -> None:
        self.process_group, self.broadcast_from = process_group, broadcast_from
        self._members: Members | None = None
        #: dotted name of a parameter → its layout; a tied one is there under one name
        self.layouts: dict[str, Any] = {}
        #: dotted name of a parameter → all names under which the module has it
        self._names: dict[str, list[str]] = {}
        #: the names of the parameters that were there when this transform was applied
        self._known: Collection[str] = ()

    @property
    def members(self) -> Members:
        """The processes of the group."""
        if self._members is None:
            self._members = members_of(self.process_group, self.made_by)
        return self._members

    def validate(self, fn: Any, options: Mapping[str, Any]) -> None:
        """Raise UserError for a program that is not a module, or without a process group."""
        module = get_thunder_module(fn)
        if not isinstance(module, nn.Module):
            raise InvalidArgument(
                f"{self.made_by} distributes the parameters of a module, and {fn!r} is not one",
                hint="Compile the module that has the parameters.",
            )
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            if isinstance(tensor, DTensor):
                raise InvalidArgument(
                    f"{self.made_by} received a module with the DTensor {name}: it is distributed already",
                    hint="Leave out fully_shard or distribute_module of torch.",
                )
        if self.broadcast_from is not None and not 0 <= self.broadcast_from < self.members.size:
            raise InvalidArgument(
                f"broadcast_from={self.broadcast_from!r} is not a rank of the group",
                found={"processes": self.members.size},
            )
        running_in(self.members.group).hang_timeout = options.get("hang_timeout", HANG_TIMEOUT)

    def connect(self, model: Any) -> None:
        """Let torch's tools find the parameters in use: now, and before a program is compiled."""
        _models[self] = weakref.ref(model)
        before_steps()
        connect(model)

    def layouts_by_name(self) -> dict[str, Any]:
        """Return the layout of each parameter, under each of its names."""
        return {alias: self.layouts[name] for name, names in self._names.items() for alias in names}

    def before(self, model: Any) -> list[Distributing]:
        """Return the transforms of this kind before this one in the list."""
        transforms = list(thunder.list_transforms(model))
        return [t for t in transforms[: transforms.index(self)] if isinstance(t, Distributing)]

    def divided_alone(self) -> Collection[str]:
        """Return the parameters that no other transform distributes over the same processes."""
        return ()

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Copy the values of the chosen rank into a tensor, if there is one."""
        if self.broadcast_from is None or tensor.is_meta:
            return
        group = group_named(self.members.group)
        source = self.members.ranks[self.broadcast_from]
        values = tensor.detach().contiguous()
        with naming_missing(f"the broadcast of the values of rank {source}", self.members.group):
            finished(dist.broadcast(values, src=source, group=group, async_op=True), self.members.group)
        if values.data_ptr() != tensor.data_ptr():
            tensor.detach().copy_(values)

    def configure_pipeline(self, pipeline: Any, options: Mapping[str, Any]) -> None:
        """Add the stages that make collectives of buckets, overlap them, and compare them."""
        add_stages(pipeline)

    def check_groups(self, model: Any) -> None:
        """Raise InvalidArgument for an earlier transform that gives the same processes another task."""
        for other in self.before(model):
            pair = other.made_by, self.made_by
            if pair in TOGETHER or (pair in EQUALLY and other.members.ranks == self.members.ranks):
                continue
            if len({*other.members.ranks} & {*self.members.ranks}) > 1:
                is_reversed = (self.made_by, other.made_by) in TOGETHER
                raise InvalidArgument(
                    f"{self.made_by} comes after {other.made_by}, over the same processes",
                    found={self.made_by: self.members.ranks, other.made_by: other.members.ranks},
                    hint=f"Put {self.made_by} before {other.made_by} in the list of transforms."
                    if is_reversed
                    else "Give each its own dimension of a mesh: mesh = init_device_mesh(…, (2, 2), "
                    f'mesh_dim_names=("first", "second")); {other.made_by}(…, process_group=mesh["first"]), '
                    f'{self.made_by}(…, process_group=mesh["second"]).',
                )

    def check_weights(self, model: Any) -> None:
        """Compare the parameters and buffers of the processes, and the values that no broadcast makes equal.

        Raises WeightsDiffer with the first one that differs. Where each process gives a part of its own
        values (fsdp) other values are a warning. Parts that an earlier transform has made are left out.
        Values are compared by hashes, which are computed on their device.
        """
        if running_in(self.members.group).is_alone:
            return
        parts = {
            name
            for other in self.before(model)
            if len({*other.members.ranks} & {*self.members.ranks}) > 1
            for name, layout in other.layouts_by_name().items()
            if layout.kind in IN_PARTS
        }
        parameters = {name: p for name, p in distributed_parameters(model) if name not in parts}
        buffers = {name: b for name, b in model.named_buffers() if name not in parts}
        lines = [
            f"{name} {str(t.dtype).removeprefix('torch.')}{list(t.shape)}"
            f"{' requires grad' if t.requires_grad else ''}"
            for name, t in {**parameters, **buffers}.items()
        ]
        agree_on_weights(self.members.group, [self.made_by, *lines])
        if self.broadcast_from is not None:
            return
        values = zip(lines, hashes_of(parameters.values()), strict=False)
        try:
            agree_on_weights(self.members.group, [f"{line} {value}" for line, value in values])
        except WeightsDiffer as error:
            if self.kind is not DistParallelType.FULLY_SHARDED:
                raise
            warnings.warn(f"{self.made_by} joins parts of other weights: {error}", stacklevel=2)

    def cache_state(self) -> Mapping[str, Hashable]:
        """Return nothing. Raise InvalidArgument for a call within another distribution of torch's.

        torch's DistributedDataParallel has broadcast the parameters of one process, which are parts, and
        averages their gradients.
        """
        around = DistributedDataParallel._active_ddp_module
        if around is None:
            return {}
        ranks = dist.get_process_group_ranks(around.process_group)
        if len({*ranks} & {*self.members.ranks}) > 1:
            raise InvalidArgument(
                f"a module that was compiled with {self.made_by} is called within DistributedDataParallel",
                found={self.made_by: self.members.ranks, "DistributedDataParallel": tuple(ranks)},
                hint="Call the compiled module itself: it communicates. Or give DistributedDataParallel "
                "another dimension of a mesh as its process_group.",
            )
        return {}

    # -- the parameters that a program reads

    def check_hooks(self, name: str, parameter: torch.Tensor) -> None:
        """Raise UnsupportedProgram for a parameter with hooks, in whose place another tensor is used."""
        after = (getattr(parameter, "_post_accumulate_grad_hooks", None) or {}).values()
        if parameter._backward_hooks or any(hook is not mark_gradient for hook in after):
            raise UnsupportedProgram(
                f"{self.made_by} puts another tensor in the place of {name}, whose hooks would not run",
                hint="Remove the hooks, or use ddp.",
            )

    def computed(self, layout: Any, in_use: Any) -> Callable[[Any], Any] | None:
        """Return what computes a parameter, as the program reads it, from what this process has of it.

        `in_use` is the proxy of that. None: the program reads it as it is.
        """
        return None

    def recomputes(self) -> bool:
        """Return whether a backward computes again what `computed` computes."""
        return False

    def transform_traces_pre_prologue(
        self,
        prologue_trace: TraceCtx,
        computation_trace: TraceCtx,
        epilogue_trace: TraceCtx | None,
        **kwargs: Any,
    ) -> tuple[TraceCtx, TraceCtx, TraceCtx | None]:
        """Let the program compute the parameters that it reads from what this process has of them."""
        model = _models[self]() if self in _models else None
        if model is not None:  # another transform may have put others into use since then
            connect(model)
        tensors = module_tensors(prologue_trace)
        self._check_are_known(tensors)
        replacements = {}
        for name, layout in self.layouts_by_name().items():
            compute = self.computed(layout, tensors[name]) if name in tensors else None
            if compute is not None:
                replacements[name] = compute, ()
        if replacements:
            replace_inputs(prologue_trace, computation_trace, replacements, recompute=self.recomputes())
        return prologue_trace, computation_trace, epilogue_trace

    def _check_are_known(self, tensors: Mapping[str, Any]) -> None:
        """Raise InvalidArgument for a parameter with a gradient that was not there in time."""
        for name, tensor in tensors.items():
            if tensor.requires_grad and tensor.numel() and name not in self._known:
                raise InvalidArgument(
                    f"{name} requires grad, and came after {self.made_by} had distributed the parameters",
                    hint=f"Put {self.made_by} after the transforms that add parameters, and compile again "
                    "after the module got one.",
                )

    # -- programs that are kept

    @property
    def distribution(self) -> list[Any]:
        """The processes and the layouts; which of the processes this one is, a program asks when it runs."""
        group, ranks = self.members.group, self.members.ranks
        layouts = [[*_values(layout), self._names[name]] for name, layout in self.layouts.items()]
        return [group, ranks, str(dist.get_backend_config(group_named(group))), layouts]

    def program_record(self, traces: Sequence[TraceCtx]) -> Any:
        """Return the collectives and statements that processes compare, and name where they differ."""
        return sequences_record(traces)

    def note_program(self, record: Any) -> None:
        """Register them."""
        register_record(record)

    # -- state dicts

    def present_state_dict(self, model: Any, state_dict: dict[str, Any]) -> dict[str, Any]:
        """Return the state in use with parts of parameters as DTensors, as torch's tools read them."""
        return presented(model, state_dict)

    def accept_state_dict(self, model: Any, state_dict: Mapping[str, Any]) -> dict[str, Any]:
        """Return the state to use of what `present_state_dict` returned, or of whole parameters."""
        return accepted(model, state_dict)

    def transform_state_dict_for_submodule(
        self, model: Any, submodule_name: str, state_dict: dict[str, Any]
    ) -> dict[str, Any]:
        """Divide the parameters of a submodule that are in parts."""
        for key, layout in self._parts_of(submodule_name, state_dict):
            if tuple(state_dict[key].shape) != layout.shape:
                raise InvalidArgument(
                    f"{layout.name} of the state dict has another shape than the module's",
                    found={"state dict": tuple(state_dict[key].shape), "module": layout.shape},
                )
            state_dict[key] = layout.shard(state_dict[key])
        return state_dict

    def reverse_transform_state_dict_for_submodule(
        self, model: Any, submodule_name: str, state_dict: dict[str, Any]
    ) -> dict[str, Any]:
        """Gather the parameters of a submodule that are in parts; each process has to call it."""
        for key, layout in self._parts_of(submodule_name, state_dict):
            whole = layout.gather(state_dict[key])
            state_dict[key] = whole.cpu() if self.move_state_dict_to_cpu else whole
        return state_dict

    def _parts_of(self, submodule_name: str, state_dict: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        """Yield the layouts of the parameters in parts that a state dict has, with their keys."""
        prefix = f"{submodule_name}." if submodule_name else ""
        layouts = self.layouts_by_name()
        for key in state_dict:
            layout = layouts.get(prefix + key)
            if layout is not None and layout.kind in IN_PARTS:
                yield key, layout


def _values(layout: Any) -> list[Any]:
    """Return the fields of a layout, without the processes."""
    return [getattr(layout, f.name) for f in dataclasses.fields(layout) if f.name != "members"]


def distributed_parameters(model: Any) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield the parameters in use, each once, by the name under which it is in use."""
    seen: set[int] = set()
    for name in (*model.overrides, *(name for name, _ in model.named_parameters())):
        tensor = model.overrides.get(name)
        parameter = model.get_parameter(name) if tensor is None else tensor
        if isinstance(parameter, nn.Parameter) and id(parameter) not in seen:
            seen.add(id(parameter))
            yield name, parameter


def tied_names(model: Any) -> Callable[[str], list[str]]:
    """Return what returns a name of a parameter with its others: a program reads it under any of them."""
    own = dict(get_thunder_module(model).named_parameters(remove_duplicate=False))
    names: dict[int, list[str]] = {}
    for name, parameter in own.items():
        names.setdefault(id(parameter), []).append(name)

    def of(name: str) -> list[str]:
        # an earlier transform may have put the parameter into use, under a name that the module does not have
        tied = names[id(own[name])] if name in own else ()
        return [name, *(other for other in tied if other != name)]

    return of
