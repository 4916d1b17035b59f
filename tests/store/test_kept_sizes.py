"""Programs of symbolic sizes that are kept: what is read of them has the same facts, for all sizes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import thunder
from kept_programs import counts, running_what_is_kept
from store.kept_worlds import call, write
from sweeping import one_in
from symbolic.shape_programs import STEPS, random_program, random_shapes
from symbolic.shape_steps import STEPS as FURTHER
from symbolic.test_random_shape_programs import assert_as_eager_for_random_shapes
from thunder.core.entries import SizeFacts
from thunder_store.reasons import NotUsed
from thunder_store.sizes import read_sizes, write_sizes

PROGRAM = """
import json, os
import torch

def scores(x, y, n):
    z = torch.softmax(x @ y * n, -1)
    if z.shape[0] > 3:
        z = z + x.shape[1]
    return z[: x.shape[0] // 2], z.reshape(-1).sum() * (x.shape[0] + 2 * y.shape[1])

def call(jit):
    fn = jit(scores)
    def run():
        found = []
        for rows, factor in json.loads(os.environ["CALLS_OF_TEST"]):
            torch.manual_seed(rows)
            x = torch.randn(rows, 6, dtype=torch.float64, requires_grad=True)
            half, total = fn(x, torch.randn(6, 5, dtype=torch.float64), factor)
            total.backward()
            found += [half, total, x.grad]
        return found
    return run
"""


def test_a_second_process_finds_the_program_of_all_sizes(tmp_path: Path) -> None:
    write(tmp_path, {"program.py": PROGRAM})

    def run(*sizes: tuple[int, int]) -> Any:
        found = call(tmp_path, CALLS_OF_TEST=json.dumps(sizes))
        assert found.compiled == found.eager
        return found

    first = run((4, 3), (5, 3))
    assert first.kinds.count("kept") == 2, first.events
    again = run((7, 3), (9, 3), (4, 3), (100, 3))
    assert again.kinds.count("hit") == 1
    assert not {"kept", "not kept"} & set(again.kinds)
    assert "kept" in run((2, 3)).kinds, "two rows have no more than 3"


@pytest.mark.parametrize("seed", one_in(60, range(300), 7))
@pytest.mark.parametrize("steps", [STEPS, {**STEPS, **FURTHER}], ids=["shapes", "views and writes"])
def test_a_random_program_that_is_kept_computes_what_eager_computes(seed: int, steps: Any) -> None:
    before = counts.copy()
    with running_what_is_kept():
        successes = assert_as_eager_for_random_shapes(seed, steps, 8, parts=seed % 2 == 1)
    assert counts != before or not successes, "each program is kept, or there is a reason"


def sizes_of(seed: int) -> SizeFacts:
    """Return the sizes of a random program that was compiled for all of them."""
    rng = random.Random(seed)
    program, _ = random_program(rng, STEPS)
    compiled = thunder.jit(program, cache="symbolic values", executors=["torch"])
    compiled(*(torch.randn(shape, dtype=torch.float64) for shape in random_shapes(rng, 2, 2)))
    sizes = thunder.last_prologue_traces(compiled)[-1].interface.sizes
    assert isinstance(sizes, SizeFacts)
    return sizes


@pytest.mark.parametrize("seed", one_in(40, range(200)))
def test_facts_about_sizes_are_read_as_they_were_written(seed: int) -> None:
    sizes = sizes_of(seed)
    document = json.loads(json.dumps(write_sizes(sizes)))
    read = read_sizes(document)
    assert write_sizes(read) == document
    names = sizes.names.__getitem__
    assert [f.text(names) for f in read.checked()] == [f.text(names) for f in sizes.checked()]
    assert read.values() == sizes.values()
    for variable in range(len(sizes.names)):
        assert read.known(read.leaf(variable)) == sizes.known(sizes.leaf(variable))


def changed(name: str) -> Callable[[Any], Any]:
    def change(document: Any) -> Any:
        return {**document, "variables": [[name, *document["variables"][0][1:]], *document["variables"][1:]]}

    return change


#: what no document of sizes has, and which reason there is
DAMAGED = {
    "a name that is code": (changed("__import__('os')"), "does not name a size"),
    "one name twice": (lambda d: {**d, "variables": d["variables"] + d["variables"][:1]}, "one name"),
    "another relation": (lambda d: {**d, "facts": [["1", "or True", None, ""]]}, "not a relation"),
    "no expression": (lambda d: {**d, "facts": [["(", "==", None, ""]]}, "("),
    "a call": (lambda d: {**d, "facts": [["open('file')", "==", None, ""]]}, "'file'"),
    "another comparison": (lambda d: {**d, "facts": [["1", "or", "2.0", ""]]}, "not a relation"),
    "a comparison with a call": (lambda d: {**d, "facts": [["exit()", "<", "2.0", ""]]}, "exit"),
    "a division by 0": (lambda d: {**d, "facts": [["1 // 0", "==", None, ""]]}, "division by 0"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_document_of_sizes_is_refused(name: str) -> None:
    change, reason = DAMAGED[name]
    with pytest.raises((NotUsed, ValueError)) as raised:
        read_sizes(change(write_sizes(sizes_of(3))))
    assert reason in str(raised.value)


def test_a_kept_program_shows_its_traces_for_the_call_that_was_traced() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x[1:], x[:-1]]).sum(0) * x.shape[0]

    with running_what_is_kept():
        compiled = thunder.jit(f, cache="symbolic values", executors=["torch"])
        for rows in (5, 9, 4):
            x = torch.randn(rows, 3, requires_grad=True)
            compiled(x).sum().backward()
            (expected,) = torch.autograd.grad(f(x).sum(), x)
            torch.testing.assert_close(x.grad, expected)
    assert thunder.cache_misses(compiled) == 1
    assert "computation" in str(thunder.last_traces(compiled)[-1])
    assert thunder.explain(compiled).rows
    assert thunder.last_backward_traces(compiled)
