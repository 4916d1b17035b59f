"""`expert_parallel`: the experts of a mixture are divided between processes, which have their own tokens."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from torch import nn

import thunder
from thunder.core.errors import InvalidArgument, UnsupportedProgram
from thunder.core.module import get_thunder_module
from thunder.core.proxies import TensorProxy, Variable
from thunder.core.rewrite import in_place_of
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx, TraceProvenance, from_trace, tracectx
from thunder.plugins import Lookaside

from .data_parallel import DataParallel, shards
from .expert_modules import OwnedLayout, check_lists, lists_of_experts, place_of
from .expert_products import expert_product, experts_of
from .expert_rows import RowsOfExperts, expert_of
from .forms import forms_of
from .layouts import DistParallelType, Layout, memory_order
from .mixtures import mixture_lookasides
from .replication import DDPTransform
from .stages import add_division

__all__ = ["DIVISION_OF_EXPERTS", "ExpertParallelTransform", "expert_parallel"]

#: the provenance of the program that multiplies with the experts of a process
DIVISION_OF_EXPERTS: Final = "Products of experts"

#: operators of rows, weights of experts, ends of experts: the rows of each expert times its weights
GROUPED_PRODUCTS: Final = frozenset(
    {"torch._grouped_mm", "prims._grouped_mm", "custom_operator.transformers_grouped_mm_fallback"}
)
#: operators that change the form of weights, and leave experts apart
FORMS: Final = frozenset(
    {"torch.transpose", "torch.permute", "prims.transpose", "prims.convert_element_type"}
)


class ExpertParallelTransform(DDPTransform):
    """Expert parallelism: each process has some of the experts, and the other parameters.

    Each process calls the module with its own part of the batch, as with `ddp`. A program is divided where it
    multiplies rows, sorted by expert, with the weights of all experts: `torch.nn.functional.grouped_mm`, as
    the experts of transformers do. Rows go to the process that has their expert, and products come back.
    Gradients are those of the mean of the losses.

    With `ddp` or `fsdp` of the same processes after it in the list, that one has the other parameters.

    Args:
        experts: names of parameters, or patterns: `"*.experts.*"`. Dimension 0 of each is the expert.
        broadcast_from, bucket_size_in_mb, process_group: those of `ddp`, for the other parameters.
    """

    made_by = "expert_parallel"

    def __init__(
        self,
        experts: Sequence[str] = (),
        *,
        broadcast_from: int | None = 0,
        bucket_size_in_mb: float = 25.0,
        process_group: Any = None,
    ) -> None:
        if isinstance(experts, str) or not experts or not all(isinstance(name, str) for name in experts):
            raise InvalidArgument(
                f"expert_parallel received experts={experts!r}",
                hint='It is a list of names of parameters, or of patterns: experts=["*.experts.*"].',
            )
        super().__init__(
            broadcast_from=broadcast_from, bucket_size_in_mb=bucket_size_in_mb, process_group=process_group
        )
        self.experts = tuple(experts)
        #: dotted name of a parameter of experts → its layout
        self.parts: dict[str, Layout | OwnedLayout] = {}

    def validate(self, fn: Any, options: Mapping[str, Any]) -> None:
        """Raise UserError for patterns that name nothing, and experts that cannot be divided equally."""
        super().validate(fn, options)
        parameters = dict(get_thunder_module(fn).named_parameters())
        for pattern in self.experts:
            if not any(fnmatchcase(name, pattern) for name in parameters):
                raise InvalidArgument(
                    f"expert_parallel found no parameter {pattern!r}",
                    found={"parameters": ", ".join(parameters)},
                )
        lists = lists_of_experts(get_thunder_module(fn), self._has_experts)
        check_lists(lists, self.members.size)
        for name, parameter in parameters.items():
            if not self._has_experts(name):
                continue
            if place_of(name, lists) is not None:
                continue
            if parameter.ndim != 3:
                raise InvalidArgument(
                    f"{name} is not a stack of the matrices of all experts",
                    found={"shape": tuple(parameter.shape)},
                    hint="Experts are divided that are one parameter (experts, rows, columns), and are "
                    "multiplied by torch.nn.functional.grouped_mm, or that are modules in a ModuleList.",
                )
            if parameter.shape[0] % self.members.size:
                raise InvalidArgument(
                    f"{parameter.shape[0]} experts of {name} are not divided among "
                    f"{self.members.size} processes",
                    hint="The number of experts is a multiple of the number of processes.",
                )

    def distributed(self, model: Any) -> dict[str, nn.Parameter]:
        """Return all parameters, or those of experts if another transform of the list has the others."""
        parameters = super().distributed(model)
        if self._leaves_others(thunder.list_transforms(model)):
            return {name: p for name, p in parameters.items() if self._has_experts(name)}
        return parameters

    def _leaves_others(self, transforms: Sequence[thunder.Transform]) -> bool:
        """Return whether a transform after this one distributes the other parameters."""
        later = transforms[list(transforms).index(self) + 1 :]
        return any(isinstance(t, DataParallel) and t.members.ranks == self.members.ranks for t in later)

    def check_order(self, transforms: Sequence[thunder.Transform]) -> None:
        """Raise InvalidArgument where experts are divided last, or others sharded after replication."""
        position = list(transforms).index(self)
        for other in transforms[:position]:
            if isinstance(other, DataParallel):
                raise InvalidArgument(
                    f"expert_parallel comes after {other.made_by} in the list of transforms",
                    hint="Experts are divided first, and their parts sharded or replicated: put "
                    f"expert_parallel before {other.made_by}.",
                )
        if any(map(shards, transforms[position + 1 :])) and not self._leaves_others(transforms):
            raise InvalidArgument(
                "expert_parallel replicates the parameters that are no experts, and fsdp comes after it",
                hint="Let ddp replicate them after they are sharded: transforms=[expert_parallel(…, "
                'process_group=mesh["ep"]), fsdp(process_group=mesh["dp"]), ddp(process_group=mesh["ep"])].',
            )

    def divided_alone(self) -> Collection[str]:
        """Return the parameters of experts. Raise InvalidArgument if this transform has all others, too."""
        if self.layouts:
            raise InvalidArgument(
                "expert_parallel was applied before another transform of the same processes was added",
                hint="Give both in one list: thunder.jit(model, transforms=[expert_parallel(…), fsdp()]).",
            )
        return self.parts

    def _has_experts(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.experts)

    def transform_module(self, model: Any) -> None:
        """Lay out the parameters as `ddp`; put the experts of this process into use.

        Raises UnsupportedProgram for a parameter of experts that is not contiguous.
        """
        super().transform_module(model)
        lists = lists_of_experts(get_thunder_module(model), self._has_experts)
        for name in [name for name in self.layouts if self._has_experts(name)]:
            layout, parameter = self.layouts.pop(name), model.get_parameter(name)
            self.check_hooks(name, parameter)
            place = place_of(name, lists)
            if place is not None:
                self._divide_module(model, layout, parameter, *place)
                continue
            if memory_order(parameter) != (0, 1, 2):
                raise UnsupportedProgram(
                    f"expert_parallel divides the first dimension of {name}, whose strides are others",
                    found={"shape": tuple(parameter.shape), "strides": parameter.stride()},
                    hint="Assign a contiguous parameter.",
                )
            self.parts[name] = part = Layout(
                name=name,
                kind=DistParallelType.FULLY_SHARDED,
                members=self.members,
                shape=layout.shape,
                order=layout.order,
            )
            mine = nn.Parameter(part.shard(parameter), requires_grad=parameter.requires_grad)
            model.override(name, mine)
        self.connect(model)

    def _divide_module(
        self, model: Any, layout: Layout, parameter: nn.Parameter, path: str, index: int
    ) -> None:
        """Keep a parameter of an expert that is a module in the process that has the expert."""
        each = len(get_thunder_module(model).get_submodule(path)) // self.members.size
        rest = layout.name.removeprefix(f"{path}.{index}")
        self.parts[layout.name] = own = OwnedLayout(
            name=layout.name,
            members=self.members,
            shape=layout.shape,
            owner=index // each,
            common_name=f"{path}.{index % each}{rest}",
        )
        model.override(layout.name, nn.Parameter(own.shard(parameter), requires_grad=parameter.requires_grad))

    def lookasides(self) -> Sequence[Lookaside]:
        """Return what is traced in the place of mixtures whose experts are modules."""
        return tuple(mixture_lookasides())

    def layouts_by_name(self) -> dict[str, Any]:
        """Return the layout of each parameter, under each of its names."""
        layouts = {**self.layouts, **self.parts}
        return {alias: layouts[name] for name, names in self._names.items() for alias in names}

    def computed(self, layout: Layout | OwnedLayout, in_use: Any) -> Callable[[Any], Any] | None:
        """Return what records how the program reads experts, or synchronises another parameter."""
        if isinstance(layout, OwnedLayout):
            return lambda part: expert_of(part, layout.members.group, layout.is_here, layout.shape)
        if layout.kind is DistParallelType.REPLICATED:
            return super().computed(layout, in_use)
        return lambda part: experts_of(part, layout.members.group)

    def configure_pipeline(self, pipeline: Any, options: Mapping[str, Any]) -> None:
        """Add the stage that makes products of experts, after the transforms that change inputs."""
        super().configure_pipeline(pipeline, options)
        add_division(pipeline, f"distributed.experts.{self.members.group}", with_expert_products)


def with_expert_products(trace: TraceCtx, context: Any) -> TraceCtx:
    """Return the program that multiplies with the experts of this process, and exchanges rows.

        w = experts_of(t_w, '0')
        y = _grouped_mm(x, w, offsets)    →    y = expert_product(x, '0', t_w, offsets)

    Raises UnsupportedProgram for another use of weights of experts.
    """
    new = from_trace(trace)
    parts: dict[str, tuple[Any, str]] = {}
    names: dict[Variable, Any] = {}
    modules = RowsOfExperts(names=names)
    with tracectx(new):
        for bsym in trace.bound_symbols:
            recorded: list[BoundSymbol] = []
            with new.recording_into(recorded):
                if modules.reads(bsym):
                    kept = modules.record(bsym)
                    recorded += [] if kept is None else [kept]
                elif bsym.sym.id == experts_of.id:
                    parts[bsym.output.name] = bsym.args[0], bsym.args[1]
                elif any(p.name in parts for p in bsym.flat_proxy_args):
                    _on_parts(bsym, parts, names)
                else:
                    recorded.append(bsym)
            new.bound_symbols += in_place_of(bsym, recorded)
    new.bound_symbols = [bsym.from_bsym_swap_proxies(names) for bsym in new.bound_symbols]
    new.set_provenance(TraceProvenance(DIVISION_OF_EXPERTS))
    return new


def _on_parts(bsym: BoundSymbol, parts: dict[str, tuple[Any, str]], names: dict[Variable, Any]) -> None:
    """Record what a call that reads weights of experts computes with those of this process."""
    operator = bsym.sym.id.partition("#")[0]
    first, *others = (p for p in bsym.flat_proxy_args if isinstance(p, TensorProxy))
    (result,) = bsym.flat_proxy_outs or (None,)
    if operator in FORMS and not others and _leaves_experts_apart(bsym, operator):
        part, group = parts[first.name]
        assert result is not None, "a form is a tensor"
        parts[result.name] = bsym.sym(part, *bsym.args[1:], **bsym.kwargs), group
        return
    if (
        operator in GROUPED_PRODUCTS
        and len(others) == 2
        and [first.name in parts, others[1].name in parts] == [False] * 2
    ):
        part, group = parts[others[0].name]
        product = expert_product(first, group, part, others[1])
        if product.type_string() == result.type_string():
            names[Variable(product)] = product.replace(name=result.name)
            return
    raise UnsupportedProgram(
        f"expert_parallel does not divide {operator}, which reads the weights of experts",
        found={"call": bsym.line},
        where=bsym.locations,
        hint="Experts are divided where rows, sorted by expert, are multiplied with the weights of all: "
        "torch.nn.functional.grouped_mm; with transformers, experts_implementation='grouped_mm'.",
    )


def _leaves_experts_apart(bsym: BoundSymbol, operator: str) -> bool:
    """Return whether a change of form leaves dimension 0 where it is."""
    a, *others = bsym.args
    rank = len(a.shape)
    if operator == "torch.transpose":
        return rank == 3 and 0 not in {dim % rank for dim in others}
    if operator == "prims.convert_element_type":
        return True
    order = others[0] if len(others) == 1 and isinstance(others[0], tuple | list) else others
    return bool(order) and order[0] == 0


expert_parallel = forms_of(ExpertParallelTransform, "expert parallelism")
