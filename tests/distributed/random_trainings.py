"""Random trainings of random modules on many processes, compared with one process in float64."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import thunder
from distributed.random_layouts import Distribution, distribution_of
from distributed.random_modules import LENGTH, WIDTH, RandomModule, trained_values
from distributed.trainings import clipped, distance, gradients_of

STEPS = 3


@dataclass
class Choices:
    """What a training does."""

    #: batches of which gradients are accumulated, and calls whose losses are differentiated together
    accumulated: int
    calls: int
    differentiates_inputs: bool
    has_scale: bool
    clip: float | None
    sets_to_none: bool
    evaluates: bool
    reloads: bool
    #: whether a parameter begins or ceases to need gradients
    thaws: bool
    has_uneven_parts: bool
    learning: dict[str, float]
    options: dict[str, Any]

    @classmethod
    def random(cls, r: random.Random) -> Choices:
        """Return random choices."""
        return cls(
            accumulated=r.choice([1, 1, 2]),
            calls=r.choice([1, 1, 1, 2]),
            differentiates_inputs=r.random() < 0.3,
            has_scale=r.random() < 0.3,
            clip=r.choice([None, None, 0.1]),
            sets_to_none=r.random() < 0.7,
            evaluates=r.random() < 0.3,
            reloads=r.random() < 0.3,
            thaws=r.random() < 0.2,
            has_uneven_parts=r.random() < 0.3,
            learning=r.choice([{"lr": 0.05}, {"lr": 0.05, "momentum": 0.9}]),
            options={"overlap_collectives": r.choice([0, 1, 3])},
        )


class Differences(dict[str, float]):
    """The largest difference of each kind of value, relative to the largest value if that is more than 1."""

    def note(self, what: str, found: dict[str, Any], expected: dict[str, Any]) -> None:
        """Compare tensors by name."""
        assert found.keys() == expected.keys()
        scale = max((t.abs().max().item() for t in expected.values() if t.numel()), default=1.0)
        self[what] = max(self.get(what, 0.0), distance(found, expected) / max(1.0, scale))


def random_training(seed: int, kind: str) -> dict[str, float]:
    """Train a random module; return the largest differences from one process.

    Raises the errors of the package for what it refuses.
    """
    r = random.Random(f"{seed} {kind}")
    draws = "context" not in kind  # which refuses random numbers
    plain, model = RandomModule(seed, draws=draws), RandomModule(seed, draws=draws)
    distribution, choices = distribution_of(r, kind, model), Choices.random(r)
    compiled = thunder.jit(model, transforms=distribution.transforms, **choices.options)
    training = _Training(r, plain, compiled, distribution, choices)
    for step in range(STEPS):
        if not training.takes_step(step):
            break  # torch refuses the program: it writes what a gradient needs
        if choices.thaws and step == 0:
            training.thaw(r.choice([name for name, _ in plain.named_parameters()]))
        if choices.reloads and step == 1:
            other = RandomModule(seed, draws=draws)
            training.reload(other, distribution_of(r, kind, other).transforms)
    return training.found


class _Training:
    """A training by a compiled module, and by the judge: one process with a copy of the module for each part.

    The copies share parameters. Each has its own buffers, and draws what the processes of its part draw.
    """

    def __init__(
        self, r: random.Random, plain: RandomModule, compiled: Any, parts: Distribution, choices: Choices
    ) -> None:
        self.r, self.plain, self.compiled, self.parts, self.choices = r, plain, compiled, parts, choices
        shared = {id(p): p for p in plain.parameters()}
        self.copies = [copy.deepcopy(plain, dict(shared)) for _ in range(parts.parts)]
        self.optimizers = [torch.optim.SGD(m.parameters(), **choices.learning) for m in (plain, compiled)]
        self.sizes = [2] * parts.parts
        self.found = Differences()

    def takes_step(self, step: int) -> bool:
        """Train for a step, and compare; return whether torch could differentiate the program."""
        choices = self.choices
        if choices.has_uneven_parts and self.parts.are_data_parallel:
            self.sizes = [self.r.choice([1, 2, 3]) for _ in self.sizes]
        for batch in range(choices.accumulated):
            is_last = batch == choices.accumulated - 1 or not hasattr(self.compiled, "no_sync")
            with nullcontext() if is_last else self.compiled.no_sync():
                if not self._differentiates(1000 * step + 100 * batch):
                    return False
        self.found.note("gradients", whole_gradients(self.compiled), whole_gradients(self.plain))
        if choices.clip is not None:
            norms = [clipped(m, choices.clip) for m in (self.compiled, self.plain)]
            self.found.note("norms", *({"": torch.tensor(norm)} for norm in norms))
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=choices.sets_to_none)
        self._compare_states()
        if choices.evaluates:
            self._evaluates(step)
        return True

    def _inputs(self, seed: int, needs_gradient: bool) -> list[tuple[tuple[Any, Any], dict[str, Any]]]:
        """Return the arguments of a call for each part of a batch."""
        torch.manual_seed(seed)
        inputs = []
        for size in self.sizes:
            x = torch.randn(size, LENGTH, WIDTH, dtype=torch.float64).requires_grad_(needs_gradient)
            tokens = torch.randint(0, 5, (size, LENGTH))
            scale = {"scale": torch.randn(WIDTH, dtype=torch.float64)} if self.choices.has_scale else {}
            inputs.append(((x, tokens), scale))
        return inputs

    def _differentiates(self, seed: int) -> bool:
        """Compare losses and the gradients of inputs of some calls."""
        part, needs_gradient = self.parts.part, self.choices.differentiates_inputs
        calls = [self._inputs(seed + index, needs_gradient) for index in range(self.choices.calls)]
        own = [copy.deepcopy(inputs[part]) for inputs in calls]
        expected: Any = 0
        losses: list[dict[str, Any]] = []
        for index, inputs in enumerate(calls):
            results = self._judged(inputs, seed + 10 * index)
            losses.append({"": results[part].detach()})
            expected = expected + torch.stack(results).mean()
        try:
            expected.backward()
        except RuntimeError:
            return False
        total: Any = 0
        for index, (args, kwargs) in enumerate(own):
            torch.manual_seed(seed + 10 * index + part)
            loss = trained_values(self.compiled(*args, **kwargs))
            self.found.note("losses", {"": loss.detach()}, losses[index])
            total = total + loss
        total.backward()
        for inputs, (args, _) in zip(calls, own, strict=True):
            if needs_gradient:  # that of one loss, and not of the mean of all
                gradient = inputs[part][0][0].grad * self.parts.parts
                self.found.note("inputs", {"": args[0].grad}, {"": gradient})
        return True

    def _judged(self, inputs: Iterable[Any], seed: int) -> list[Any]:
        """Return the loss of each part in one process."""
        results = []
        for part, (model, (args, kwargs)) in enumerate(zip(self.copies, inputs, strict=True)):
            torch.manual_seed(seed + part)
            results.append(trained_values(model(*args, **kwargs)))
        return results

    def _compare_states(self) -> None:
        expected = self.copies[self.parts.part].state_dict()
        self.found.note("states", self.compiled.original_state_dict(), expected)

    @torch.no_grad()
    def _evaluates(self, seed: int) -> None:
        """Compare a call without gradients, in the other mode of dropout and norms."""
        for m in (self.compiled, *self.copies):
            m.eval()
        inputs = self._inputs(seed, False)
        args, kwargs = inputs[self.parts.part]
        found = trained_values(self.compiled(*copy.deepcopy(args), **kwargs))
        self.found.note("evaluated", {"": found}, {"": self._judged(inputs, seed)[self.parts.part]})
        for m in (self.compiled, *self.copies):
            m.train()

    def thaw(self, name: str) -> None:
        """Let a parameter need a gradient if it did not, and none if it did."""
        needed = not self.plain.get_parameter(name).requires_grad
        for m in (self.plain, self.compiled):
            m.get_parameter(name).requires_grad_(needed).grad = None

    def reload(self, other: nn.Module, transforms: list[Any]) -> None:
        """Continue with another module, distributed in another way, that has loaded the state of this one."""
        state, needs = self.compiled.original_state_dict(), dict(self.plain.named_parameters())
        for name, parameter in other.named_parameters():
            parameter.requires_grad_(needs[name].requires_grad)
        self.compiled = thunder.jit(other, transforms=transforms, **self.choices.options)
        self.compiled.load_original_state_dict(state)
        own = dict(self.compiled.named_buffers())
        for name, buffer in self.copies[self.parts.part].named_buffers():
            own[name].copy_(buffer)  # those that a state dict does not have
        self.optimizers[1] = torch.optim.SGD(self.compiled.parameters(), **self.choices.learning)
        self.optimizers[0] = torch.optim.SGD(self.plain.parameters(), **self.choices.learning)


def whole_gradients(model: Any) -> dict[str, torch.Tensor]:
    """Return the gradients of whole parameters, zeros for those that have none."""
    for parameter in model.parameters():
        if parameter.grad is None and parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter)
    return gradients_of(model)
