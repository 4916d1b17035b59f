"""``x[key]`` and ``x[key] = value``, against eager, with boolean masks too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from thunder.base.errors import OperatorError, UnsupportedOperator
from thunder.base.langctx import TORCH
from torch_language.sample_traces import assert_same_metadata, assert_same_values, record, run

X = torch.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5).float()
ROWS = torch.tensor([1, 0, -1])
COLUMN = torch.tensor([[0], [1]])

KEYS: list[Any] = [
    0,
    -1,
    slice(None),
    slice(1, 3),
    slice(-2, None, 2),
    slice(5, 1),
    None,
    ...,
    (),
    (0, 1, 2, 3),
    (1, ..., 2),
    (..., -1),
    (slice(None), None, 1, ..., None),
    (None, slice(1, None), slice(None, None, 2)),
    (..., slice(None, 2)),
    (slice(None), -1),
    (..., None, None),
    torch.tensor(1),
    ROWS % 2,
    [1, 0],
    [[0, 1], [1, 0]],
    (slice(None), ROWS),
    (slice(None), ROWS, ROWS),
    (ROWS % 2, slice(None), ROWS),
    (0, ROWS),
    (ROWS % 2, 0),
    (COLUMN, slice(1, 3), torch.tensor([0, 1, 3])),
    (None, ROWS % 2),
    (..., ROWS, None),
    (slice(None), [0, 2], slice(1, 3)),
    (slice(0, 1), ROWS, None, slice(None, None, 2)),
]


def raised_by(call: Callable[[], Any]) -> Exception | None:
    """What a call raises, or None."""
    try:
        call()
    except RuntimeError as error:
        return error
    return None


def shown(key: Any) -> str:
    return str(key).replace("\n", "")


@pytest.mark.parametrize("key", KEYS, ids=shown)
def test_getitem_gives_what_eager_gives(key: Any) -> None:
    for primitives in (False, True):
        trace, values, output = record(torch.Tensor.__getitem__, (X, key), {})
        assert_same_metadata(output, X[key])
        assert_same_values(run(trace, values, output, primitives=primitives), X[key], exact=True)


MASKS = [X > 50, (slice(None), X[0] > 5), (X[:, :, 0, 0] > 20, 1), (..., X[0, 0, 0] > 1), (X > 0) & False]


@pytest.mark.parametrize("key", [*MASKS, torch.tensor(True), (X[:, 0, 0, 0] > 0, ROWS[:1])], ids=shown)
def test_a_read_through_a_mask_takes_positions(key: Any) -> None:
    for primitives in (False, True):
        trace, values, output = record(torch.Tensor.__getitem__, (X, key), {}, decides=True)
        assert_same_metadata(output, X[key])
        assert_same_values(run(trace, values, output, primitives=primitives), X[key], exact=True)


@pytest.mark.parametrize("key", MASKS, ids=shown)
def test_a_write_of_one_value_for_each_element_goes_to_positions(key: Any) -> None:
    value, expected, ours = torch.rand(X[key].shape), X.clone(), X.clone()
    expected[key] = value
    trace, values, _ = record(torch.Tensor.__setitem__, (ours, key, value), {}, decides=True)
    run(trace, values, None, primitives=True)
    assert_same_values(ours, expected, exact=True)


@pytest.mark.parametrize("key", KEYS, ids=shown)
@pytest.mark.parametrize("kind", ["number", "same shape", "broadcast", "other dtype"])
def test_setitem_leaves_what_eager_leaves(key: Any, kind: str) -> None:
    part = X[key]
    value: Any = {
        "number": 7,
        "same shape": torch.rand(part.shape),
        "broadcast": torch.rand(part.shape[-1:]),
        "other dtype": torch.ones((1,) * min(1, part.dim()), dtype=torch.int64),
    }[kind]
    expected, ours = X.clone(), X.clone()
    refused = raised_by(lambda: expected.__setitem__(key, value))
    if refused is not None:
        with pytest.raises(OperatorError) as refusal:
            record(torch.Tensor.__setitem__, (ours, key, value), {})
        assert str(refusal.value).startswith(str(refused))
        return
    trace, values, _ = record(torch.Tensor.__setitem__, (ours, key, value), {})
    run(trace, values, None, primitives=True)
    assert_same_values(ours, expected, exact=True)


@pytest.mark.parametrize(
    ("mask", "value"),
    [
        (X > 10, 0.0),
        (X > 10, torch.tensor(3.0)),
        (X[0, :, :, 0] > 0, 1.5),
        (X[:, :, 0, 0] > 20, torch.rand(4, 5)),
        (X[:, :, 0, 0] > 20, torch.rand(5)),
    ],
)
def test_a_masked_write_of_a_value_that_broadcasts_is_a_choice(mask: torch.Tensor, value: Any) -> None:
    expected, ours = X.clone(), X.clone()
    if mask.dim() > 2 or mask.shape == (2, 3):
        expected[mask] = value
        key: Any = mask
    else:
        ours = expected = X[0].clone()
        expected = expected.clone()
        expected[mask] = value
        key = mask
    trace, values, _ = record(torch.Tensor.__setitem__, (ours, key, value), {})
    run(trace, values, None, primitives=True)
    assert_same_values(ours, expected, exact=True)


@pytest.mark.parametrize("key", [X > 0, (slice(None), X[0] > 0), torch.tensor(True)])
def test_reading_through_a_mask_is_refused_where_no_size_can_be_decided(key: Any) -> None:
    with pytest.raises(UnsupportedOperator, match="depends on data"):
        record(torch.Tensor.__getitem__, (X, key), {})


@pytest.mark.parametrize("name", ["nonzero", "unique", "masked_select", "argwhere"])
def test_functions_whose_shape_depends_on_data_are_refused_likewise(name: str) -> None:
    args = (X, X > 0) if name == "masked_select" else (X,)
    with pytest.raises(UnsupportedOperator, match=name):
        record(getattr(torch, name), args, {})


@pytest.mark.parametrize("key", [5, (0, 0, 0, 0, 0), slice(None, None, -1), 1.5])
def test_a_key_that_eager_refuses_is_refused_with_eagers_text(key: Any) -> None:
    with pytest.raises((IndexError, ValueError, TypeError)) as theirs:
        X[key]
    with pytest.raises(OperatorError) as ours:
        record(torch.Tensor.__getitem__, (X, key), {})
    assert str(ours.value).startswith(str(theirs.value))
    assert isinstance(ours.value, theirs.type)


def test_a_row_is_found_for_the_slot() -> None:
    assert TORCH.resolve(torch.Tensor.__getitem__) is not None


def off_diagonal() -> torch.Tensor:
    """A mask that a program computes of nothing, so that its values are known while it is traced."""
    return ~torch.eye(4, dtype=torch.bool)


MASKED: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda x: x[0, 0][off_diagonal()],
    lambda x: x[..., off_diagonal()],
    lambda x: x[..., None, off_diagonal(), None],
    lambda x: x[torch.ones(2, 3, dtype=torch.bool), ...],
    lambda x: x[:, :0][torch.zeros(2, 0, dtype=torch.bool)],
]


@pytest.mark.parametrize("read", MASKED)
def test_a_mask_of_several_dimensions_that_the_program_computes_of_nothing(read: Any) -> None:
    x = torch.randn(2, 3, 4, 4, requires_grad=True)
    expected, found = read(x), thunder.jit(read)(x)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    g = torch.randn_like(expected)
    torch.testing.assert_close(torch.autograd.grad(found, x, g), torch.autograd.grad(expected, x, g))


def test_a_write_through_a_mask_that_the_program_computes_of_nothing() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[..., off_diagonal()] = torch.arange(12.0)
        return y

    x = torch.randn(2, 4, 4)
    torch.testing.assert_close(thunder.jit(program)(x), program(x), rtol=0, atol=0)
