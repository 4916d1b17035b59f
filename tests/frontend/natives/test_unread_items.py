"""Items of containers that cannot be guarded: refused where the program looks into them, not before."""

import numpy as np
import pytest
import torch

import thunder


def _settings():
    return {"view": memoryview(b"ab")[1:], "count": iter([1]), "table": np.array([None, 1]), "scale": 3}


def test_item_that_is_not_read_refuses_nothing():
    settings = _settings()
    compiled = thunder.jit(lambda x: x * settings["scale"])
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0))
    settings["scale"] = 5
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 5.0))


def test_item_is_passed_on_and_its_type_is_a_fact():
    settings = _settings()

    def program(x):
        others = {**settings, "again": settings["view"]}
        if isinstance(others["table"], int):
            return x * others["table"], others["again"]
        return x, list(others.values())[-1]

    compiled = thunder.jit(program)
    assert compiled(torch.ones(2))[1] is settings["view"]
    settings["table"] = 7
    assert torch.equal(compiled(torch.ones(2))[0], torch.full((2,), 7.0))
    settings["view"] = memoryview(b"ab")[1:]
    assert compiled(torch.ones(2))[1] is settings["view"]


@pytest.mark.parametrize(
    "look",
    [
        lambda s: f"{s['count']}",
        lambda s: str([[[s["count"]]]]),
        lambda s: s["table"] + 1,
        lambda s: s["table"].sum(),
        lambda s: len(s["table"]),
        lambda s: list(map(str, s.values())),
        lambda s: any(v for v in s.values()),
    ],
)
def test_program_that_looks_into_an_item_is_refused_there(look):
    settings = _settings()
    compiled = thunder.jit(lambda x: (x, look(settings)))
    with pytest.raises(thunder.core.errors.UnsupportedProgram, match=r"settings\['\w+'\] is an? "):
        compiled(torch.ones(2))
    assert list(settings["count"]) == [1]
