"""The judge must be steady: two copies of a model, run eagerly from one seed, agree bit for bit."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from comparison.inputs import buffers
from comparison.results import assert_same

from .zoo import MAKERS

Make = Callable[[int], tuple[nn.Module, tuple[Any, ...], dict[str, Any]]]

every_model = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())

# Models that behave differently while training: all that have dropout, batch normalisation or noise.
SAME_IN_BOTH_MODES = {"dlrm", "llama_like", "llama_like_cached", "lstm_translator", "recommender"}


def run(make: Make, training: bool) -> tuple[Any, dict[str, torch.Tensor], torch.Tensor]:
    """Result, buffers and generator state after one seeded eager call of a fresh copy."""
    model, args, kwargs = make(3)
    model.train(training)
    torch.manual_seed(17)
    with torch.no_grad():
        result = model(*args, **kwargs)
    return result, buffers(model), torch.get_rng_state()


@every_model
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_two_copies_agree_bit_for_bit(make: Make, training: bool) -> None:
    first, second = run(make, training), run(make, training)
    assert_same(second, first)


@pytest.mark.parametrize("name", MAKERS.keys())
def test_training_mode_changes_the_result_where_the_model_says_so(name: str) -> None:
    evaluated, trained = run(MAKERS[name], training=False), run(MAKERS[name], training=True)
    if name in SAME_IN_BOTH_MODES:
        assert_same(trained, evaluated)
    else:
        with pytest.raises(AssertionError, match="Tensor-likes are not equal"):
            assert_same(trained, evaluated)


@every_model
def test_parameters_are_few(make: Make) -> None:
    model, _, _ = make(0)
    assert 0 < sum(p.numel() for p in model.parameters()) < 250_000
