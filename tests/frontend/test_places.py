"""Each cell of the table of places in `docs/programs.md` is true: as eager, refused, or run as it is."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import warnings
from pathlib import Path

import pytest
import torch

import thunder
from frontend.effects_in_places import BODIES, PARTS, reset, set_state, state
from sweeping import MARK
from thunder.frontend import places
from thunder.frontend.custom_gradients.backward_policy import BackwardPolicy
from thunder.frontend.places import Outcome, Place
from thunder.frontend.session_rules import session_rules
from thunder.interpreter.policy import Policy
from thunder.plugins import get_manager

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "programs.md").read_text(encoding="utf-8")
TOOL = runpy.run_path(str(ROOT / "tools" / "place_table.py"))


def _cells():
    """Return the outcomes of the printed table, by the name of the effect and the place."""
    _, _, *rows = PAGE.partition(TOOL["BEGIN"])[2].partition(TOOL["END"])[0].splitlines()
    cells = {}
    for row in rows:
        name, *outcomes = (cell.strip() for cell in row.strip("|").split("|"))
        cells.update({(name, p): Outcome(o) for p, o in zip(PARTS, outcomes, strict=True)})
    return cells


CELLS = _cells()


def _run(program):
    """Return everything that a run shows; the state changes between it and its backward."""
    reset()
    x = torch.arange(1.0, 10.0, dtype=torch.float64).reshape(3, 3).requires_grad_()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = program(x)
        set_state(3.0)
        if y.requires_grad:
            y.sum().backward()
    gradient = None if x.grad is None else x.grad.tolist()
    return y.detach().tolist(), y.requires_grad, gradient, printed.getvalue(), state()


#: texts of refusals that do not say where the program is
_OTHER_TEXTS = r"|depends on|asks for data|implemented in C|grad_fn|numpy"

#: the cells of which eager has no result: it raises
RAISES = {
    *((effect, Place.MAPPED) for effect in (places.DECIDES, places.CALLS_PACKAGE, places.MAKES_ARRAY)),
    *((effect, Place.MAPPED) for effect in (places.COMPUTES_GRADIENTS, places.CHECKPOINTS)),
    *((effect, Place.MAPPED) for effect in (places.MAKES_TEXT, places.OPENS_DUAL_LEVEL)),
    *((effect, Place.DIFFERENTIATED) for effect in (places.CALLS_PACKAGE, places.MAKES_ARRAY)),
    *((effect, Place.DIFFERENTIATED) for effect in (places.COMPUTES_GRADIENTS, places.CHECKPOINTS)),
    (places.COMPUTES_GRADIENTS, Place.INFERENCE),
    *((places.OPENS_DUAL_LEVEL, place) for place in (Place.BACKWARD, Place.FORWARD, Place.INFERENCE)),
}
_OF_EAGER = "vmap|functorch|torch.func|Batching rule|data pointer|requires? grad|NoneType|written-to"
_ALL = list(PARTS)
#: effects of whose program the table says nothing but in one place
_ONLY = {places.REBINDS_ARGUMENT: [Place.FORWARD]}


def _rotated(index):
    """Return the places, beginning with another one for each effect, which a default run has."""
    start = index % len(_ALL)
    return _ALL[start:] + _ALL[:start]


@pytest.mark.parametrize(
    ("effect", "place"),
    [
        pytest.param(effect, place, id=f"{effect.name}-{place.name}", marks=[] if i == 0 else MARK)
        for number, effect in enumerate(BODIES)
        for i, place in enumerate(_ONLY.get(effect, _rotated(number)))
    ],
)
def test_an_effect_in_a_place_is_what_the_table_says(effect, place):
    outcome, program = CELLS[effect.name, place], PARTS[place](BODIES[effect])
    compiled = thunder.jit(program)
    if (effect, place) in RAISES:
        with pytest.raises((RuntimeError, AttributeError), match=_OF_EAGER):
            _run(program)
        return
    expected = _run(program)
    if outcome is Outcome.REFUSED:
        with pytest.raises(thunder.UnsupportedProgram, match=re.escape(place.value) + _OTHER_TEXTS):
            _run(compiled)
        return
    assert _run(compiled) == expected
    if place is Place.BACKWARD:
        has_call = any("begin_backward" in str(trace) for trace in thunder.last_traces(compiled))
        assert has_call == (outcome is Outcome.ENDS)


#: methods by which nothing is read or written that may change, or that call others which are looked at, or
#: that note a fact or a write
_NOT_LOOKED_AT = {
    *("as_caught", "bypass_cache", "call_native", "call_native_from", "class_of", "copied_text"),
    *("delete_global", "globals_of", "import_module", "interprets_annotations", "is_native", "is_same"),
    *("namespace", "next", "read_items", "read_text", "referent"),
    "store_global",
    "truth",  # of a tensor it is a decision, which has an effect of its own
}


def test_the_policy_of_backwards_looks_at_each_read_and_write():
    methods = {name for name, value in vars(Policy).items() if callable(value)}
    assert methods - vars(BackwardPolicy).keys() == _NOT_LOOKED_AT


def test_each_rule_says_what_it_does():
    table = session_rules(get_manager()).lookasides
    assert {*table.keys} == {*table.effects}
    assert set(table.effects.values()) <= set(places.EFFECTS)


def test_each_effect_has_a_program():
    assert {*BODIES, places.OTHER} == {*places.EFFECTS}


def test_the_page_has_the_table():
    """`python tools/place_table.py` writes it."""
    assert TOOL["page"]() == PAGE
