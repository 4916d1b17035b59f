"""With filled caches a process imports neither TorchInductor nor TorchDynamo, whatever is between regions."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from new_processes import run_python

PROGRAMS = """
import json, random, sys
import torch, thunder, thunder_inductor
from torch import Tensor
from thunder.plugins import get_manager

FUSED = [torch.sin, torch.tanh, lambda x: x * 2 + 1, lambda x: x - torch.sigmoid(x)]
VIEWS = [lambda x: x.mT, lambda x: x[1:], lambda x: x.unsqueeze(1), lambda x: x[:, None].expand(-1, 3, -1)]
ALONE = [
    lambda x, w: x @ w[: x.shape[-1]],
    lambda x, w: torch.cat((x, x), -1)[:, ::2].mT,
    lambda x, w: x[:, :0].sum() + x,
    lambda x, w: x.mT.mean(-1, keepdim=True) + x.mT,
    lambda x, w: torch.neg(x).mT,
    lambda x, w: x.amax(0) + x.mT.amin(0)[:, None],
]

def program(seed: int):
    choice = random.Random(seed)
    steps = choice.sample(ALONE, 4)
    fused = [[choice.choice(FUSED) for _ in range(3)] for _ in steps]
    views = [choice.choice(VIEWS) for _ in steps]

    def run(x: Tensor, w: Tensor) -> list[Tensor]:
        results = []
        for step, functions, view in zip(steps, fused, views):
            x = step(x, w)
            results.append(view(x))
            for function in functions:
                x = function(x) + function(results[-1].mean())
        return [*results, x]

    return run

def leaves() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return tuple(
        torch.randn(6, 6, dtype=torch.float64, generator=generator).requires_grad_() for _ in range(2)
    )

def step(function, trains: bool) -> list[Tensor]:
    x, w = leaves()
    with torch.set_grad_enabled(trains):
        results = function(x, w)
    if not trains:
        return results
    sum(r.mean() for r in results).backward()
    return [r for r in (*results, x.grad, w.grad) if r is not None]

def names() -> set[str]:
    return {name for name in sys.modules if name.partition(".")[0] == "sympy" or name.startswith(SLOW)}

SLOW = ("torch._dynamo", "torch._inductor", "torch._functorch", "torch.fx.experimental.symbolic_shapes")
programs = [(program(seed), trains) for seed in range(1) for trains in (False, True)]
expected = [step(*each) for each in programs]
before, regions, results = names(), 0, []
with get_manager().temporary(thunder_inductor, name="inductor-under-test"):
    for function, trains in programs:
        compiled = thunder.jit(function, inductor_mode="pointwise")
        results.append(step(compiled, trains))
        regions += sum(b.sym.is_fusion for b in thunder.last_traces(compiled)[-1].bound_symbols)
imported = sorted(names() - before)  # torch.testing imports some of them
torch.testing.assert_close(results, expected)
assert [[r.stride() for r in rs] for rs in results] == [[r.stride() for r in rs] for rs in expected]
print(json.dumps([regions, imported]))
"""


def test_a_later_process_imports_no_compiler_for_the_strides_between_regions(tmp_path: Path) -> None:
    environment = os.environ | {"THUNDER_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    runs = [run_python("-c", PROGRAMS, env=environment, check=True) for _ in range(2)]
    (regions, first), (again, later) = (json.loads(done.stdout) for done in runs)
    assert regions == again > 3
    assert {"sympy", "torch._dynamo", "torch._inductor"} <= {*first}
    assert later == []
