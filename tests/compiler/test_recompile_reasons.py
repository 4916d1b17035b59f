"""The reason of a recompile names what differed, and not what did not."""

import pytest
import torch

import thunder

X = torch.ones(2, 3)


#: what changes before the second call → the reason
CHANGES = {
    "grad mode": (
        torch.no_grad(),
        "is_grad_enabled: expected {'is_grad_enabled': True}, found {'is_grad_enabled': False}",
    ),
    "autocast": (
        torch.autocast("cpu", torch.bfloat16),
        "is_any_autocast_enabled, autocast on cpu: "
        "expected {'is_any_autocast_enabled': False, 'autocast on cpu': False}, "
        "found {'is_any_autocast_enabled': True, 'autocast on cpu': True}",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_part_of_the_ambient_state_that_differs_is_named(name):
    mode, reason = CHANGES[name]
    compiled = thunder.jit(lambda x: x @ x.T)
    compiled(X)
    with mode:
        compiled(X)
    (found,) = thunder.compile_stats(compiled).last_recompile_reasons
    assert str(found) == f"state of torch's ambient state: {reason}"


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (X.double(), "expected 'dtype torch.float32', found 'dtype torch.float64'"),
        (X.clone().requires_grad_(), "expected 'requires_grad False', found 'requires_grad True'"),
        (torch.ones(3, 2).t(), "expected 'strides (3, 1)', found 'strides (1, 2)'"),
        (torch.ones(2, 3, 1), "expected 'shape (2, 3)', found 'shape (2, 3, 1)'"),
    ],
)
def test_the_metadata_of_a_tensor_that_differ_are_named(other, reason):
    compiled = thunder.jit(lambda x: x * 2)
    compiled(X)
    compiled(other)
    assert str(thunder.compile_stats(compiled).last_recompile_reasons[0]) == f"metadata of args[0]: {reason}"
