"""Two transforms, over the same processes or dimensions of a mesh, train as one process or are refused."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import thunder
from distributed.trainings import distance, gradients_of
from sweeping import one_in
from thunder.distributed import (
    FSDPType,
    column_parallel,
    context_parallel,
    ddp,
    fsdp,
    row_parallel,
    run_ranks,
)

MAKERS = {
    "ddp": lambda group: ddp(process_group=group),
    "fsdp": lambda group: fsdp(process_group=group, sharding_strategy=FSDPType.ZERO3),
    "columns": lambda group: column_parallel(target_modules=["up"], process_group=group),
    "rows": lambda group: row_parallel(target_modules=["down"], process_group=group),
    "sequences": lambda group: context_parallel(divide={"x": 1}, process_group=group),
}
#: where the groups of the two are: all processes or a dimension of a mesh
PLACES = {"the same": (None, None), "dimensions": ("first", "second"), "overlapping": ("first", None)}
#: pairs that have to train where each has its own dimension
TRAINED = {
    ("fsdp", "ddp"), ("ddp", "ddp"), ("columns", "rows"), ("rows", "columns"),
    *itertools.product(("columns", "rows"), ("ddp", "fsdp", "sequences")),
    *itertools.product(("sequences",), ("ddp", "fsdp", "columns", "rows")),
    ("ddp", "sequences"), ("fsdp", "sequences"),
}  # fmt: skip


class Network(nn.Module):
    """Two layers, of which parts of four processes are uneven."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down = nn.Linear(4, 6).double(), nn.Linear(6, 4).double()

    def forward(self, x):
        return self.down(torch.relu(self.up(x))).square().mean()


def part_of_batch(x, names, meshes):
    """Return what this process gets: its part of the batch where a transform replicates or shards."""
    for name, mesh in zip(names, meshes, strict=True):
        if name in ("ddp", "fsdp"):
            rank, size = (dist.get_rank(), 4) if mesh is None else (mesh.get_local_rank(), mesh.size())
            if len(x) % size == 0 and len(x) >= size:
                x = x.chunk(size)[rank]
    return x


def trained(names, places):
    """Return how far gradients are from those of one process, or the text of the refusal."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("first", "second"))
    meshes = [None if place is None else mesh[place] for place in places]
    x = torch.randn(4, 8, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    shares = "sequences" in names and None in places  # whose processes are called with the same arguments
    own = x if shares else part_of_batch(x, names, meshes)
    plain = Network()
    plain(x).backward()
    try:
        transforms = [MAKERS[name](mesh) for name, mesh in zip(names, meshes, strict=True)]
        compiled = thunder.jit(Network(), transforms=transforms)
        compiled(own).backward()
    except (thunder.InvalidArgument, thunder.UnsupportedProgram) as error:
        return str(error)
    return distance(gradients_of(compiled), gradients_of(plain))


@pytest.mark.parametrize(
    ("place", "names"), one_in(9, itertools.product(PLACES, itertools.product(MAKERS, repeat=2)))
)
def test_two_transforms_train_as_one_process_or_are_refused(place: str, names):
    results = run_ranks(lambda: trained(names, PLACES[place]), 4)
    if place == "dimensions" and names in TRAINED:
        assert max(results) < 1e-12
    for result in results:
        assert isinstance(result, str) or result < 1e-12
