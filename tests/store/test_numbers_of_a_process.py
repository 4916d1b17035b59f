"""A program that depends on a number of its process is not kept, or only for an equal one."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import thunder
from thunder_store import ArtefactError
from thunder_store.artefacts import Artefact


class Thing:
    pass


THING = Thing()


def by_id(x: torch.Tensor) -> torch.Tensor:
    return x * (id(THING) % 13)


def by_id_of_builtins(x: torch.Tensor) -> torch.Tensor:
    return x * (builtins.id(THING) % 13)


def by_repr(x: torch.Tensor) -> torch.Tensor:
    return x * (int(repr(THING).split("0x")[1][:-1], 16) % 13)


def by_formatted_text(x: torch.Tensor) -> torch.Tensor:
    return x * (int(f"{THING}".split("0x")[1][:-1], 16) % 13)


def by_hash(x: torch.Tensor) -> torch.Tensor:
    return x * (hash("a text") % 13)


def by_method(x: torch.Tensor) -> torch.Tensor:
    return x * ("a text".__hash__() % 13)


def compiled(fn: Callable[..., Any]) -> Any:
    jitted = thunder.jit(fn, executors=["torch"])
    jitted(torch.ones(2))
    return jitted


@pytest.mark.parametrize("fn", [by_id, by_id_of_builtins, by_repr, by_formatted_text])
def test_a_program_that_reads_an_address_is_not_kept(fn: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="no program") as error:
        thunder.save(compiled(fn), tmp_path / "saved")
    assert "process: " in str(error.value)


@pytest.mark.parametrize("fn", [by_hash, by_method])
def test_a_program_that_reads_a_hash_is_for_its_seed(fn: Callable[..., Any], tmp_path: Path) -> None:
    thunder.save(compiled(fn), tmp_path / "saved")
    assert [program["hash"] is not None for program in Artefact(tmp_path / "saved").programs] == [True]
