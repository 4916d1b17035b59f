"""Every property of an input tensor in which the next call may differ, under programs that read it: what
eager gives, or a refusal.
"""

from __future__ import annotations

import warnings

import pytest
import torch

import thunder
from comparison.errors import is_a
from recorded_refusals import refusals_as_recorded
from soundness.harness import ramp
from sweeping import in_turn


class Derived(torch.Tensor):
    pass


def inference():
    with torch.inference_mode():
        return ramp(2, 3)


def tagged():
    t = ramp(2, 3)
    t.tag = 3
    return t


def with_grad():
    t = ramp(2, 3).requires_grad_()
    t.grad = ramp(2, 3)
    return t


def complex_ramp():
    return torch.complex(ramp(2, 3), ramp(2, 3))


VARIANTS = {
    "dense": lambda: ramp(2, 3),
    "requires grad": lambda: ramp(2, 3).requires_grad_(),
    "not a leaf": lambda: ramp(2, 3).requires_grad_() * 1,
    "with a gradient": with_grad,
    "parameter": lambda: torch.nn.Parameter(ramp(2, 3)),
    "frozen parameter": lambda: torch.nn.Parameter(ramp(2, 3), requires_grad=False),
    "buffer": lambda: torch.nn.Buffer(ramp(2, 3)),
    "subclass": lambda: ramp(2, 3).as_subclass(Derived),
    "inference": inference,
    "csr": lambda: ramp(2, 3).to_sparse_csr(),
    "csc": lambda: ramp(2, 3).to_sparse_csc(),
    "coo": lambda: ramp(2, 3).to_sparse(),
    "mkldnn": lambda: ramp(2, 3).to_mkldnn(),
    "quantized": lambda: torch.quantize_per_tensor(ramp(2, 3), 0.1, 0, torch.qint8),
    "nested": lambda: torch.nested.nested_tensor([ramp(3), ramp(3)]),
    "jagged": lambda: torch.nested.nested_tensor([ramp(3), ramp(3)], layout=torch.jagged),
    "meta": lambda: ramp(2, 3).to("meta"),
    "transposed": lambda: ramp(2, 3).T.contiguous().T,
    "with an offset": lambda: ramp(7)[1:].reshape(2, 3),
    "expanded": lambda: ramp(3).expand(2, 3),
    "zero strides": lambda: ramp().expand(2, 3),
    "float64": lambda: ramp(2, 3).double(),
    "int64": lambda: ramp(2, 3).long(),
    "bool": lambda: ramp(2, 3).bool(),
    "complex": complex_ramp,
    "conjugate": lambda: complex_ramp().conj(),
    "negative": lambda: complex_ramp().conj().imag,
    "tagged": tagged,
    "empty": lambda: torch.empty(0, 3),
    "one row": lambda: ramp(1, 3),
    "three dimensions": lambda: ramp(1, 2, 3),
    "scalar": lambda: ramp(),
    "a number": lambda: 2.0,
    "none": lambda: None,
}


def pick(question):
    return lambda x: x * (2 if question(x) else 3)


PROGRAMS = {
    "product": lambda x: x * 2,
    "itself": lambda x: (x,),
    "sum": lambda x: x.sum(),
    "constant": lambda x: torch.ones(3),
    "length": lambda x: x * x.shape[0],
    "in place": lambda x: x.mul_(2),
    "is_leaf": pick(lambda x: x.is_leaf),
    "requires_grad": pick(lambda x: x.requires_grad),
    "grad": pick(lambda x: x.grad is None),
    "grad_fn": pick(lambda x: x.grad_fn is None),
    "tag": pick(lambda x: hasattr(x, "tag")),
    "type": pick(lambda x: type(x) is torch.Tensor),
    "isinstance": pick(lambda x: isinstance(x, torch.nn.Parameter)),
    "layout": pick(lambda x: x.layout is torch.strided),
    "contiguous": pick(lambda x: x.is_contiguous()),
    "offset": lambda x: x * x.storage_offset(),
    "stride": lambda x: x * x.stride(0),
    "conj": pick(lambda x: x.is_conj()),
    "neg": pick(lambda x: x.is_neg()),
    "inference": pick(lambda x: x.is_inference()),
    "nested": pick(lambda x: x.is_nested),
    "sparse": pick(lambda x: x.is_sparse),
    "view": pick(lambda x: x._base is None),
    "version": lambda x: x * x._version,
    "dtype": pick(lambda x: x.is_floating_point()),
    "device": pick(lambda x: x.is_cpu),
}


def description(x):
    """Everything of a result that eager and the compiled program must have in common."""
    if isinstance(x, (tuple, list)):
        return tuple(map(description, x))
    if not isinstance(x, torch.Tensor):
        return (type(x), x)
    if x.layout is not torch.strided or x.is_nested:
        return (type(x), x.layout)
    marks = x.is_conj(), x.is_neg(), x.is_inference(), x.requires_grad, x.is_leaf
    values = None if x.is_meta else x.detach().resolve_conj().resolve_neg().tolist()
    return (type(x), x.dtype, tuple(x.shape), x.stride(), *marks, values)


def outcome(f, x):
    try:
        return description((f(x), x)), None
    except Exception as error:
        return None, error


@pytest.mark.parametrize(("name", "first"), in_turn(PROGRAMS, ["dense", "parameter"]))
@pytest.mark.filterwarnings("ignore")
def test_the_next_input_may_be_any_tensor(name, first):
    program, wrong = PROGRAMS[name], []
    compiled = thunder.jit(program, recompile_limit=None)
    outcome(compiled, VARIANTS[first]())
    with refusals_as_recorded("input tensors", f"{name} after {first}") as refusals:
        for variant, make in VARIANTS.items():
            (expected, error), (found, problem) = outcome(program, make()), outcome(compiled, make())
            if is_a(problem, "UnsupportedProgram"):
                refusals.add(variant, problem)
            elif error is not None and is_a(problem, type(error).__name__):
                continue
            elif problem is not None or error is not None or expected != found:
                wrong.append(f"{variant}: {problem or found}, eager {error or expected}")
    assert not wrong, "\n".join(wrong)


def test_a_nested_tensor_after_a_dense_one_is_another_program():
    compiled = thunder.jit(lambda x: x * 2)
    compiled(ramp(2, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nested = VARIANTS["nested"]()
    for part in compiled(nested).unbind():
        assert torch.equal(part, ramp(3) * 2)
