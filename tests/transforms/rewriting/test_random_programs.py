"""Random programs with planted patterns, with commuted operands, casts, and statements in any order."""

from __future__ import annotations

import random
import re

import pytest
import torch

from thunder.core.patterns import rewrite
from transforms.rewriting.rewriting_programs import applied, by_torch, compiled


def pattern(x, w, eps: float):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * w


RULE = rewrite(pattern, by_torch)
EPS = 0.25

#: what prevents a match: a statement → another one
NEAR_MISSES = (
    ("square = {x} * {x}", "square = {x} * {w}"),
    ("mean = square.mean(-1, keepdim=True)", "mean = square.mean(0, keepdim=True)"),
    ("mean = square.mean(-1, keepdim=True)", "mean = square.sum(-1, keepdim=True)"),
    ("inverse = torch.rsqrt(shifted)", "inverse = torch.sqrt(shifted)"),
    ("inverse = torch.rsqrt(shifted)", "inverse = torch.rsqrt(shifted).neg()"),
    ("normal = {x} * inverse", "normal = {w} * inverse"),
    ("normal = {x} * inverse", "normal = {x} - inverse"),
    ("result = normal * {w}", "result = normal + {w}"),
    ("result = normal * {w}", "result = normal * {w} if normal.sum is None else normal / {w}"),
    ("result = normal * {w}", "result = normal * {w}; seen.append(normal)"),
    ("shifted = mean + eps", "shifted = mean + eps; seen.append(shifted.sin())"),
)


def statements(random: random.Random, x: str, w: str, near_miss: bool) -> list[str]:
    """The statements of one occurrence of the pattern, or of something that resembles it."""

    def product(a: str, b: str) -> str:
        a, b = random.sample([a, b], 2)
        return random.choice([f"{a} * {b}", f"torch.mul({a}, {b})", f"{a}.mul(other={b})"])

    def cast(value: str) -> str:
        return random.choice([value] * 4 + [f"({value}).double()", f"({value}).double().float()"])

    plain = {
        "square": f"{x} * {x}",
        "mean": "square.mean(-1, keepdim=True)",
        "shifted": "mean + eps",
        "inverse": "torch.rsqrt(shifted)",
        "normal": f"{x} * inverse",
        "result": f"normal * {w}",
    }
    if near_miss:
        old, new = random.choice(NEAR_MISSES)
        lines = [f"{name} = {value}" for name, value in plain.items()]
        old, new = (text.format(x=x, w=w) for text in (old, new))
        assert old in lines
        return [new if line == old else line for line in lines]
    varied = {
        "square": random.choice([product(x, x), f"{x}.pow(2)", f"{x} ** 2.0", f"torch.square({x})"]),
        "mean": random.choice([plain["mean"], "torch.mean(square, dim=(1,), keepdim=True)"]),
        "shifted": random.choice(["mean + eps", "eps + mean", "torch.add(mean, other=eps)"]),
        "inverse": random.choice(["torch.rsqrt(shifted)", "shifted.rsqrt()"]),
        "normal": product(x, "inverse"),
        "result": product("normal", w),
    }
    lines = [f"{name} = {cast(value)}" for name, value in varied.items()]
    return [*lines[:-1], f"result = ({varied['result']}).float()"]


def renamed(lines: list[str], number: int) -> list[str]:
    """The statements with names of their own."""
    for name in ("square", "mean", "shifted", "inverse", "normal", "result"):
        lines = [re.sub(rf"(?<!\.)\b{name}\b", f"{name}{number}", line) for line in lines]
    return lines


def interleaved(random: random.Random, parts: list[list[str]]) -> list[str]:
    """The statements of all parts, each part in its order."""
    order = [i for i, part in enumerate(parts) for _ in part]
    random.shuffle(order)
    iterators = [iter(part) for part in parts]
    return [next(iterators[i]) for i in order]


def program(random: random.Random, planted: int, near: int):
    """A program with as many occurrences, and as many near misses."""
    parts = []
    for number in range(planted + near):
        x, w = random.choice(["x", "y", "z"]), random.choice(["v", "w"])
        first, last = f"x{number} = {x}.sin() * {number + 1}", f"seen.append(result{number} + {x})"
        lines = statements(random, f"x{number}", w, number >= planted)
        parts.append([first, *renamed(lines, number), last])
    body = "\n    ".join(interleaved(random, parts))
    source = f"def program(x, y, z, v, w, eps={EPS}):\n    seen = []\n    {body}\n    return seen\n"
    namespace = {"torch": torch}
    exec(source, namespace)
    return namespace["program"], source


@pytest.mark.parametrize("seed", range(6))
def test_all_planted_patterns_are_found_and_no_near_miss(seed):
    choice = random.Random(seed)
    planted, near = choice.randrange(4), choice.randrange(3)
    fn, source = program(choice, planted, near)
    torch.manual_seed(seed)
    x, y, z = (torch.rand(3, 4, 4) + 0.5).unbind()
    v, w = torch.rand(2, 4).unbind()
    rewritten = compiled(fn, RULE)
    torch.testing.assert_close(rewritten(x, y, z, v, w), fn(x, y, z, v, w), msg=lambda text: source + text)
    assert len(applied(rewritten)) == planted, source
