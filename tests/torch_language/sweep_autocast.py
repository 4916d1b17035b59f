"""All of torch's operator samples under autocast (`hatch run sweep autocast`, `autocast-cuda`).

Prints each entry with a difference from eager, and exits with 1 if there is one.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch

from thunder.core.errors import UnsupportedProgram
from torch_language import autocasting
from torch_language.database import op_db
from torch_language.samples import OF_PLACE, UNINITIALISED, name_of

#: for GPUs, sparse tensors, or written in Python on NumPy
SKIPPED = ("jiterator", "signal.", "masked.", "sparse.", "ops.")

#: entries of which the values are nobody's promise
VALUES_LEFT_OUT = UNINITIALISED | OF_PLACE | {"linalg.lstsq.grad_oriented"}

#: entries that differ from eager as much without autocast
EXCEPT = frozenset(
    {
        "_softmax_backward_data",  # without data torch says another dtype than its kernel has
        "native_group_norm",
        "native_layer_norm",
    }
)

#: dtypes that autocast casts, as the variants' descriptions end
CAST = ("bfloat16", "float16", "float32")

#: entries that refuse a bias of a dtype that autocast leaves alone, which torch takes by some of its kernels
BIASED = frozenset(
    {
        "nn.functional.conv_transpose1d",
        "nn.functional.conv_transpose2d",
        "nn.functional.conv3d",
        "nn.functional.linear",
    }
)

#: entries of which tensors without data do not show what torch's kernels do: they cast inside, or refuse
EXCEPT_ON_CUDA = frozenset({"linalg.pinv", "linalg.pinv.hermitian", "linalg.cross"})

Judge = Callable[[Any, Any, Any, torch.dtype], str | None]


def differences(op: Any, judge: Judge, limit: int | None) -> Iterator[str]:
    """What differs in the calls of an entry: variant, dtype of autocast, and what."""
    for args, kwargs in autocasting.calls(op, limit):
        for (what, a, k), dtype in product(
            autocasting.variants(args, kwargs), (torch.bfloat16, torch.float16)
        ):
            if name_of(op) in BIASED and what.startswith("tensor 2") and not what.endswith(CAST):
                continue
            try:
                found = judge(op.op, a, k, dtype)
            except UnsupportedProgram:  # the slice of the tests records which calls are refused
                continue
            if found is not None:
                yield f"{what}, autocast to {dtype}: {found}"


def main(kind: str = "cpu", limit: str = "") -> int:
    """Runs the sweep; the number of entries with a difference."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    failed = 0
    for op in op_db:
        name = name_of(op)
        if name.startswith(SKIPPED) or name in (EXCEPT if kind == "cpu" else EXCEPT | EXCEPT_ON_CUDA):
            continue

        def on_cpu(*call: Any, values: bool = name not in VALUES_LEFT_OUT) -> str | None:
            return autocasting.difference(*call, values=values)

        judge = on_cpu if kind == "cpu" else autocasting.difference_on_cuda
        found = list(dict.fromkeys(differences(op, judge, int(limit) if limit else None)))
        failed += bool(found)
        for line in found[:3]:
            print(f"{name}: {line}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(bool(main(*sys.argv[1:])))
