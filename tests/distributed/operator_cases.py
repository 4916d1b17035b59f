"""Collectives as operators, in two processes."""

from __future__ import annotations

import torch
import torch.distributed as dist

import thunder
from distributed.launching import case
from thunder.distributed import prims
from thunder_distributed.lost_processes import reporting, waiting


@case
def results_of_collectives():
    rank, group = dist.get_rank(), "0"
    x = torch.arange(8.0).view(4, 2) + 10 * rank

    def program(x):
        return (
            prims.all_gather(x, group),
            prims.all_gather(x, group, 1),
            prims.all_reduce(x, group),
            prims.all_reduce(x, group, "max"),
            prims.reduce_scatter(x, group),
            prims.reduce_scatter(x, group, "avg", 1),
            prims.broadcast(x, group, 1),
            prims.all_to_all(x, group),
        )

    return x, thunder.jit(program)(x)


@case
def futures():
    def program(x):
        future = prims.all_gather(x, "0", 0, True)
        doubled = x * 2
        return prims.wait(future), prims.all_reduce(doubled, "0", "sum", True).wait()

    function = thunder.jit(program, executors=["distributed"])
    result = function(torch.ones(2) * (dist.get_rank() + 1))
    return result, str(thunder.last_traces(function)[-1])


@case
def collectives_of_gloo_in_flight():
    """How many collectives of gloo have not arrived when the next begins, and what they return."""
    counts = []

    def gather(a, group, do_async):
        counts.append(torch._C._distributed_c10d._get_work_registry_size())
        return torch.ops._c10d_functional.all_gather_into_tensor(a, 2, group)

    issue, wait = reporting("gather", gather), waiting(torch.ops._c10d_functional.wait_tensor)
    futures = [issue(torch.full((1,), float(i)), "0", True) for i in range(4)]
    in_flight = torch._C._distributed_c10d._get_work_registry_size()
    return counts, in_flight, torch.stack([wait(future) for future in futures])


@case
def gradients_of_collectives():
    """The gradients of the sum of both processes' losses, against finite differences."""
    rank = dist.get_rank()
    torch.manual_seed(rank)
    weights = {"gather": torch.randn(8, 2), "reduce": torch.randn(4, 2), "scatter": torch.randn(2, 2)}

    def loss(x):
        g = prims.all_gather(x, "0")
        r = prims.all_reduce(x.sin(), "0")
        s = prims.reduce_scatter(x.cos(), "0", "avg")
        a = prims.all_to_all(x.exp(), "0")
        packed = prims.pack((x, x.tanh()))
        p, q = prims.unpack(packed, ((4, 2), (2, 4)))
        gathered = prims.pack_for_fsdp((x, x * x), 2)
        u, v = prims.unpack_for_fsdp(gathered, ((4, 2), (8, 1)), 2)
        total = (g * weights["gather"].to(x)).sum() + (r * r * weights["reduce"].to(x)).sum()
        total = total + (s * weights["scatter"].to(x)).sum() + (a * weights["reduce"].to(x)).sum()
        return total + (p * p).sum() + (q[0] * 2).sum() + (u.sin() * u).sum() + (v**3).sum()

    function = thunder.jit(loss)

    def both(x):
        total = function(x).detach().clone()
        dist.all_reduce(total)
        return total.item()

    x = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    function(x).backward()
    differences, step = [], 1e-5
    for process in range(2):
        for index in range(x.numel()):
            shift = torch.zeros(x.numel(), dtype=x.dtype)
            shift[index] = step if process == rank else 0.0
            with torch.no_grad():
                slope = (both(x + shift.view_as(x)) - both(x - shift.view_as(x))) / (2 * step)
            if process == rank:
                differences.append(abs(slope - x.grad.flatten()[index].item()))
    return max(differences)
