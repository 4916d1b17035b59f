"""State dicts go through every stack of transforms and come back bit for bit, through files and processes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from new_processes import run_python
from transforms.stacks import (
    LOSSY,
    MATERIALISED,
    TRANSFORMS,
    assert_same,
    check,
    original,
    save,
    stacked,
    trained,
)


@st.composite
def stacks(draw: st.DrawFn) -> list[str]:
    """Return names of transforms in any order: at most one that stores weights otherwise."""
    storage = draw(st.sampled_from([None, *sorted(LOSSY)]))
    others = draw(st.sets(st.sampled_from([MATERIALISED, *sorted(TRANSFORMS.keys() - LOSSY)])))
    return draw(st.permutations(sorted({*others, *([storage] if storage else [])})))


@settings(deadline=None, max_examples=10)
@given(stack=stacks())
def test_a_state_comes_back_bit_for_bit(stack: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("state") / "saved"
    save(trained(stack), folder)
    check(stack, folder)


@settings(deadline=None, max_examples=6)
@given(stack=stacks().filter(lambda stack: not LOSSY.intersection(stack)))
def test_the_original_state_is_that_of_the_original_module(stack: list[str]) -> None:
    compiled = stacked(stack)
    assert_same(compiled.original_state_dict(), original().state_dict())
    changed = {name: t + 1 for name, t in original().state_dict().items()}
    compiled.load_original_state_dict(changed)
    assert_same(compiled.original_state_dict(), changed)


def test_another_process_loads_what_this_one_saved(tmp_path: Path) -> None:
    stack = ["lora", "nf4", MATERIALISED]
    folder = tmp_path / "-".join(stack)
    save(trained(stack), folder)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    child = run_python("-m", "transforms.stacks", str(folder), env=environment)
    assert child.returncode == 0, child.stderr


def test_a_difference_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "lora"
    save(trained(["lora"]), folder)
    state = torch.load(folder / "state.pt")
    state["hidden.weight.lora_b"][0, 0] += 1
    torch.save(state, folder / "state.pt")
    with pytest.raises(AssertionError, match=r"hidden\.weight\.lora_b"):
        check(["lora"], folder)
