"""Every public function of torch that computes with tensors, and every attribute of tensors, with simple
arguments: a program gives what eager gives, or is refused by name.

The first argument is an intermediate with a view that lives on, so that in-place functions are seen through
it. What the arguments are is found by trying; entries of torch's sample database are tested with its samples
elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import torch

import thunder
from sweeping import one_in
from thunder.base.errors import SharpEdge, UnsupportedProgram
from torch_language.surface import Called, attribute, copies, found, names

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, about deprecated functions

_METADATA = "changes the shape or the memory of a tensor, or what autograd knows of it"
_TAKEN_OUT = "takes the data of a tensor out of the program"
_LAYOUT = "gives or takes a tensor that is not strided, or is quantized"
_OF_MEMORY = "asks for the memory of a tensor, of which a trace knows little"
_HISTORY = "asks for autograd's own record"
_OLD = "is a spelling of old, for which there is another"
_VIEW = "gives views, and has no row"
_OTHER = "is about symbolic sizes"


def _all(prefix: str, names: str, why: str) -> dict[str, str]:
    return {f"{prefix}.{name}": why for name in names.split()}


#: what is refused by name, and why
REFUSED: dict[str, str] = {
    **_all("torch.Tensor", "grad_dtype output_nr retains_grad volatile", _HISTORY),
    **_all("torch.Tensor", "slice_inverse", _LAYOUT),
    **_all("torch", "slice_inverse", _LAYOUT),
    **_all("torch.Tensor", "as_strided_ requires_grad_ resize_ set_", _METADATA),
    **_all("torch", "as_strided_", _METADATA),
    **_all("torch.Tensor", "is_pinned is_set_to is_shared storage_offset", _OF_MEMORY),
    **_all("torch", "cudnn_is_acceptable is_vulkan_available", _OF_MEMORY),
    **_all("torch.Tensor", "addcdiv addcdiv_ addcmul addcmul_", _OLD),
    **_all("torch", "addcdiv addcmul einsum", _OLD),
    **_all("torch", "sym_constrain_range sym_constrain_range_for_size", _OTHER),
    **_all(
        "torch.Tensor",
        "const_data_ptr data_ptr storage storage_type untyped_storage",
        _TAKEN_OUT,
    ),
    **_all("torch.Tensor", "unsafe_split_with_sizes", _VIEW),
    **_all("torch", "unsafe_split_with_sizes", _VIEW),
}

#: where the result is the argument itself in eager, and another tensor of the same memory here: whether it
#: is, depends on strides and marks, of which traces know nothing
OTHER_OBJECTS = frozenset(
    {"torch.Tensor.contiguous", "torch.Tensor.resolve_neg", "torch.resolve_neg", "torch.cartesian_prod"}
)

#: opaque calls, whose results are not strided or need such a tensor: see
#: tests/frontend/objects/computing_tensors.py
OPAQUE = frozenset(
    {
        *(f"torch.Tensor.{name}" for name in ["dequantize", "to_mkldnn", "to_sparse", "to_sparse_bsc"]),
        *(f"torch.Tensor.to_sparse_{name}" for name in ["bsr", "coo", "csc", "csr"]),
        *(f"torch.{name}" for name in ["dequantize", "quantize_per_tensor", "quantize_per_channel"]),
        *("torch.quantize_per_tensor_dynamic", "torch.sparse_coo_tensor", "torch.sparse_csc_tensor"),
        *("torch.sparse_csr_tensor", "torch.fbgemm_linear_quantize_weight"),
        "torch.fbgemm_pack_gemm_matrix_fp16",
    }
)

#: refused in a program that has written in place before: each is a program of its own
ALONE = frozenset({"torch.Tensor.numpy"})

#: whose values are undefined
UNINITIALISED = frozenset(
    {
        *("torch.empty", "torch.empty_like", "torch.empty_strided", "torch.empty_permuted"),
        *("torch.Tensor.new_empty", "torch.Tensor.new_empty_strided", "torch.Tensor.new"),
    }
)

_ZERO = "the gradient is zero everywhere: eager says that there is one"

#: whose results require grad in eager alone, or are refused where a gradient is needed
WITHOUT_GRADIENT: dict[str, str] = {
    **_all("torch.Tensor", "bernoulli_ cauchy_ copy_ exponential_ geometric_ log_normal_ normal_", _ZERO),
    **_all("torch.Tensor", "random_ uniform_ module_load", _ZERO),
    **_all("torch", "fill binomial rrelu", _ZERO),
    "torch.Tensor.grad_fn": f"None for a leaf, else refused as a result: {_HISTORY}",
}

SIZE = 16
NAMES = names()


def program(calls: list[Called]) -> Callable[..., Any]:
    """A function that makes all the calls, and returns what each gives and leaves."""

    def run(all_args: Any) -> Any:
        results = []
        for called, args in zip(calls, all_args, strict=True):
            first, view = args[0] if args else None, None
            if isinstance(first, torch.Tensor):
                first = first.clone()
                view = first[0]
                args = (first, *args[1:])
            result = called.call(*args)
            results.append((result, result is first, first, view, args))
        return results

    return run


def outcome(fn: Callable[..., Any], calls: list[Called], grad: bool) -> Any:
    """What the program returns for the arguments of its calls."""
    torch.manual_seed(0)
    all_args = [copies(called.args) for called in calls]
    for args in all_args if grad else ():
        if args and isinstance(args[0], torch.Tensor) and args[0].dtype.is_floating_point:
            args[0].requires_grad_()
    return fn(all_args)


def difference(name: str, ours: Any, theirs: Any) -> str | None:
    """Where the results of one call differ, or None."""
    if isinstance(ours, np.ndarray) and isinstance(theirs, np.ndarray):
        ours, theirs = torch.from_numpy(ours), torch.from_numpy(theirs)
    if isinstance(theirs, torch.Tensor):
        if not isinstance(ours, torch.Tensor):
            return f"{type(ours)}, not a tensor"
        for fact in ("dtype", "shape", "requires_grad", "layout", "device"):
            if getattr(ours, fact) != getattr(theirs, fact):
                return f"{fact} {getattr(ours, fact)}, not {getattr(theirs, fact)}"
        if ours.stride() != theirs.stride():
            return f"strides {ours.stride()}, not {theirs.stride()}"
        if name in UNINITIALISED:
            return None
        if theirs.dtype is torch.complex32:  # torch compares none
            ours, theirs = ours.to(torch.complex64), theirs.to(torch.complex64)
        same = torch.equal(ours, theirs) or torch.allclose(ours, theirs, rtol=1e-5, atol=1e-6, equal_nan=True)
        return None if same else f"{ours}, not {theirs}"
    if isinstance(theirs, tuple | list):
        if type(ours) is not type(theirs) or len(ours) != len(theirs):
            return f"{type(ours)} of {len(ours)}, not {type(theirs)} of {len(theirs)}"
        return next(filter(None, (difference(name, a, b) for a, b in zip(ours, theirs, strict=True))), None)
    return None if type(ours) is type(theirs) and ours == theirs else f"{ours!r}, not {theirs!r}"


def check(calls: list[Called], grad: bool) -> None:
    """Asserts that a program of these calls does what eager does; of those that eager takes."""
    taken = []
    for called in calls:
        try:
            outcome(program([called]), [called], grad)
        except Exception:  # eager does not take it: a write to what requires grad, a type without gradients
            continue
        taken.append(called)
    run = program(taken)
    theirs = outcome(run, taken, grad)
    try:
        ours = outcome(thunder.jit(run), taken, grad)
    except Exception:
        if len(taken) == 1:
            raise
        for called in taken:
            check([called], grad)
        raise
    for called, mine, other in zip(taken, ours, theirs, strict=True):
        if called.name in OTHER_OBJECTS:
            mine, other = (mine[0], *mine[2:]), (other[0], *other[2:])
        found = difference(called.name, mine, other)
        assert found is None, f"{called.name}: {found}"


def slice_of(start: int, left_out: Iterable[str]) -> list[Called]:
    """Some of the names, with arguments."""
    chosen = [name for name in NAMES[start : start + SIZE] if name not in {*left_out, *ALONE, *OPAQUE}]
    return [called for called in map(found, chosen) if called is not None]


@pytest.mark.parametrize("start", one_in(4, range(0, len(NAMES), SIZE)))
def test_a_public_name_does_what_eager_does(start: int) -> None:
    check(slice_of(start, REFUSED), grad=False)


@pytest.mark.parametrize("name", sorted(ALONE))
def test_a_name_in_a_program_of_its_own_does_what_eager_does(name: str) -> None:
    called = found(name)
    assert called is not None, "eager does not take it"
    check([called], grad=False)


@pytest.mark.parametrize("start", one_in(4, range(0, len(NAMES), SIZE), start=1))
def test_results_require_grad_where_eagers_do(start: int) -> None:
    check(slice_of(start, REFUSED | WITHOUT_GRADIENT), grad=True)


@pytest.mark.parametrize("name", REFUSED)
def test_every_refusal_is_typed_and_names_the_line(name: str) -> None:
    if attribute(name) is None:
        pytest.skip(f"torch {torch.__version__} has no {name}")
    called = found(name)
    assert called is not None, "eager does not take it"
    with pytest.raises((UnsupportedProgram, SharpEdge)) as error:
        outcome(thunder.jit(program([called])), [called], grad=False)
    assert "surface.py" in str(error.value)
    assert error.value.hint


def test_the_node_of_a_tensor_that_is_no_leaf_is_refused() -> None:
    called = found("torch.Tensor.grad_fn")
    assert called is not None
    with pytest.raises(UnsupportedProgram, match="returns or stores the grad_fn of a tensor") as error:
        outcome(thunder.jit(program([called])), [called], grad=True)
    assert error.value.hint
