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


def looks_at_what_it_appended(self: Any, x: torch.Tensor) -> Any:
    self.losses.append(x.sum())
    self.losses += [x.mean(), 2]
    last = self.losses[-1] * self.losses[-3]
    self.losses[-1:] = []
    self.others.append(1)
    return last + self.others[-2] + self.losses[0]


def extends_another_by_it(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.losses += [7]
    self.others += self.losses
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
    *(
        looks_at_what_it_appended,
        extends_another_by_it,
        extends_in_place,
        extends_and_reads,
        appends,
        reads_later,
        reads_by_another_way,
    ),
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


def counted(x: torch.Tensor, log: list[Any], others: list[Any]) -> Any:
    log.append(x.sum())
    others.extend([1, len(others)])
    return x * len(log), len(others), len(HISTORY)


def counts(self: Any, x: torch.Tensor) -> Any:
    first = len(self.losses)
    self.losses.append(first)
    self.losses += [1.5]
    HISTORY.append(1)
    if len(self.losses) % 4 == 3:
        return x * len(self.losses) + first
    return x - len(HISTORY)


def test_items_that_the_program_has_appended_need_no_content() -> None:
    def appended(self: Any, x: torch.Tensor) -> Any:
        self.losses.append(x * 2)
        return self.losses[-1] + len(self.losses)

    compiled, x = thunder.jit(Logs(appended)), torch.ones(2)
    assert [compiled(x).tolist() for _ in range(4)] == [[2.0 + n] * 2 for n in (2, 3, 4, 5)]
    assert thunder.cache_misses(compiled) == 2


def test_the_length_of_a_list_that_only_grows_is_an_input() -> None:
    ours = Logs(counts)
    theirs, compiled = copy.deepcopy(ours), thunder.jit(ours)
    for call in range(8):
        if call == 5:
            ours.losses, theirs.losses = ours.others, theirs.others
        HISTORY.clear()
        expected = theirs(x := torch.full((2,), float(call)))
        HISTORY.clear()
        assert torch.equal(compiled(x), expected)
        assert content(ours) == content(theirs)
    assert thunder.cache_misses(compiled) == 3  # the first call, and one for each answer to the question


def test_lists_among_the_arguments_to_which_a_function_only_appends_are_not_read() -> None:
    compiled = thunder.jit(counted)
    ours: list[Any] = [[3], [4, 5]]
    theirs = copy.deepcopy(ours)
    for call in range(7):
        if call == 4:
            ours, theirs = [ours[0]] * 2, [theirs[0]] * 2
        x = torch.full((2,), float(call))
        assert repr(compiled(x, *ours)) == repr(counted(x, *theirs))
        assert repr(ours) == repr(theirs)
    assert thunder.cache_misses(compiled) == 4  # twice again where both are one list


@pytest.mark.parametrize(
    "reads", ["log[0]", "[*log]", "len([log])", "locals()", "(lambda: log)()", "sum(log)"]
)
def test_lists_among_the_arguments_that_are_read_are_facts(reads: str) -> None:
    space: dict[str, Any] = {}
    exec(
        f"def f(x, log):\n    log.append(2)\n    seen = {reads}\n    return x + 1, len(log), type(seen)",
        space,
    )
    compiled, ours, theirs = thunder.jit(space["f"]), [1], [1]
    for _ in range(3):
        assert repr(compiled(torch.ones(1), ours)) == repr(space["f"](torch.ones(1), theirs))
        assert ours == theirs


def test_a_list_that_an_opaque_function_takes_is_whole() -> None:
    def appended(x: torch.Tensor, log: list[int]) -> torch.Tensor:
        log.append(1)
        return x * len(log)

    opaque = thunder.opaque(appended)
    with pytest.raises(thunder.UnsupportedProgram, match="has changed the length of"):
        thunder.jit(opaque)(torch.ones(1), [3, 4])


def test_the_warning_of_a_program_that_is_compiled_again_and_again_names_what_grows() -> None:
    def grows(x: torch.Tensor, seen: dict[int, int]) -> torch.Tensor:
        seen[len(seen)] = 1
        return x

    compiled, seen = thunder.jit(grows, recompile_limit=3), dict[int, int]()
    for _ in range(3):
        compiled(torch.ones(1), seen)
    with pytest.warns(thunder.RecompileWarning, match=r"changes in each call: args\[1\]\. Only append"):
        compiled(torch.ones(1), seen)


def test_a_program_that_appends_to_lists_of_dicts_is_compiled_once_for_their_keys() -> None:
    compiled = thunder.jit(Logs(appends_to_items))
    for call in range(4):
        compiled(torch.ones(2) * call)
    assert thunder.cache_misses(compiled) == 2
