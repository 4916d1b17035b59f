"""The conformance tests of transforms, for those of the packages here."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from torch import nn

import thunder
import thunder_distributed
from sweeping import in_turn
from thunder.distributed import ddp, fsdp
from thunder.plugins import get_manager
from thunder.testing import transform_conformance
from thunder.transforms.quantization import BitsAndBytesLinearQuant4bit, BitsAndBytesLinearQuant8bit
from thunder_te.inference import TEInference8BitTransform
from thunder_testing.transform_cases import PROGRAMS, Program
from thunder_transforms.constant_calls import ConstantFolding
from thunder_transforms.cpu_offloading import CPUOffloading
from thunder_transforms.extraction_only import ExtractionOnlyPrologueTransform
from thunder_transforms.lora import LORATransform
from thunder_transforms.non_finite import NonFiniteDetector
from thunder_transforms.prune_checks import PrunePrologueChecks


def restored(transform: Any) -> Any:
    """The reference of a transform that stores weights: the module with the weights that it restores."""

    def reference(module: nn.Module) -> Any:
        state = thunder.jit(module, transforms=[transform()]).original_state_dict()
        eager = copy.deepcopy(module)
        eager.load_state_dict(state)
        return lambda *args: eager.train(module.training)(*args)

    return reference


#: name → the arguments of its tests
TRANSFORMS: dict[str, dict[str, Any]] = {
    "folding": {"transform": ConstantFolding},
    "offloading": {"transform": CPUOffloading},
    "extraction": {"transform": ExtractionOnlyPrologueTransform},
    "lora": {"transform": lambda: LORATransform(r=2)},
    "lora of some layers": {"transform": lambda: LORATransform(r=2, trainable=("*bias",), merged=True)},
    "detector": {"transform": NonFiniteDetector},
    "pruning": {"transform": PrunePrologueChecks},
    "4 bits": {
        "transform": BitsAndBytesLinearQuant4bit,
        "reference": restored(BitsAndBytesLinearQuant4bit),
        "tolerance": (1e-2, 1e-2),
    },
    "8 bits": {
        "transform": BitsAndBytesLinearQuant8bit,
        "reference": restored(BitsAndBytesLinearQuant8bit),
        "tolerance": (5e-2, 5e-2),
    },
    "8 bits of inference": {
        "transform": TEInference8BitTransform,
        "reference": restored(TEInference8BitTransform),
        "tolerance": (1e-4, 1e-4),
    },
    "ddp": {"transform": ddp},
    "fsdp": {"transform": fsdp},
}


#: those that store weights in fewer bits, if these are not trained
STORES = {"4 bits", "8 bits", "8 bits of inference"}


def frozen(program: Program) -> Program:
    """The program with parameters that are not trained."""
    return Program(lambda: program.module().requires_grad_(False), program.arguments)


@pytest.fixture
def one_process(tmp_path: Path) -> Iterator[None]:
    """A group of this process alone."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        with get_manager().temporary(thunder_distributed, name="distributed-under-test"):
            yield
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(("transform", "program"), in_turn(TRANSFORMS, PROGRAMS, 2))
def test_a_transform_conforms(one_process: None, transform: str, program: str) -> None:
    name = f"frozen {program}" if transform in STORES else program
    programs = {f"frozen {program}": frozen(PROGRAMS[program])}
    for case in transform_conformance(**TRANSFORMS[transform], programs=programs):
        if case.name.endswith(f"-{name}"):
            try:
                case.run()
            except AssertionError as error:
                error.add_note(str(case))
                raise
