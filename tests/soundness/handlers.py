"""Programs with handlers around operators that may raise on data, made at random; and the judge: eager.

`python -m soundness.handlers FIRST LAST` (with `tests` on the path) judges the programs of these seeds, and
prints those that eager contradicts, and what was refused.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch

import thunder

#: x: (2, 2) is what the program computes with; m a matrix, i and d integers, w weights
OPERATORS = {
    "cholesky": "torch.linalg.cholesky(m)",
    "inv": "torch.linalg.inv(m)",
    "solve": "torch.linalg.solve(m, torch.ones(2, 2))",
    "embedding": "torch.nn.functional.embedding(i, x)",
    "gather": "torch.gather(x, 0, i.unsqueeze(0).expand(2, 2))",
    "index_select": "torch.index_select(x, 0, i)",
    "scatter": "x.scatter(0, i.unsqueeze(0), 1.0)",
    "index_add": "x.index_add(0, i, x)",
    "take": "torch.take(x, i).expand(2, 2)",
    "index": "x[i]",
    "nll_loss": "torch.nn.functional.nll_loss(x, i) * torch.ones(2, 2)",
    "cross_entropy": "torch.nn.functional.cross_entropy(x, i) * torch.ones(2, 2)",
    "binary_cross_entropy": "torch.nn.functional.binary_cross_entropy(w.expand(2, 2), torch.ones(2, 2)) * x",
    "multinomial": "torch.multinomial(w, 1).float().expand(2, 2)",
    "bernoulli": "torch.bernoulli(w.expand(2, 2))",
    "poisson": "torch.poisson(w.expand(2, 2))",
    "one_hot": "torch.nn.functional.one_hot(i, 2).float()",
    "floor_divide": "(7 // d).float().expand(2, 2)",
    "remainder": "((d * 0 + 7) % d).float().expand(2, 2)",
    "custom": "torch.ops.soundness_handlers.checked(x, d)",
    "wrong_shape": "x @ torch.ones(7, 7)",
    "wrong_dim": "x.sum(5)",
    "add": "x * 2 + 1",
    "sin": "x.sin()",
    "rand": "x + torch.rand(2, 2)",
    "dropout": "torch.nn.functional.dropout(x, 0.5)",
}
EXCEPTIONS = (
    "RuntimeError",
    "IndexError",
    "ValueError",
    "(RuntimeError, IndexError)",
    "Exception",
    "torch.linalg.LinAlgError",
    "KeyError",
    "BaseException",
    "ImportError",
)
CONTEXTS = (
    "torch.no_grad()",
    "torch.enable_grad()",
    "torch.inference_mode()",
    "torch.autocast('cpu', torch.bfloat16)",
    "Manager(log)",
    "Manager(log, True)",
    "managed(log)",
    "managed(log, ValueError)",
    "contextlib.suppress(RuntimeError)",
    "contextlib.suppress(IndexError)",
)
BAD = {
    "m": lambda: -torch.ones(2, 2),
    "i": lambda: torch.tensor([0, -5]),
    "w": lambda: torch.tensor([-1.0, 0.5]),
    "d": lambda: torch.tensor([0, 2]),
}


@torch.library.custom_op("soundness_handlers::checked", mutates_args=())
def checked(x: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
    """Three times x; raises where d is zero."""
    if bool((d == 0).any()):
        raise ValueError("d is zero")
    return x * 3


@checked.register_fake
def _(x: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


checked.register_autograd(lambda ctx, g: (g * 3, None))


class Manager:
    """A context manager that logs how it is left, and may swallow what is raised."""

    def __init__(self, log, swallows=False):
        self.log, self.swallows = log, swallows

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, kind, error, traceback):
        self.log.append(("exit", kind.__name__ if kind else None))
        return self.swallows


@contextlib.contextmanager
def managed(log, catches=()):
    """As Manager, written as a generator."""
    log.append("begin")
    try:
        yield
    except catches:
        log.append("caught")
    finally:
        log.append("end")


class Writer:
    """Writes one program."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.count = 0

    def effect(self) -> str:
        """A statement that leaves something behind."""
        self.count += 1
        n = self.count
        effects = [
            f"log.append({n})",
            f"obj.count += {n}",
            f"print('line', {n})",
            f"state['k{n % 3}'] = {n}",
            f"buffer.add_({n})",
            "obj.last = x",
            "pass",
        ]
        if n % 5 == 0:
            effects += ["torch.set_grad_enabled(False)", "torch.set_default_dtype(torch.float64)"]
        return self.random.choice(effects)

    def operator(self) -> list[str]:
        """A call, of which a quarter is without a reader."""
        call = OPERATORS[self.random.choice(list(OPERATORS))]
        return [call if self.random.random() < 0.25 else f"x = {call}"]

    def handler(self, depth: int) -> list[str]:
        """The body of an ``except``."""
        body, kind = [self.effect()], self.random.random()
        if kind < 0.2:
            body.append("log.append((type(e).__name__, str(e), type(e.__context__).__name__))")
        elif kind < 0.3:
            body.append("raise")
        elif kind < 0.4:
            body.append("raise ValueError('another') from e")
        elif kind < 0.5:
            body.append("return x * 7")
        elif kind < 0.6:
            body += self.block(depth - 1)
        return body

    def attempt(self, depth: int) -> list[str]:
        """A ``try`` statement."""
        lines, kind = ["try:", *indented(self.block(depth - 1))], self.random.random()
        if kind < 0.8:
            for _ in range(self.random.choice([1, 1, 2])):
                lines.append(f"except {self.random.choice(EXCEPTIONS)} as e:")
                lines += indented(self.handler(depth))
            if self.random.random() < 0.3:
                lines += ["else:", *indented([self.effect()])]
        if kind > 0.6:
            last = [self.effect()] + (["return x * 5"] if self.random.random() < 0.1 else [])
            lines += ["finally:", *indented(last)]
        return lines

    def statement(self, depth: int) -> list[str]:
        """One statement."""
        kind = self.random.random()
        if depth <= 0 or kind < 0.3:
            return self.operator()
        if kind < 0.45:
            return [self.effect()]
        if kind < 0.8:
            return self.attempt(depth)
        if kind < 0.85:
            return ["for v in steps(x, log):", *indented(self.block(depth - 1))]
        return [f"with {self.random.choice(CONTEXTS)}:", *indented(self.block(depth - 1))]

    def block(self, depth: int) -> list[str]:
        """A few statements."""
        count = self.random.choice([1, 1, 2, 3])
        return [line for _ in range(count) for line in self.statement(depth)]

    def program(self) -> str:
        """The text of a function."""
        body = [*self.block(3), "log.append('last')", "return x + 1"]
        return "\n".join(["def program(x, m, i, w, d, log, obj, state, buffer):", *indented(body)])


def indented(lines: list[str]) -> list[str]:
    """The lines of a block."""
    return [f"    {line}" for line in lines]


def steps(x, log):
    """A generator with a ``finally``."""
    try:
        yield x
        yield x * 2
    finally:
        log.append("steps")


class Object:
    """Something with attributes."""

    def __init__(self) -> None:
        self.count, self.last = 0, None


class World:
    """What the calls of one program write to."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.obj, self.state, self.buffer = Object(), {}, torch.zeros(2)

    def shown(self) -> tuple[Any, ...]:
        """All of it as text."""
        last = self.obj.last
        seen = None if last is None else last.detach().tolist()
        return repr(self.log), self.obj.count, seen, repr(sorted(self.state.items())), self.buffer.tolist()


_NAMES = {
    "OperatorError": "RuntimeError",
    "OperatorIndexError": "IndexError",
    "OperatorTypeError": "TypeError",
    "OperatorValueError": "ValueError",
}


def observed(program: Callable[..., Any], bad: list[str], grad: bool, world: World) -> tuple[Any, ...]:
    """What one call returns or raises, prints and leaves behind: modes, generators, objects."""
    inputs = {
        "m": torch.eye(2) * 2 + 0.5,
        "i": torch.tensor([0, 1]),
        "w": torch.tensor([0.4, 0.6]),
        "d": torch.tensor([1, 2]),
    }
    inputs.update({name: BAD[name]() for name in bad})
    x = torch.tensor([[0.3, -0.2], [0.5, 0.1]], requires_grad=grad)
    output = io.StringIO()
    torch.manual_seed(0)
    try:
        with contextlib.redirect_stdout(output):
            result = program(x, *inputs.values(), world.log, world.obj, world.state, world.buffer)
        end: Any = ("returned", result.detach().tolist(), str(result.dtype), result.requires_grad)
    except thunder.UnsupportedProgram as error:
        end = ("refused", str(error).partition("\n")[0])
    except Exception as error:
        text = str(error).partition("\n")[0] if isinstance(error, thunder.ThunderError) else str(error)
        end = ("raised", _NAMES.get(type(error).__name__, type(error).__name__), text)
    modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype()
    autocast = torch.is_autocast_enabled("cpu")
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)
    return end, output.getvalue(), modes, autocast, torch.rand(1).item(), world.shown()


def made(seed: int) -> tuple[Callable[..., Any], str]:
    """The program of a seed, and its text."""
    text, file = Writer(seed).program(), f"<program {seed}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    namespace = {
        "torch": torch,
        "Manager": Manager,
        "managed": managed,
        "contextlib": contextlib,
        "steps": steps,
    }
    exec(compile(text, file, "exec"), namespace)
    return namespace["program"], text


def judged(seed: int) -> tuple[str, Any]:
    """``("equal", None)``, ``("refused", why)`` or ``("wrong", what differs)``, after several calls of which
    some have bad data: the first, the second or the third.
    """
    program, _ = made(seed)
    chance = random.Random(seed)
    grad, calls = chance.random() < 0.4, [[], [], []]
    calls[chance.randrange(3)] = chance.sample(list(BAD), chance.choice([1, 1, 2, 4]))
    compiled, theirs, ours = thunder.jit(program), World(), World()
    for number, bad in enumerate(calls):
        expected, found = observed(program, bad, grad, theirs), observed(compiled, bad, grad, ours)
        if found[0][0] == "refused":
            return "refused", found[0][1]
        if expected != found:
            differing = [(e, f) for e, f in zip(expected, found, strict=True) if e != f]
            return "wrong", (number, bad, grad, differing)
    return "equal", None


def judgements(seeds: range) -> Iterator[tuple[int, str, Any]]:
    """The judgement of each seed whose program Python accepts."""
    for seed in seeds:
        try:
            made(seed)
        except SyntaxError:
            continue
        yield seed, *judged(seed)


def main(first: int = 0, last: int = 1000) -> int:
    """Judge the programs of these seeds, and print what differs; return how many differ."""
    counts: Counter[str] = Counter()
    refusals: Counter[str] = Counter()
    for seed, verdict, why in judgements(range(first, last)):
        counts[verdict] += 1
        if verdict == "wrong":
            print(f"seed {seed}: {why}\n{made(seed)[1]}\n")
        elif verdict == "refused":
            refusals[why] += 1
    print(dict(counts), *refusals.items(), sep="\n")
    return counts["wrong"]


if __name__ == "__main__":
    sys.exit(bool(main(*map(int, sys.argv[1:]))))
