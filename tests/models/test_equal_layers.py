"""Layers that are copied (Note [Equal modules]): the programs are those of models that are read whole."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import torch

import thunder
from frontend.equal_modules.test_equal_modules import texts_of
from sweeping import one_in
from thunder.base.errors import ThunderError
from thunder.frontend.equal_modules.equal_calls import EqualModules

from .shrunken import Built, NotBuilt, build, families


def compiled(built: Built, training: bool) -> list[str]:
    """Return the texts of a model's program, or the first line of what it raises."""
    jitted: Any = thunder.jit(built.model.train(training), executors=[])
    torch.manual_seed(0)
    numpy.random.seed(0)  # masks of audio are drawn by NumPy
    try:
        jitted(**built.arguments)
    except (ThunderError, ValueError) as error:  # those of the model itself too
        return [str(error).splitlines()[0]]
    return texts_of(jitted)


@pytest.mark.parametrize("family", one_in(120, families(), start=7))
def test_the_program_is_that_of_a_model_read_whole(family: str, monkeypatch: pytest.MonkeyPatch):
    try:
        built = build(family)
    except NotBuilt as error:
        pytest.skip(f"eager runs no such model: {error}")
    found = [compiled(built, training) for training in (False, True)]
    monkeypatch.setattr(EqualModules, "_may_copy", lambda self, module: False)
    assert found == [compiled(built, training) for training in (False, True)]
