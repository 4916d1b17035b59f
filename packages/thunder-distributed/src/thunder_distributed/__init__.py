"""Thunder on many processes: the plugin of the transforms and recipes of `thunder.distributed`.

Thunder imports this module when it looks for plugins; it imports nothing of torch.distributed.
"""

from importlib import import_module
from typing import Any

from thunder.plugins import ExecutorSpec, Lookaside, Option, TransformSpec, hookimpl

__all__ = [
    "thunder_commands",
    "thunder_executors",
    "thunder_lookasides",
    "thunder_mesh_planner",
    "thunder_options",
    "thunder_recipes",
    "thunder_transforms",
]


@hookimpl
def thunder_executors() -> list[ExecutorSpec]:
    """Declare the executor that has the collectives."""
    target = "thunder_distributed.collectives:ex"
    return [ExecutorSpec("distributed", target, description="collectives of torch.distributed")]


@hookimpl
def thunder_transforms() -> list[TransformSpec]:
    """Declare the transforms, which `thunder.transforms.<Name>` imports."""
    return [
        TransformSpec(
            "ContextParallelTransform",
            "thunder_distributed.context_parallel:ContextParallelTransform",
            description="context parallelism: each process has a part of the sequence",
        ),
        TransformSpec(
            "ColumnParallelTransform",
            "thunder_distributed.tensor_parallel:ColumnParallelTransform",
            description="tensor parallelism: each process computes columns of the results of layers",
        ),
        TransformSpec(
            "RowParallelTransform",
            "thunder_distributed.tensor_parallel:RowParallelTransform",
            description="tensor parallelism: each process computes terms of the sums of layers",
        ),
        TransformSpec(
            "DDPTransform",
            "thunder_distributed.replication:DDPTransform",
            description="data parallelism: gradients are averaged over processes",
        ),
        TransformSpec(
            "ExpertParallelTransform",
            "thunder_distributed.expert_parallel:ExpertParallelTransform",
            description="expert parallelism: each process has some of the experts of a mixture",
        ),
        TransformSpec(
            "FSDPTransform",
            "thunder_distributed.full_sharding:FSDPTransform",
            description="fully sharded data parallelism: each process has a part of each parameter",
        ),
    ]


@hookimpl
def thunder_options() -> list[Option]:
    """Declare the options of communication, and of what processes have in common."""
    machine: Any = import_module("thunder_distributed.machines").Machine
    return [
        Option(
            "overlap_collectives",
            int,
            1,
            "how many collectives of a kind are in flight while a program computes: a parameter is gathered "
            "so many gathers ahead, a gradient reduced so many reductions long; with 0 each is waited for at "
            "once",
        ),
        Option(
            "overlap_bytes",
            int | None,
            None,
            "the most bytes of parameters that are gathered before they are read; None for any number",
        ),
        Option(
            "overlap_machine",
            machine | str | None,
            None,
            "a thunder.distributed.Machine or the name of one that is known, such as 'h100': parameters are "
            "gathered as late as they arrive in time on it; None for as early as overlap_collectives allows",
        ),
        Option(
            "hang_timeout",
            float | None,
            60.0,
            "after how many seconds a process that does not answer, because it or its machine is stopped, is "
            "named in an error of the others, with gloo; None: after the timeout of the process group",
        ),
        Option(
            "same_program",
            bool,
            True,
            "whether processes that communicate run the same program, and are compared statement by "
            "statement when it comes first; False compares their collectives",
        ),
    ]


@hookimpl
def thunder_commands() -> list[str]:
    """Add the command `mesh`."""
    return ["thunder_distributed.meshes.command"]


@hookimpl
def thunder_lookasides() -> list[Lookaside]:
    """Provide what is traced in the place of torch's batch normalisation over processes."""
    norms = import_module("thunder_distributed.batch_norms")
    return [Lookaside(norms.torch.nn.SyncBatchNorm, norms.synchronized_forward)]


@hookimpl
def thunder_mesh_planner() -> Any:
    """Provide `thunder.distributed.plan` as what `thunder.plan` does with a mesh."""
    return import_module("thunder_distributed.plans").plan


@hookimpl
def thunder_recipes() -> dict[str, type[Any]]:
    """Provide the plugins of recipes "ddp" and "fsdp"."""
    recipes = import_module("thunder_distributed.recipe_plugins")
    return {"ddp": recipes.DDP, "fsdp": recipes.FSDP}
