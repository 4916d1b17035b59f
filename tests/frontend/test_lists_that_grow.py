"""A list or deque to which the program only appends: its length and its content are not facts."""

from __future__ import annotations

import copy
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder

HISTORY: list[Any] = []


class Logs(torch.nn.Module):
    def __init__(self, body: Callable[[Any, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.body, self.losses, self.others = body, [0], [0]
        self.recent: deque[Any] = deque([0], maxlen=2)
        self.metrics: dict[str, list[Any]] = {"a": [0], "b": []}
        self.missing: defaultdict[str, list[Any]] = defaultdict(list)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(self, x)


def appends(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.losses.append(x.mean())
    self.losses.extend([1.5, x * 2])
    self.recent.append(x.sum().item())
    HISTORY.append(1)
    return x + 1


def reads_later(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.losses.append(3)
    return x * len(self.losses) + self.losses[0]


def reads_by_another_way(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.losses.append(3)
    return x * len(vars(self)["losses"]) * len(getattr(self, "losses"))  # noqa: B009


def keeps_the_method(self: Any, x: torch.Tensor) -> torch.Tensor:
    append = self.losses.append
    append(3)
    return x * len(append.__self__)


def reads_within(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.losses.append(len(self.losses))
    return x


def interleaves(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.losses.append(1)
    self.others.append(2)
    self.losses.append(3)
    return x


def extends_in_place(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.losses += [x.mean(), 1.5 if x.shape[0] > 1 else 2.5]
    self.recent += [3]
    self.losses.append(4)
    return x


def extends_and_reads(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.losses += [len(self.losses)]
    self.others += self.losses
    return x * len(self.losses)


def appends_to_items(self: Any, x: torch.Tensor) -> torch.Tensor:
    key = "b"
    self.metrics["a"].append(x.sum())
    self.metrics[key].extend([1.5])
    self.missing["loss"].append(x.shape[0])
    return x


def appends_to_an_item_and_reads(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.metrics["a"].append(2)
    count = len(self.metrics["a"])
    self.metrics["b"].append(count)
    return x * len(vars(self)["metrics"]["b"]) + sum(map(len, self.missing.values()))


def appends_to_an_item_and_passes_on(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.metrics["a"].append(2)
    metrics = self.metrics
    metrics["b"] = metrics["a"]
    self.metrics["b"].append(3)
    return x * len(metrics["a"])


BODIES = [
    *(appends_to_items, appends_to_an_item_and_reads, appends_to_an_item_and_passes_on),
    *(extends_in_place, extends_and_reads, appends, reads_later, reads_by_another_way),
    *(keeps_the_method, reads_within, interleaves),
]


def content(module: Logs) -> list[Any]:
    lists = (module.losses, module.others, module.recent, *module.metrics.values(), *module.missing.values())
    return [[v.tolist() if isinstance(v, torch.Tensor) else v for v in items] for items in lists]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_lists_are_as_in_eager_also_where_they_become_one(body: Any) -> None:
    ours = Logs(body)
    theirs = copy.deepcopy(ours)
    compiled = thunder.jit(ours)
    for call in range(5):
        if call == 3:
            ours.others, theirs.others = ours.losses, theirs.losses
        if call == 4:
            ours.losses, theirs.losses = [7], [7]
            ours.metrics["a"], theirs.metrics["a"] = ours.losses, theirs.losses
        x = torch.full((2,), float(call))
        assert torch.equal(compiled(x), theirs(x))
        assert content(ours) == content(theirs)


def test_a_program_that_only_appends_is_compiled_once() -> None:
    compiled, kept = thunder.jit(Logs(appends)), []

    def closure(x: torch.Tensor) -> torch.Tensor:
        kept.append(x)
        return x * 2

    compiled_closure, extending = thunder.jit(closure), thunder.jit(Logs(extends_in_place))
    before = len(HISTORY)
    for call in range(4):
        compiled(torch.ones(2) * call)
        compiled_closure(torch.ones(2) * call)
        extending(torch.ones(2) * call)
    assert [thunder.cache_misses(c) for c in (compiled, compiled_closure, extending)] == [1, 1, 1]
    assert (len(HISTORY) - before, len(kept)) == (4, 4)


def test_a_program_that_appends_to_lists_of_dicts_is_compiled_once_for_their_keys() -> None:
    compiled = thunder.jit(Logs(appends_to_items))
    for call in range(4):
        compiled(torch.ones(2) * call)
    assert thunder.cache_misses(compiled) == 2
