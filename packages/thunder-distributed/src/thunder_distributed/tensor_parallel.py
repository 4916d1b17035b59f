"""`column_parallel` and `row_parallel`: processes compute parts of the same result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

import thunder
from thunder.core.errors import InvalidArgument
from thunder.core.module import get_thunder_module

from .data_parallel import DataParallel
from .distribution import Distributing, distributed_parameters, tied_names
from .division.operators import assembled
from .forms import forms_of
from .layouts import DistParallelType
from .process_groups import process_device
from .tensor_layouts import TensorLayout, chosen_parameters

__all__ = [
    "ColumnParallelTransform",
    "RowParallelTransform",
    "TensorParallel",
    "column_parallel",
    "row_parallel",
]


class TensorParallel(Distributing):
    """The common part: parameters of chosen layers are in parts, and the program computes on parts.

    Each process is called with the same arguments, and returns the same results.

    Args:
        target_modules: names of layers, with `*` for any text.
        process_group: a ProcessGroup or one dimension of a DeviceMesh; None for the default group.
        device: where parts are; None for the accelerator of this process, or the CPU if there is none.
            Parameters on the meta device stay there, for a `MaterializationTransform` after this one.
        broadcast_from: the rank of the group whose parameters and buffers all processes begin with; None:
            they are equal already.
    """

    keeps_sizes = True
    #: the dimension in which sums over the processes are divided; None: they are whole
    sequence_dim: int | None = None

    def __init__(
        self,
        target_modules: Sequence[str] = (),
        process_group: Any = None,
        *,
        device: torch.device | str | None = None,
        broadcast_from: int | None = 0,
    ) -> None:
        if isinstance(target_modules, str) or not all(isinstance(name, str) for name in target_modules):
            raise InvalidArgument(
                f"{self.made_by} received target_modules={target_modules!r}",
                hint=f'It is a list of names of layers: {self.made_by}(target_modules=["blocks.*.up"]).',
            )
        if not target_modules:
            raise InvalidArgument(
                f"{self.made_by} has no target_modules", hint='Name layers: target_modules=["blocks.*.up"].'
            )
        super().__init__(process_group, broadcast_from)
        self.target_modules = tuple(target_modules)
        self.device = None if device is None else torch.device(device)
        self.layouts: dict[str, TensorLayout] = {}

    # -- hooks

    def validate(self, fn: Any, options: Mapping[str, Any]) -> None:
        """Raise UserError for a program that is not a module, without a group, or without the layers."""
        super().validate(fn, options)
        list(chosen_parameters(get_thunder_module(fn), self.target_modules, self.kind, self.made_by))

    def transform_module(self, model: Any) -> None:
        """Put the parts of this process into use."""
        self.device = process_device() if self.device is None else self.device
        earlier = self._earlier(model)
        self.check_groups(model)
        self.check_weights(model)
        module, tied = get_thunder_module(model), tied_names(model)
        self._begin_equally(model, earlier)
        owners = {id(model.get_parameter(n)): (n, layout) for t in earlier for n, layout in t.layouts.items()}
        for name, dim in chosen_parameters(module, self.target_modules, self.kind, self.made_by):
            parameter = model.get_parameter(name)
            if id(parameter) in owners:
                self._check_same(name, dim, *owners[id(parameter)])
                continue
            self._check_whole(module, name, parameter)
            layout = TensorLayout(
                name=name,
                kind=self.kind,
                members=self.members,
                shape=tuple(parameter.shape),
                dim=dim,
                results=self.sequence_dim,
            )
            self.layouts[name] = layout
            self._names[name] = tied(name)
            part = layout.shard(parameter)
            part = part if parameter.is_meta else part.to(self.device)
            in_use = nn.Parameter(part, requires_grad=parameter.requires_grad)
            model.override(name, in_use)
            owners[id(in_use)] = name, layout
        self._known = {name for name, _ in model.named_parameters(remove_duplicate=False)}
        self.connect(model)

    def _earlier(self, model: Any) -> list[TensorParallel]:
        """Return the earlier transforms of this kind; raise InvalidArgument if there is another one."""
        transforms = thunder.list_transforms(model)
        before = transforms[: list(transforms).index(self)]
        for other in before:
            if isinstance(other, DataParallel):
                raise InvalidArgument(
                    f"{self.made_by} comes after {other.made_by} in the list of transforms",
                    hint="Parameters are divided first, and the parts sharded or replicated: put "
                    f"{self.made_by} before {other.made_by}.",
                )
        return [other for other in before if isinstance(other, TensorParallel)]

    def _begin_equally(self, model: Any, earlier: Sequence[TensorParallel]) -> None:
        """Move whole parameters to the device, with the values of the chosen process of the group."""
        divided = {id(model.get_parameter(name)) for other in earlier for name in other.layouts}
        known = set[str]().union(*(other._known for other in earlier if other.members == self.members))
        for name, parameter in list(distributed_parameters(model)):
            if id(parameter) in divided or parameter.is_meta:
                continue
            if parameter.device != self.device:
                self.check_hooks(name, parameter)
                moved = nn.Parameter(
                    parameter.detach().to(self.device), requires_grad=parameter.requires_grad
                )
                model.override(name, moved)
                parameter = moved
            if name not in known:
                self.broadcast(parameter)
        for name, buffer in list(model.named_buffers()):
            if not buffer.is_meta and buffer.device != self.device:
                buffer = buffer.to(self.device)
                model.override(name, buffer)
            if not known:
                self.broadcast(buffer)

    def _check_same(self, name: str, dim: int, other: str, layout: TensorLayout) -> None:
        """Raise InvalidArgument for a parameter that would be divided in two ways."""
        if layout.dim != dim or layout.members != self.members:
            raise InvalidArgument(
                f"{name} is the same parameter as {other}, which is divided along dimension {layout.dim}, "
                f"and not along dimension {dim}",
                hint="A weight that an embedding and a linear layer share is divided along its rows: "
                "row_parallel of the embedding, column_parallel of the linear layer, in one group.",
            )

    def _check_whole(self, module: nn.Module, name: str, parameter: torch.Tensor) -> None:
        """Raise InvalidArgument for a parameter that is stored in another form."""
        own = module.get_parameter(name)
        if parameter.shape != own.shape or parameter.dtype != own.dtype:
            raise InvalidArgument(
                f"{name} is stored in another form by a transform before {self.made_by}",
                found={"module": tuple(own.shape), "in use": tuple(parameter.shape)},
                hint=f"Put {self.made_by} before it in the list of transforms.",
            )
        self.check_hooks(name, parameter)

    def computed(self, layout: TensorLayout, in_use: Any) -> Callable[[Any], Any] | None:
        """Return what records how the program reads a parameter in parts."""
        return _assembled(layout)


def _assembled(layout: TensorLayout) -> Callable[[Any], Any]:
    """Return the function that records how the program reads a parameter in parts."""
    division = layout.division

    def whole(part: Any) -> Any:
        return assembled(part, division.group, division.dim, division.extent, division.results)

    return whole


class ColumnParallelTransform(TensorParallel):
    """Divides the results of linear layers and embeddings: each process computes some of the columns.

    Of a linear layer, the rows of the weight and the elements of the bias are divided; of an embedding, the
    columns of the table.
    """

    made_by = "column_parallel"
    identified_by = ("distribution",)
    kind = DistParallelType.COLUMN_WISE


class RowParallelTransform(TensorParallel):
    """Divides the operands of linear layers, and the rows of embeddings: processes compute terms of sums.

    Of a linear layer, the columns of the weight are divided, and the bias is whole; of an embedding, the
    rows of the table. With `sequence_dim` the sums are divided along the sequence, and what follows is
    computed on parts of it: sequence parallelism.

    Args:
        target_modules, process_group, device, broadcast_from: those of `column_parallel`.
        sequence_dim: the dimension in which results that are sums over the processes are divided; None: they
            are whole. Negative ones are counted from the last. Results that cannot be divided are whole.
    """

    made_by = "row_parallel"
    identified_by = ("distribution",)
    kind = DistParallelType.ROW_WISE

    def __init__(
        self,
        target_modules: Sequence[str] = (),
        process_group: Any = None,
        *,
        sequence_dim: int | None = None,
        device: torch.device | str | None = None,
        broadcast_from: int | None = 0,
    ) -> None:
        if sequence_dim is not None and (isinstance(sequence_dim, bool) or not isinstance(sequence_dim, int)):
            raise InvalidArgument(f"sequence_dim={sequence_dim!r} is not a dimension", hint="Write -2.")
        super().__init__(target_modules, process_group, device=device, broadcast_from=broadcast_from)
        self.sequence_dim = sequence_dim


column_parallel = forms_of(ColumnParallelTransform, "layers whose results are divided")
row_parallel = forms_of(RowParallelTransform, "layers whose operands are divided")
