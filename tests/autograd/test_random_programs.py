"""Random programs do what eager does, to the second derivative and the last shared byte; or are refused."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

import thunder
from autograd.random_programs import INPUTS, Writer, built
from comparison.derivatives import Run, compare, ran
from comparison.inputs import leaf
from recorded_refusals import Refusals, refusals_as_recorded
from sweeping import one_in

#: programs a test; each test has seeds of its own
PROGRAMS = 12


def leaves() -> list[torch.Tensor]:
    return [leaf(*shape, seed=i) for i, shape in enumerate(INPUTS.values())]


def intermediates() -> list[torch.Tensor]:
    return [x * 1.0 for x in leaves()]


def partly_frozen() -> list[torch.Tensor]:
    x, w, b, s = leaves()
    return [x.detach(), w, b.detach(), s]


def views_of_one_tensor() -> list[torch.Tensor]:
    base = leaf(12) * 1.0
    return [base[:6].view(2, 3), base[4:10].view(3, 2), base[1:4], base[2]]


KINDS = {
    "leaves": (leaves, False),
    "intermediates": (intermediates, True),
    "partly frozen": (partly_frozen, True),
    "views of one tensor": (views_of_one_tensor, False),
}


def claims_more(theirs: Run, ours: Run) -> bool:
    """A view that was made where gradients are off claims in eager to require grad if its base does, and
    nothing flows through it. Who claims what is compared where there are no such regions.
    """
    return theirs.facts != ours.facts


def eager_runs(fn: Any, make: Any) -> Run | None:
    """What eager does; None where it refuses the program."""
    try:
        run = ran(fn, make)
    except RuntimeError:
        return None
    return run if run.error is None else None


@pytest.mark.parametrize("policy", ["min-cut", "none"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", one_in(3, range(3)))
@pytest.mark.filterwarnings("ignore:Use of .* on expanded tensors is deprecated")
def test_random_programs_do_what_eager_does(kind: str, policy: str, block: int) -> None:
    make, in_place = KINDS[kind]
    judged = 0
    with refusals_as_recorded("random programs", f"{kind}, {policy}, {block}") as refusals:
        for number in range(PROGRAMS):
            seed = f"{kind} {policy} {block} {number}"
            draw = random.Random(seed)
            text = Writer(draw, in_place).program(draw.randint(3, 12))
            theirs = eager_runs(built(text, seed), make)
            if theirs is not None:
                try:
                    judged += is_as_eager(theirs, text, seed, policy, make, refusals)
                except Exception as error:
                    error.add_note(f"{seed}\n{text}")
                    raise
    assert judged >= PROGRAMS // 3, "too few of the programs were judged"


def is_as_eager(theirs: Run, text: str, seed: str, policy: str, make: Any, refusals: Refusals) -> bool:
    """Return whether the compiled program was compared with eager; False if it is refused."""
    try:
        ours = ran(thunder.jit(built(text, seed), rematerialization=policy), make)
    except (thunder.UnsupportedProgram, thunder.OperatorError) as refusal:
        refusals.add(seed.rpartition(" ")[2], refusal)
        return False
    if claims_more(theirs, ours) and "_grad" in text:
        return False
    compare(theirs, ours, "the call")
    return True
