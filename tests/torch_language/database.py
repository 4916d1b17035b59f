"""Torch's database of operators, whose samples cost what they compute.

Torch looks for a unittest on the stack when it makes samples, and reads the source of each frame for that; it
also seeds each kind of device before each sample, with a traceback where the device is absent. Samples are
the same without both, and ten times as quick.
"""

from __future__ import annotations

import random

import numpy
import torch
from torch.testing._internal import common_utils
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo import core

__all__ = ["op_db", "seed_cpu"]


def seed_cpu(seed: int = common_utils.SEED) -> None:
    """Seed what samples on a CPU draw from."""
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed)


for module in (common_utils, core):  # both have the function under its name
    setattr(module, "extract_test_fn", lambda: None)  # noqa: B010  (mypy knows no such name of theirs)
common_utils.set_rng_seed = seed_cpu
