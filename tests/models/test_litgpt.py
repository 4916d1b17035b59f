"""litgpt's `GPT`, compiled unmodified, whole sequences and token by token with a cache."""

from functools import partial

import pytest
import torch

import thunder
from comparison.inputs import buffers
from comparison.results import assert_same
from sweeping import one_in

from . import litgpt_zoo
from .contract import Case, ModelContract, Session, modes, run_session

CASES: list[Case] = [
    *(case for name in litgpt_zoo.CONFIGS for case in modes(name, partial(litgpt_zoo.make, name))),
    *(
        Case(name=f"{name}-cached", make=partial(litgpt_zoo.make_with_cache, name), training=False)
        for name in litgpt_zoo.CACHED
    ),
]


@pytest.fixture(scope="module", params=CASES, ids=str)
def session(request: pytest.FixtureRequest) -> Session:
    """The calls that all properties of one model are read from."""
    return run_session(request.param)


class TestLitGPT(ModelContract):
    """Eight configurations, four of them also with a cache of keys and values."""


@pytest.mark.parametrize("variant", litgpt_zoo.CACHED)
def test_decoding_token_by_token_compiles_twice_and_fills_the_cache_as_eager(variant: str) -> None:
    eager, (prompt, positions), _ = litgpt_zoo.make_with_cache(variant, 5)
    twin, _, _ = litgpt_zoo.make_with_cache(variant, 5)
    compiled = thunder.jit(twin.eval())
    eager.eval()
    tokens = prompt
    with torch.no_grad():
        for _ in range(4):
            expected = eager(tokens, positions)
            assert_same(compiled(tokens, positions), expected, path=f"logits at {positions.tolist()}")
            assert_same(buffers(twin), buffers(eager), path=f"cache at {positions.tolist()}")
            tokens = expected[:, -1:].argmax(dim=-1)
            positions = positions[-1:] + 1
    assert (thunder.cache_misses(compiled), thunder.cache_hits(compiled)) == (2, 2)


@pytest.mark.parametrize("variant", one_in(4, litgpt_zoo.CACHED, start=1))
def test_prompts_of_other_lengths_share_a_program_and_single_tokens_another(variant: str) -> None:
    """One program for the first prompt, one for single tokens, and one for all other lengths."""
    eager, (_, _), _ = litgpt_zoo.make_with_cache(variant, 5)
    ours, _, _ = litgpt_zoo.make_with_cache(variant, 5)
    compiled = thunder.jit(ours.eval(), executors=["torch"])
    eager.eval()
    for shortened in (False, True):  # with and without the number of positions in use
        with torch.no_grad():
            for length in (6, 9, 4, 7):
                tokens, positions = torch.randint(0, 64, (2, length)), torch.arange(length)
                for _ in range(4):
                    options = {"input_pos_maxp1": int(positions[-1]) + 1} if shortened else {}
                    expected = eager(tokens, input_pos=positions, **options)
                    assert_same(compiled(tokens, input_pos=positions, **options), expected, path="logits")
                    tokens, positions = expected[:, -1:].argmax(dim=-1), positions[-1:] + 1
        assert_same(buffers(ours), buffers(eager), path="cache")
        assert thunder.cache_misses(compiled) == (6 if shortened else 3)


def test_routing_whose_shapes_depend_on_the_data_is_compiled_for_its_sizes() -> None:
    model, (tokens,), _ = litgpt_zoo.make_mixture_of_experts(5)
    compiled = thunder.jit(model)
    with torch.no_grad():
        for batch in (tokens, tokens * 2 % 64, tokens):
            assert_same(compiled(batch), model(batch), path="logits")
    assert (thunder.cache_misses(compiled), thunder.cache_hits(compiled)) == (2, 1)
