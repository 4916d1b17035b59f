"""Torch's operator samples, and what it means that thunder gets one right."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import torch

import thunder
from thunder.base.errors import OperatorError, UnsupportedProgram
from thunder.base.pytree import tree_map
from torch_language.database import seed_cpu
from torch_language.entries_without_rows import FALLBACK, INTERPRETED, WITHOUT_ROW
from torch_language.sample_traces import CLOSE, assert_same_metadata, assert_same_values, record, run

#: what the samples' own random functions seed torch with
SEED = 42

#: random numbers: rows draw as eager does; a row's decomposition may draw others
RANDOM = frozenset(
    {
        "bernoulli",
        "multinomial",
        "normal",
        "rand_like",
        "randn_like",
        "randn",
        "randint",
        "randint_like",
        "uniform",
    }
    | {
        "nn.functional.dropout",
        "nn.functional.dropout2d",
        "nn.functional.dropout3d",
        "nn.functional.alpha_dropout",
    }
    | {"nn.functional.feature_alpha_dropout", "nn.functional.scaled_dot_product_attention"}
    | {"nn.functional.multi_head_attention_forward"}
)

#: whose decomposition, in a low precision, rounds to another neighbour than eager does
DISCONTINUOUS = frozenset({"nn.functional.grid_sample"})

#: whose last bits depend on where torch finds their arguments in memory
OF_PLACE = frozenset({"linalg.lstsq"})

#: whose values are undefined
UNINITIALISED = frozenset(
    {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"}
)

#: for GPUs only; and written in Python that hands a proxy's dtype to torch without being interpreted
SKIPPED = ("jiterator", "signal.", "masked.")


def name_of(op: Any) -> str:
    """The name of an entry of the database, with its variant."""
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


def means(op: Any) -> str:
    """What runs an entry: a ``"row"``, torch itself by ``"fallback"``, its own code, which is
    ``"interpreted"``, or nothing: it is ``"refused"``.
    """
    if name_of(op) not in WITHOUT_ROW:
        return "row"
    if name_of(op) in INTERPRETED:
        return "interpreted"
    return "fallback" if name_of(op) in FALLBACK else "refused"


def samples(op: Any, dtype: torch.dtype, limit: int | None = None) -> Iterator[tuple[Any, Any]]:
    """``(args, kwargs)`` of the samples that eager takes on the cpu."""
    if not op.supports_dtype(dtype, "cpu"):
        return
    for sample in islice(op.sample_inputs("cpu", dtype, requires_grad=False), limit):
        args, kwargs = (sample.input, *sample.args), sample.kwargs
        try:
            op.op(*copied(args), **copied(kwargs))
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
            continue
        yield args, kwargs


def copied(tree: Any) -> Any:
    """A copy in which tensors keep their strides and one object stays one object."""
    seen: dict[int, torch.Tensor] = {}

    def copy(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        return seen.setdefault(id(x), x.detach().clone(memory_format=torch.preserve_format))

    return tree_map(copy, tree)


def check(op: Any, args: Any, kwargs: Any) -> None:
    """Asserts that a call gives what eager gives: metadata, values of the rows bit for bit, values of the
    primitives closely.
    """
    seed_cpu(SEED)
    expected = op.op(*copied(args), **copied(kwargs))
    if name_of(op) in INTERPRETED:
        # a fusion rounds in its own way
        program = thunder.jit(lambda *args, **kwargs: op.op(*args, **kwargs), executors=["torch"])
        assert_same_values(program(*copied(args), **copied(kwargs)), expected, exact=True)
        return
    for primitives in (False, True):
        trace, values, output = record(op.op, copied(args), copied(kwargs), decides=True)
        assert_same_metadata(output, expected)
        seed_cpu(SEED)
        result = run(trace, values, output, primitives=primitives)
        jumps = op.name in DISCONTINUOUS and isinstance(args[0], torch.Tensor) and args[0].dtype in CLOSE
        if op.name not in UNINITIALISED and not (primitives and (op.name in RANDOM or jumps)):
            assert_same_values(result, expected, exact=not primitives and op.name not in OF_PLACE)


def check_in_place(fn: Any, args: Any, kwargs: Any) -> bool:
    """Assert that an in-place call leaves in its first argument what eager leaves, and returns it.

    A call that changes more than values must be refused. Return False if eager raises for the call.
    """
    theirs = copied(args)
    seed_cpu(SEED)
    try:
        fn(*theirs, **copied(kwargs))
    except (RuntimeError, TypeError, IndexError):
        return False
    ours = copied(args)
    if (theirs[0].shape, theirs[0].stride()) != (args[0].shape, args[0].stride()):
        refusal = "changes the shape or the memory of a tensor in place|doesn't match the broadcast shape"
        with pytest.raises((OperatorError, UnsupportedProgram), match=refusal):
            record(fn, ours, copied(kwargs), decides=True)
        return True
    trace, values, output = record(fn, ours, copied(kwargs), decides=True)
    assert_same_metadata(output, theirs[0])
    assert output.name == next(name for name, t in values.items() if t is ours[0]), (
        "another tensor is returned"
    )
    seed_cpu(SEED)
    run(trace, values, output, primitives=True)
    assert_same_values(ours[0], theirs[0], exact=False)
    return True
