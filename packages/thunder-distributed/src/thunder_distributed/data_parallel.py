"""`ddp` and `fsdp`: data parallelism, with parameters that are replicated or fully sharded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

import thunder
from thunder.core.errors import InvalidArgument, UnsupportedProgram
from thunder.core.module import get_thunder_module
from thunder.core.rewrite import module_tensors, replace_input
from thunder.core.trace import TraceCtx
from thunder.core.transforms import add_transform
from thunder.extend import attach_transform

from .agreement import agreed
from .buckets import buckets_of_bytes, buckets_of_modules, with_collectives
from .collectives import gathered
from .gradient_synchronization import GradientMode, SynchronizationSwitch
from .layouts import DistParallelType, FSDPBucketingStrategy, FSDPType, Layout, memory_order
from .overlap import overlapped
from .process_groups import Members, group_named, members_of, process_device
from .synchronization import synchronize

__all__ = ["DDPTransform", "DataParallel", "FSDPTransform", "ddp", "fsdp", "layouts_of"]

M = TypeVar("M", bound=nn.Module)
STAGE = "distributed.collectives"


class DataParallel(thunder.Transform, ABC):
    """The common part: parameters that a program reads are synchronised, and so are their gradients.

    Args:
        process_group: a ProcessGroup or one dimension of a DeviceMesh; None for the default group.
        broadcast_from: the rank of the group whose parameters and buffers all processes begin with; None:
            each has its own.
    """

    #: the function that makes the transform, for messages
    made_by: str
    kind: DistParallelType

    def __init__(self, process_group: Any, broadcast_from: int | None) -> None:
        self.process_group, self.broadcast_from = process_group, broadcast_from
        #: dotted name of a parameter → its layout; a tied one is there under one name
        self.layouts: dict[str, Layout] = {}
        #: dotted name of a parameter → all names under which the module has it
        self._names: dict[str, list[str]] = {}
        self._switch = SynchronizationSwitch()
        self._members: Members | None = None

    # -- what a subclass defines

    @abstractmethod
    def buckets(self, model: Any, parameters: Mapping[str, torch.Tensor]) -> dict[str, str]:
        """Return the bucket of each parameter that is communicated with others."""

    @abstractmethod
    def distribute(self, model: Any, layout: Layout, parameter: nn.Parameter) -> None:
        """Put what this process has of a parameter into use."""

    def recomputes(self) -> bool:
        """Return whether a backward computes whole parameters again."""
        return True

    def is_synchronized(self, parameter: torch.Tensor) -> bool:
        """Return whether a program synchronises a parameter."""
        return True

    # -- hooks

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
        group_named(self.members.group)

    def transform_module(self, model: Any) -> None:
        """Lay out the parameters, one after the other."""
        self._check_order(thunder.list_transforms(model))
        parameters = dict(_distributed_parameters(model))
        buckets = self.buckets(model, parameters)
        for name, parameter in parameters.items():
            if parameter.numel() == 0:
                continue
            self.layouts[name] = layout = Layout(
                name=name,
                kind=self.kind,
                members=self.members,
                shape=tuple(parameter.shape),
                order=memory_order(parameter),
                bucket=buckets.get(name),
            )
            self._names[name] = _names_of(model, name, parameter)
            self.distribute(model, layout, parameter)

    def _check_order(self, transforms: Sequence[thunder.Transform]) -> None:
        """Raise InvalidArgument if parameters are replicated before they are sharded."""
        later = transforms[list(transforms).index(self) + 1 :]
        if self.kind is DistParallelType.REPLICATED and any(isinstance(t, FSDPTransform) for t in later):
            raise InvalidArgument(
                "ddp comes before fsdp in the list of transforms",
                hint="Parameters are sharded first, and the parts replicated: "
                "transforms=[fsdp(process_group=…), ddp(process_group=…)].",
            )

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Copy the values of the chosen rank into a tensor, if there is one."""
        if self.broadcast_from is None or tensor.is_meta:
            return
        group = group_named(self.members.group)
        source = self.members.ranks[self.broadcast_from]
        values = tensor.detach().contiguous()
        dist.broadcast(values, src=source, group=group)
        if values.data_ptr() != tensor.data_ptr():
            tensor.detach().copy_(values)

    def transform_traces_pre_prologue(
        self,
        prologue_trace: TraceCtx,
        computation_trace: TraceCtx,
        epilogue_trace: TraceCtx | None,
        **kwargs: Any,
    ) -> tuple[TraceCtx, TraceCtx, TraceCtx | None]:
        """Let the program read synchronised parameters."""
        tensors, mode = module_tensors(prologue_trace), self._switch.mode
        self._check_all_are_distributed(tensors)
        for name, layout in self.layouts.items():
            for alias in self._names[name]:
                if alias in tensors and self.is_synchronized(tensors[alias]):
                    self._check_form(layout, tensors[alias])
                    compute, again = _synchronized(layout, mode), self.recomputes()
                    replace_input(prologue_trace, computation_trace, alias, compute, recompute=again)
        return prologue_trace, computation_trace, epilogue_trace

    def _check_all_are_distributed(self, tensors: Mapping[str, Any]) -> None:
        """Raise InvalidArgument for a parameter with a gradient that came after the others were laid out."""
        names = set[str]().union(*self._names.values())
        for name, tensor in tensors.items():
            if tensor.requires_grad and tensor.numel() and name not in names:
                raise InvalidArgument(
                    f"{name} requires grad, and came after {self.made_by} had distributed the parameters",
                    hint=f"Put {self.made_by}() after the transforms that add parameters, and compile again "
                    "after the module got one.",
                )

    def _check_form(self, layout: Layout, in_use: Any) -> None:
        """Raise InvalidArgument if the tensor in use is not the part that this transform has made."""
        sharded = layout.kind is DistParallelType.FULLY_SHARDED
        if sharded and tuple(in_use.shape) != layout.shard_shape:
            raise InvalidArgument(
                f"{layout.name} was changed after {self.made_by} had sharded it",
                found={"part": layout.shard_shape, "in use": tuple(in_use.shape)},
                hint=f"Put {self.made_by}() after the other transforms of weights in the list of transforms.",
            )

    def configure_pipeline(self, pipeline: Any, options: Mapping[str, Any]) -> None:
        """Add the stages that make collectives of buckets, overlap them, and compare them."""
        if STAGE not in pipeline.names():
            pipeline.add(STAGE, _Stage(with_collectives), after="autograd", before="transforms_joint")
            pipeline.add(
                "distributed.overlap", _Stage(overlapped), after="transforms_pre_execution", before="claim"
            )
            pipeline.add(
                "distributed.agreement",
                _Stage(agreed),
                after="transforms_post_optimization",
                before="codegen",
            )

    def cache_state(self) -> Mapping[str, Hashable]:
        """Return whether gradients are communicated."""
        return {"gradients": self._switch.mode}

    # -- gradients that are not communicated

    def no_sync(self) -> AbstractContextManager[None]:
        """Return the context in which calls of the module leave their gradients uncommunicated."""
        return self._switch.no_sync()


@dataclass(frozen=True)
class _Stage:
    """A stage of the pipeline that passes no dtype or device of a proxy to torch's functions.

    A function as a stage would be interpreted, because it may do so.
    """

    run: Callable[[TraceCtx, Any], TraceCtx]

    def __call__(self, trace: TraceCtx, context: Any) -> TraceCtx:
        return self.run(trace, context)


def layouts_of(compiled: Any) -> dict[str, Layout]:
    """Return the layout table of a compiled module: dotted name of a parameter → its layout.

    Of a parameter that several transforms lay out, it is the layout of the first one.
    """
    table: dict[str, Layout] = {}
    for transform in thunder.list_transforms(compiled):
        if isinstance(transform, DataParallel):
            table = {**transform.layouts, **table}
    return table


def _synchronized(layout: Layout, mode: GradientMode) -> Callable[[Any], Any]:
    """Return the function that records how the whole parameter is computed from what a process has."""

    def whole(part: Any) -> Any:
        arguments = (part, layout.members.group, layout.kind, layout.bucket, mode)
        value = synchronize(*arguments)
        return layout.whole(value) if layout.kind is DistParallelType.FULLY_SHARDED else value

    return whole


def _distributed_parameters(model: Any) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield the parameters in use, each once, by the name under which it is in use."""
    seen: set[int] = set()
    for name in (*model.overrides, *(name for name, _ in model.named_parameters())):
        tensor = model.overrides.get(name)
        parameter = model.get_parameter(name) if tensor is None else tensor
        if isinstance(parameter, nn.Parameter) and id(parameter) not in seen:
            seen.add(id(parameter))
            yield name, parameter


def _names_of(model: Any, name: str, parameter: nn.Parameter) -> list[str]:
    """Return a name of a parameter and the others of the same one: a program reads it under any of them."""
    own = dict(get_thunder_module(model).named_parameters(remove_duplicate=False))
    original = own.get(name, parameter)  # an earlier transform may have put another one into use
    return [name, *(other for other, tied in own.items() if tied is original and other != name)]


class DDPTransform(DataParallel):
    """Data parallelism: parameters are replicated, and gradients are averaged over the processes.

    Each process computes the loss of its part of the batch. Gradients are those of the mean of the losses.
    They are communicated in buckets, each when the last gradient in it is computed.

    Args:
        broadcast_from: the rank of the group whose parameters and buffers are copied into those of all
            processes; None: they are equal already.
        bucket_size_in_mb: the most megabytes (2**20 bytes) of gradients that are communicated together.
        process_group: a ProcessGroup or one dimension of a DeviceMesh; None for the default group.
    """

    made_by = "ddp"
    kind = DistParallelType.REPLICATED

    def __init__(
        self,
        *,
        broadcast_from: int | None = 0,
        bucket_size_in_mb: float = 25.0,
        process_group: Any = None,
    ) -> None:
        if isinstance(bucket_size_in_mb, bool) or not bucket_size_in_mb >= 0:
            raise InvalidArgument(
                f"bucket_size_in_mb={bucket_size_in_mb!r} is not a size", hint="0 makes no buckets."
            )
        super().__init__(process_group, broadcast_from)
        self.bucket_size_in_mb = bucket_size_in_mb

    def buckets(self, model: Any, parameters: Mapping[str, torch.Tensor]) -> dict[str, str]:
        """Return buckets of at most so many bytes, of the last parameters first."""
        if self.bucket_size_in_mb == 0:
            return {}
        return buckets_of_bytes(parameters, self.bucket_size_in_mb * 2**20)

    def transform_module(self, model: Any) -> None:
        """Lay out the parameters, and broadcast the buffers."""
        super().transform_module(model)
        for _, buffer in model.named_buffers():
            self.broadcast(buffer)

    def distribute(self, model: Any, layout: Layout, parameter: nn.Parameter) -> None:
        """Give the parameter the values of the chosen rank."""
        self.broadcast(parameter)

    def is_synchronized(self, parameter: torch.Tensor) -> bool:
        """Return whether a parameter has a gradient."""
        return parameter.requires_grad


class FSDPTransform(DataParallel):
    """Fully sharded data parallelism: each process has a part of the rows of each parameter.

    A parameter is gathered before its first use; its gradient is averaged over the processes, and each
    process gets its part. The parts are the parameters of the compiled module: `compiled.parameters()` is
    what an optimizer takes. Each process computes the loss of its part of the batch. Gradients are those of
    the mean of the losses.

    Args:
        device: where parts and buffers are; None for the accelerator of this process, or the CPU if there is
            none. Parameters on the meta device stay there, for a `MaterializationTransform` after this one.
        broadcast_from: the rank of the group whose parameters and buffers all processes begin with; None:
            they are equal already.
        sharding_strategy: whether a backward keeps the whole parameters or gathers them again.
        bucketing_strategy: which parameters are gathered together.
        move_state_dict_to_cpu: whether `original_state_dict` returns tensors on the CPU.
        process_group: a ProcessGroup or one dimension of a DeviceMesh; None for the default group.
        release: drop the memory of the original parameters. The module itself can no longer be called.
    """

    made_by = "fsdp"
    kind = DistParallelType.FULLY_SHARDED

    def __init__(
        self,
        *,
        device: torch.device | str | None = None,
        broadcast_from: int | None = None,
        sharding_strategy: FSDPType = FSDPType.ZERO2,
        bucketing_strategy: FSDPBucketingStrategy = FSDPBucketingStrategy.NONE,
        move_state_dict_to_cpu: bool | None = None,
        process_group: Any = None,
        release: bool = False,
    ) -> None:
        for name, value, kind in (
            ("sharding_strategy", sharding_strategy, FSDPType),
            ("bucketing_strategy", bucketing_strategy, FSDPBucketingStrategy),
        ):
            if not isinstance(value, kind):
                members = ", ".join(f"{kind.__name__}.{member.name}" for member in kind)
                raise InvalidArgument(f"{name}={value!r} is not a {kind.__name__}", hint=f"Write {members}.")
        super().__init__(process_group, broadcast_from)
        self.device = None if device is None else torch.device(device)
        self.sharding_strategy, self.bucketing_strategy = sharding_strategy, bucketing_strategy
        self.move_state_dict_to_cpu, self.release = bool(move_state_dict_to_cpu), release

    def buckets(self, model: Any, parameters: Mapping[str, torch.Tensor]) -> dict[str, str]:
        """Return the buckets of the strategy."""
        return buckets_of_modules(get_thunder_module(model), parameters, self.bucketing_strategy)

    def transform_module(self, model: Any) -> None:
        """Shard the parameters, and move the buffers."""
        self.device = process_device() if self.device is None else self.device
        super().transform_module(model)
        for name, buffer in list(model.named_buffers()):
            if not buffer.is_meta and buffer.device != self.device:
                buffer = buffer.to(self.device)
                model.override(name, buffer)
            self.broadcast(buffer)

    def distribute(self, model: Any, layout: Layout, parameter: nn.Parameter) -> None:
        """Put the part of this process into use, on the device."""
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
            raise UnsupportedProgram(
                f"fsdp puts a part in the place of {layout.name}, whose hooks are for the whole parameter",
                hint="Remove the hooks, or use ddp.",
            )
        if not parameter.is_meta and self.broadcast_from is not None:
            moved = parameter.detach().to(self.device, copy=True)
            self.broadcast(moved)
            part = layout.shard(moved)
        else:
            part = layout.shard(parameter)
        if not parameter.is_meta:
            part = part.to(self.device)
        model.override(layout.name, nn.Parameter(part, requires_grad=parameter.requires_grad))
        if self.release and not parameter.is_meta:
            model.release_original(layout.name)

    def recomputes(self) -> bool:
        """Return whether the strategy is ZERO3."""
        return self.sharding_strategy is FSDPType.ZERO3

    # -- state dicts

    def transform_state_dict_for_submodule(
        self, model: Any, submodule_name: str, state_dict: dict[str, Any]
    ) -> dict[str, Any]:
        """Shard the parameters of a submodule."""
        for key, layout in self._layouts_of(submodule_name, state_dict):
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
        """Gather the parameters of a submodule; each process has to call it."""
        for key, layout in self._layouts_of(submodule_name, state_dict):
            whole = layout.whole(gathered(state_dict[key].detach(), layout.members.group))
            state_dict[key] = whole.cpu() if self.move_state_dict_to_cpu else whole
        return state_dict

    def _layouts_of(self, submodule_name: str, state_dict: Mapping[str, Any]) -> Iterator[tuple[str, Layout]]:
        """Yield the layouts of the parameters of a submodule that a state dict has, with their keys."""
        prefix = f"{submodule_name}." if submodule_name else ""
        for key in state_dict:
            layout = self.layouts.get(prefix + key)
            if layout is not None:
                yield key, layout


def ddp(
    model: M | None = None,
    *,
    broadcast_from: int | None = 0,
    bucket_size_in_mb: float = 25.0,
    process_group: Any = None,
) -> Any:
    """Return a transform for data parallelism, or a module with it.

    Without a module the result is a :class:`DDPTransform`. A module is returned with the transform attached,
    which `thunder.jit` applies; of a compiled module a new one with the transform. The arguments are those of
    the class.
    """
    transform = DDPTransform(
        broadcast_from=broadcast_from, bucket_size_in_mb=bucket_size_in_mb, process_group=process_group
    )
    return _applied(transform, model)


def fsdp(
    model: M | None = None,
    *,
    device: torch.device | str | None = None,
    broadcast_from: int | None = None,
    sharding_strategy: FSDPType = FSDPType.ZERO2,
    bucketing_strategy: FSDPBucketingStrategy = FSDPBucketingStrategy.NONE,
    move_state_dict_to_cpu: bool | None = None,
    process_group: Any = None,
    release: bool = False,
) -> Any:
    """Return a transform for fully sharded data parallelism, or a module with it.

    Without a module the result is an :class:`FSDPTransform`. A module is returned with the transform
    attached, which `thunder.jit` applies; of a compiled module a new one with the transform. The arguments
    are those of the class.
    """
    transform = FSDPTransform(
        device=device,
        broadcast_from=broadcast_from,
        sharding_strategy=sharding_strategy,
        bucketing_strategy=bucketing_strategy,
        move_state_dict_to_cpu=move_state_dict_to_cpu,
        process_group=process_group,
        release=release,
    )
    return _applied(transform, model)


def _applied(transform: DataParallel, model: Any) -> Any:
    if model is None:
        return transform
    if isinstance(model, thunder.ThunderModule):
        return add_transform(model, transform=transform)
    if not isinstance(model, nn.Module):
        raise InvalidArgument(
            f"{transform.made_by} takes a module, and received {type(model).__name__}",
            hint=f"thunder.jit(module, transforms=[{transform.made_by}()]) is the general form.",
        )
    transform.validate(model, {})
    return attach_transform(model, transform)
