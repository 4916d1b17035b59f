"""Functions under ``functools.lru_cache`` whose keys are sizes and numbers that differ from call to call."""

import random

import pytest
import torch

import thunder
from sweeping import one_in
from symbolic.cached_programs import ACTIONS, World, calls_of


def _called(world, run, call, values):
    action, n, k, f, chosen = call
    torch.manual_seed(7)
    ACTIONS[action](world, n)
    mask = torch.arange(n) < chosen
    result, table = run(values[:n].clone(), k, f, mask)
    if isinstance(table, torch.Tensor):
        table = table.clone()
    return result, table, torch.get_rng_state()


@pytest.mark.parametrize("seed", one_in(40, range(2000)))
def test_a_program_and_its_caches_do_what_they_do_in_eager(seed):
    rng = random.Random(seed)
    mode = rng.choice(("automatic", "automatic", "symbolic values"))
    worlds = World(random.Random(seed)), World(random.Random(seed))
    compiled = thunder.jit(worlds[1].program, cache=mode, recompile_limit=None)
    for call in calls_of(rng, 8):
        values = torch.arange(6.0)
        expected = _called(worlds[0], worlds[0].program, call, values)
        actual = _called(worlds[1], compiled, call, values)
        description = f"{worlds[0].description} {call}"
        torch.testing.assert_close(
            actual, expected, rtol=0, atol=0, msg=lambda text, d=description: f"{text} {d}"
        )
        assert worlds[1].state() == worlds[0].state(), description
