"""Data, fully sharded data, tensor and pipeline parallelism, on process groups of `torch.distributed`."""

from thunder_distributed.checkpoint_series import CheckpointNotSaved, Checkpoints
from thunder_distributed.clipping import clip_grad_norm_
from thunder_distributed.communication import Communication, communication
from thunder_distributed.context_parallel import ContextParallelTransform, context_parallel
from thunder_distributed.disagreements import ProcessMissing, ProgramsDiffer, WeightsDiffer
from thunder_distributed.division.draws import DrawsDiffer
from thunder_distributed.expert_parallel import ExpertParallelTransform, expert_parallel
from thunder_distributed.file_digests import CheckpointCorrupted
from thunder_distributed.full_sharding import FSDPTransform, fsdp
from thunder_distributed.gradient_synchronization import skip_data_parallel_grad_sync
from thunder_distributed.layouts import DistParallelType, FSDPBucketingStrategy, FSDPType, Layout
from thunder_distributed.machines import Machine
from thunder_distributed.meshes.decoders import Decoder
from thunder_distributed.meshes.mesh_layouts import MeshLayout, Training
from thunder_distributed.meshes.search import Meshes, MeshEstimate, estimate_mesh, find_mesh
from thunder_distributed.mixtures import mixture
from thunder_distributed.networks import Level, Network
from thunder_distributed.parallel_plans import tensor_parallel
from thunder_distributed.pipelines.step import Pipeline, pipeline
from thunder_distributed.plans import DistributedPlan, LinkTraffic, plan
from thunder_distributed.process_groups import copy_default_process_group
from thunder_distributed.ranks import run_ranks
from thunder_distributed.replication import DDPTransform, ddp
from thunder_distributed.tensor_layouts import TensorLayout
from thunder_distributed.tensor_parallel import (
    ColumnParallelTransform,
    RowParallelTransform,
    column_parallel,
    row_parallel,
)
from thunder_distributed.training_state import load, save

__all__ = [
    "CheckpointCorrupted",
    "CheckpointNotSaved",
    "Checkpoints",
    "ColumnParallelTransform",
    "Communication",
    "ContextParallelTransform",
    "DDPTransform",
    "Decoder",
    "DistParallelType",
    "DistributedPlan",
    "DrawsDiffer",
    "ExpertParallelTransform",
    "FSDPBucketingStrategy",
    "FSDPTransform",
    "FSDPType",
    "Layout",
    "Level",
    "LinkTraffic",
    "Machine",
    "MeshEstimate",
    "MeshLayout",
    "Meshes",
    "Network",
    "Pipeline",
    "ProcessMissing",
    "ProgramsDiffer",
    "RowParallelTransform",
    "TensorLayout",
    "Training",
    "WeightsDiffer",
    "clip_grad_norm_",
    "column_parallel",
    "communication",
    "context_parallel",
    "copy_default_process_group",
    "ddp",
    "estimate_mesh",
    "expert_parallel",
    "find_mesh",
    "fsdp",
    "load",
    "mixture",
    "pipeline",
    "plan",
    "row_parallel",
    "run_ranks",
    "save",
    "skip_data_parallel_grad_sync",
    "tensor_parallel",
]
