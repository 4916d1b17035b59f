"""Training: gradients of every model against eager's, and twenty steps of AdamW.

In float64, so that what differs is a fault and not rounding, but for models that compute in float32 by their
own word. Dropout draws eager's numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import thunder
from sweeping import one_in

from . import transformers_zoo
from .contract import SEED_OF_CALL, SEED_OF_MODEL, Made, tensors
from .litgpt_zoo import CONFIGS
from .litgpt_zoo import make as make_litgpt
from .zoo import MAKERS as ZOO

#: a cache that one step has written is part of the graph of that step, so eager cannot train with it either
NOT_TRAINED = ("llama_like_cached",)
#: of the library's families, which differ little here; one step of each is compared elsewhere
FROM_TRANSFORMERS = ("bert", "gpt2", "llama", "vit")
#: makes its timestep embedding in float32, whatever its parameters are
IN_FLOAT32 = ("unet_block",)

MAKERS: dict[str, Callable[[int], Made]] = {
    **{name: make for name, make in ZOO.items() if name not in NOT_TRAINED},
    **{name: transformers_zoo.MAKERS[name] for name in FROM_TRANSFORMERS},
    **{f"litgpt_{variant}": partial(make_litgpt, variant) for variant in CONFIGS},
}
STEPS = 20


@dataclass
class Training:
    """What a model did: gradients of its first step, losses of all, parameters after the last."""

    name: str
    gradients: dict[str, Tensor | None]
    losses: list[Tensor]
    parameters: dict[str, Tensor]


def in_double(value: Any) -> Any:
    """A floating-point tensor in float64; anything else as it is."""
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value


def loss_of(result: Any) -> Tensor:
    """A number that depends on every element of every result, each with a weight of its own."""
    floats = [t for t in tensors(result) if t.is_floating_point() and t.requires_grad]
    weighted = [(t * torch.linspace(-1, 1, t.numel(), dtype=t.dtype).view(t.shape)).sum() for t in floats]
    return torch.stack(weighted).sum()


def train(name: str, compiles: bool) -> Training:
    """Twenty steps of the model, compiled or not, from fixed seeds."""
    model, args, kwargs = MAKERS[name](SEED_OF_MODEL)
    model.train()
    if name not in IN_FLOAT32:
        model.double()
        args, kwargs = tuple(map(in_double, args)), {k: in_double(v) for k, v in kwargs.items()}
    call: nn.Module = thunder.jit(model) if compiles else model
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    training = Training(name, {}, [], {})
    for step in range(STEPS):
        torch.manual_seed(SEED_OF_CALL + step)
        loss = loss_of(call(*args, **kwargs))
        loss.backward()
        training.losses.append(loss.detach())
        if step == 0:
            training.gradients = {
                n: None if p.grad is None else p.grad.clone() for n, p in model.named_parameters()
            }
        optimiser.step()
        optimiser.zero_grad()
    training.parameters = {n: p.detach() for n, p in model.named_parameters()}
    if compiles:
        assert thunder.last_backward_traces(call), "the model was trained by a backward of thunder's"
        assert thunder.cache_misses(call) == 1, "every step but the first is a cache hit"
    return training


@pytest.fixture(scope="module", params=one_in(4, sorted(MAKERS)))
def trained(request: pytest.FixtureRequest) -> tuple[Training, Training]:
    """A model trained by thunder, and by eager."""
    return train(request.param, True), train(request.param, False)


def test_gradients_of_all_parameters_equal_eagers(trained: tuple[Training, Training]) -> None:
    ours, eager = (t.gradients for t in trained)
    rtol, atol = (1e-4, 1e-4) if trained[0].name in IN_FLOAT32 else (1e-9, 1e-11)
    assert list(ours) == list(eager)
    for name, expected in eager.items():
        actual = ours[name]
        if expected is None or actual is None:
            assert actual is expected, name
            continue
        assert actual.shape == expected.shape
        torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol, msg=lambda m, n=name: f"{n}: {m}")


def test_twenty_steps_of_adamw_equal_eagers(trained: tuple[Training, Training]) -> None:
    ours, eager = trained
    rtol, atol = (1e-3, 1e-3) if ours.name in IN_FLOAT32 else (1e-7, 1e-8)
    torch.testing.assert_close(torch.stack(ours.losses), torch.stack(eager.losses), rtol=rtol, atol=atol)
    for name, expected in eager.parameters.items():
        torch.testing.assert_close(
            ours.parameters[name], expected, rtol=10 * rtol, atol=10 * atol, msg=lambda m, n=name: f"{n}: {m}"
        )
