"""Numbers of sizes, arguments and data where Python needs their values: as keys, names, texts, indices."""

import pytest
import torch

import thunder
from sweeping import MARK, in_turn
from symbolic.number_consumers import CALLS, CONSUMERS, NUMBERS, Layers


@pytest.mark.parametrize(("consumer", "number"), in_turn(CONSUMERS, list(NUMBERS)))
@pytest.mark.parametrize("cache", ["automatic", pytest.param("symbolic values", marks=MARK)])
def test_a_number_is_what_it_is_in_eager(consumer, number, cache):
    def program_of(layers):
        return lambda x, k, mask: CONSUMERS[consumer](layers, NUMBERS[number](x, k, mask), x)

    program = program_of(Layers())
    compiled = thunder.jit(program_of(Layers()), cache=cache, recompile_limit=None, executors=["torch"])
    for length, k, chosen in CALLS:
        x, mask = torch.arange(float(length)), torch.arange(length) < chosen
        expected, actual = program(x, k, mask), compiled(x, k, mask)
        _assert_same(actual, expected)


def _assert_same(actual, expected):
    assert type(actual) is type(expected)
    if isinstance(expected, torch.Tensor):
        assert actual.dtype is expected.dtype
        assert torch.equal(actual, expected)
    elif isinstance(expected, list | tuple):
        assert len(actual) == len(expected)
        for a, e in zip(actual, expected, strict=True):
            _assert_same(a, e)
    elif isinstance(expected, dict):
        _assert_same(list(actual.items()), list(expected.items()))
    else:
        assert actual == expected
