"""Gradients of the torch language's operators against eager's, to second order.

A few samples of each operator run here; ``hatch run sweep gradients`` runs all of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import thunder.torch  # noqa: F401  (fills the language)
from recorded_refusals import refusals_as_recorded
from sweeping import one_in
from thunder.base.langctx import TORCH
from thunder.base.structural_ids import STRUCTURAL
from thunder.ops.operator import all_rows
from torch_language.database import op_db
from torch_language.gradients.differentiated_samples import (
    Sample,
    check_gradients,
    gradient_samples,
    has_second_order,
    in_place,
    is_judged,
)
from torch_language.samples import name_of

#: samples of an operator that run here: of each dtype, spread over all of them
SPREAD = {torch.float64: 2, torch.complex128: 1, torch.float32: 1}

ENTRIES = {name_of(op): op for op in op_db if is_judged(op)}
IN_PLACE = [
    name
    for name, op in ENTRIES.items()
    if op.supports_inplace_autograd
    and op.inplace_variant is not None
    and TORCH.resolve(op.inplace_variant) is not None
]

#: primitives through which a gradient is refused by name, and why
WITHOUT_RULE = {
    "torch.binomial": "torch has no derivative of it",
    "torch.heaviside": "torch has no derivative of it",
    "torch._sample_dirichlet": "torch has no derivative of it",
    "torch._standard_gamma_grad": "torch has no derivative of it",
    "ltorch.embedding_bag_backward": "torch does not differentiate it",
    "prims.add_unmodelled": "the autograd pass alone adds gradients of tensors that compute by themselves",
    "prims.copy_": "the autograd pass itself follows what is written",
    "prims.get_grad": "only in rules",
    "prims.get_grad_or_none": "only in rules",
    "prims.put_grad": "only in rules",
    "prims.record_backward": "only in rules, which differentiate the record that it gives",
    "prims.record_derivative": "only in rules, which differentiate the record that it gives",
    "prims.record_opaque": "only in rules, which differentiate the record that it gives",
    "prims.reentrant_gradient": "torch has no second derivative of a reentrant region",
    "prims.begin_backward": "gives no tensor",
    "prims.begin_objects": "gives no tensor",
    "prims.begin_region": "gives no tensor",
    "prims.run_region_again": "gives no tensor",
    "prims.set_backend_flag": "takes no tensor",
    "prims.set_grad_enabled": "takes no tensor",
    "prims.set_default_dtype": "takes no tensor",
    "prims.set_print_options": "takes no tensor",
    "prims.enter_inference_mode": "takes no tensor",
    "prims.leave_inference_mode": "takes no tensor",
    "prims.python_lines": "gives no tensor",
    "prims.pack_list": "only in epilogues",
    "prims.construct_tuple": "only in epilogues",
    "prims.dataclass_new": "only in epilogues",
    "prims.python_call": "gives no tensor",
    "prims.python_print": "gives no tensor",
    "prims.sink": "gives no tensor",
    "prims.unpack_trivial": "takes no tensor",
    "prims.unpack_sequence": "takes no tensor",
}


pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, about deprecated functions


def spread(name: str) -> Iterator[tuple[str, Sample, bool]]:
    """Yield samples at equal distances in the list of all: label, sample, whether to second order.

    The first of a dtype is differentiated twice.
    """
    for dtype, count in SPREAD.items():
        every = list(gradient_samples(ENTRIES[name], dtype))
        second = has_second_order(ENTRIES[name]) and dtype is not torch.float32
        step = max(1, -(-len(every) // count))
        yield from ((f"{dtype} {i}", every[i], second and i == 0) for i in range(0, len(every), step))


@pytest.mark.parametrize("name", one_in(4, ENTRIES))
def test_gradients_are_eagers_to_second_order(name: str) -> None:
    ran = 0
    with refusals_as_recorded("gradients", name) as refusals:
        for label, sample, second in spread(name):
            with refusals.of(label):
                ran += check_gradients(sample, second)
    if not ran and not refusals.by_sample:
        pytest.skip("eager differentiates none of these samples on the cpu")


@pytest.mark.parametrize("name", IN_PLACE)
def test_gradients_of_an_in_place_twin_are_eagers(name: str) -> None:
    ran = 0
    with refusals_as_recorded("gradients of in-place operators", name) as refusals:
        for label, sample, second in spread(name):
            if isinstance(sample.args[0], torch.Tensor):
                with refusals.of(label):
                    ran += check_gradients(in_place(sample), second)
    if not ran and not refusals.by_sample:
        pytest.skip("eager refuses all these samples in place")


def test_every_primitive_has_a_rule_or_no_gradient() -> None:
    """A primitive without rule must stand in the table, and nothing stands there in vain."""
    primitives = [row for row in all_rows() if row.meta is not None and row.module in ("prims", "ltorch")]
    undecided = {row.id for row in primitives if row.gradient is None and row.id not in STRUCTURAL}
    assert undecided == set(WITHOUT_RULE)
