"""`tensor_parallel`: the transforms of a plan that says of layers, by name, how each is divided."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

from torch import nn

from thunder.core.errors import InvalidArgument
from thunder.core.module import get_thunder_module

from .tensor_parallel import TensorParallel, column_parallel, row_parallel

__all__ = ["tensor_parallel"]

#: what plans call column_parallel
COLUMNS: Final = frozenset({"colwise", "colwise_rep", "colwise_gather_output"})
#: what they call row_parallel
ROWS: Final = frozenset({"rowwise", "rowwise_rep", "rowwise_split_input", "embedding_rowwise"})
#: what they say of layers with whole parameters: the program finds out itself which of them work on parts
WHOLE: Final = frozenset(
    {"replicate", "replicated_with_grad_allreduce", "sequence_parallel", "gather", "all_reduce"}
)


def tensor_parallel(
    model: Any, plan: Mapping[str, str] | None = None, process_group: Any = None, **arguments: Any
) -> list[TensorParallel]:
    """Return the transforms that divide the layers of a model by a plan.

    For example::

        thunder.jit(model, transforms=[*tensor_parallel(model), fsdp(process_group=mesh["dp"])])

    Args:
        model: the module, whose layers the plan names.
        plan: names of layers, with an asterisk for any text, and how each is divided: "colwise" or
            "rowwise", and the other styles of transformers that divide a layer so. A name may leave out the
            path of the base model. None: the `tp_plan` of a model of transformers.
        process_group: a ProcessGroup or one dimension of a DeviceMesh; None for the default group.
        arguments: `sequence_dim` of `row_parallel`; `device` and `broadcast_from` of both.

    Raises InvalidArgument for a model without a plan, for a style that is not known, and for a name that no
    layer has.
    """
    module = get_thunder_module(model)
    plan = _plan_of(module) if plan is None else plan
    names = [name for name, _ in module.named_modules(remove_duplicate=False) if name]
    columns: list[str] = []
    rows: list[str] = []
    for pattern, style in plan.items():
        if style in WHOLE:
            continue
        if style not in COLUMNS | ROWS:
            raise InvalidArgument(
                f"the plan divides {pattern} as {style!r}, which is not a style of tensor_parallel",
                found={"styles": ", ".join(sorted(COLUMNS | ROWS | WHOLE))},
                hint="Leave it out of the plan; expert_parallel divides the experts of a mixture.",
            )
        chosen = [n for n in names if fnmatchcase(n, pattern)] or [
            n for n in names if fnmatchcase(n, f"*.{pattern}")
        ]
        if not chosen:
            raise InvalidArgument(
                f"the plan names {pattern!r}, and the module has no such layer",
                hint="Names are those of named_modules(); * stands for any text: 'layers.*.up_proj'.",
            )
        (columns if style in COLUMNS else rows).extend(chosen)
    others = {name: value for name, value in arguments.items() if name != "sequence_dim"}
    transforms: list[Any] = []
    if columns:
        transforms.append(column_parallel(target_modules=columns, process_group=process_group, **others))
    if rows:
        transforms.append(row_parallel(target_modules=rows, process_group=process_group, **arguments))
    return transforms


def _plan_of(module: nn.Module) -> Mapping[str, str]:
    """Return the plan of a model of transformers: its own, and that of the configuration of its base."""
    config = getattr(module, "config", None)
    plan = {
        **(getattr(config, "base_model_tp_plan", None) or {}),
        **(getattr(module, "_tp_plan", None) or {}),
    }
    if not plan:
        raise InvalidArgument(
            f"{type(module).__name__} has no plan of tensor parallelism",
            hint='Pass one: tensor_parallel(model, {"*.up_proj": "colwise", "*.down_proj": "rowwise"}).',
        )
    return plan
