"""Progress bars of tqdm in programs: each call draws what eager has drawn in the end."""

from __future__ import annotations

import contextlib
import io
import re
from typing import Any

import pytest
import torch

import thunder
from thunder import UnsupportedProgram

tqdm_auto = pytest.importorskip("tqdm.auto")
tqdm = pytest.importorskip("tqdm").tqdm
X = torch.tensor([1.0, 2.0])


def drawn(fn: Any, x: torch.Tensor) -> tuple[Any, str, str]:
    """Return the result of a call, the last state of the last bar without times, and what is printed."""
    errors, output = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(output):
        result = fn(x)
    states = [s for s in re.split(r"[\r\n]", errors.getvalue()) if s.strip()]
    last = re.sub(r"\d\d:\d\d|[\d.]+(it/s|s/it)|\?it/s", "T", states[-1].strip()) if states else ""
    return [v.tolist() if isinstance(v, torch.Tensor) else v for v in result], last, output.getvalue()


def check(fn: Any) -> None:
    compiled = thunder.jit(fn)
    for x in (X, X + 1):
        assert drawn(compiled, x) == drawn(fn, x)
    assert thunder.cache_misses(compiled) == 1


def test_a_bar_is_drawn_in_each_call() -> None:
    def fn(x: torch.Tensor) -> Any:
        for i, v in enumerate(tqdm([1.0, 2.0, 3.0], desc="steps")):
            x = x * i + v
        return (x,)

    check(fn)


def test_a_disabled_bar_is_none() -> None:
    def fn(x: torch.Tensor) -> Any:
        for i in tqdm(range(2), disable=True):
            x = x + i
        return (x,)

    check(fn)


def test_a_bar_that_is_advanced_by_hand_and_shows_values() -> None:
    def fn(x: torch.Tensor) -> Any:
        with tqdm(total=3) as bar:
            for i in range(2):
                bar.update(1)
                bar.set_postfix(i=i, loss=x.sum().item())
                bar.set_description(f"mean {x.mean().item():.2f}")
        return x, bar.n, bar.total, bar.disable

    check(fn)


def test_a_loop_that_is_left_and_texts_beside_a_bar() -> None:
    def fn(x: torch.Tensor) -> Any:
        bar = tqdm_auto.tqdm(reversed(range(4)), total=4)
        for i in bar:
            bar.write(f"step {i}")
            if i == 2:
                break
        return x * len(bar), bar.n

    check(fn)


def test_a_bar_that_is_left_open_is_closed_at_the_end() -> None:
    def fn(x: torch.Tensor) -> Any:
        bar = tqdm(total=2)
        bar.update()
        return (x,)

    check(fn)


def test_a_decision_within_a_bar() -> None:
    def fn(x: torch.Tensor) -> Any:
        for _ in tqdm(range(5)):
            x = x + 1
            if x.sum() > 6:
                break
        return (x,)

    compiled = thunder.jit(fn)
    for x in (X, X + 2, X):
        assert drawn(compiled, x) == drawn(fn, x)
    assert thunder.cache_misses(compiled) == 2


@pytest.mark.parametrize(
    ("fn", "match"),
    [
        (lambda x: tqdm([1]), "returns or stores an object of class tqdm"),
        (lambda x: tqdm([1]).start_t + 1, "reads start_t of a progress bar"),
        (lambda x: str(tqdm([1])), "of a progress bar, which depends on the time"),
        (lambda x: tqdm([1], postfix={"a": 1}), "with postfix= another value than a number or a text"),
    ],
)
def test_what_depends_on_the_time_is_refused(fn: Any, match: str) -> None:
    with pytest.raises(UnsupportedProgram, match=match):
        thunder.jit(fn)(X)
