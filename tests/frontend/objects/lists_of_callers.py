"""Random programs that use lists of their callers, wherever these live and however many names they have."""

from __future__ import annotations

import collections
import random
from typing import Any

import torch

#: uses that need no item but those that the program has added
GROWING = """
{L}.append(x.sum())
{L}.append({n})
{L}.extend([x.mean(), {n}])
t = {L}; t += [{n}]
out.append(len({L}))
out.append(bool({L}))
{L}.append({n}); out.append({L}[-1])
{L}.append(x * 2); out.append({L}.pop())
{L}.append(0); {L}[-1] = {n}
{L}.append(0); del {L}[-1]
out.append(isinstance({L}, list))
out.append({L} is {M})
out.append({L})
o.new = {L}
out.append(3 if {L} else 4)
(lambda items: items.append({n}))({L})
{L}.append({M}); {L}.pop()
(lambda *a, **k: k['items'].append(a[0]))({n}, items={L})
""".strip().splitlines()

#: uses of items; ``plain`` tells whether lists have numbers alone, which can be compared and shown
READING = """
out.append({L}[0] if {L} else None)
out.append([*{L}])
out.append({L}[1:])
out.append({L}[-1] if {L} else 0)
out.append({n} in {L} if plain({L}) else 1)
{L}.insert(0, {n})
{L}.clear()
out.append({L}.copy())
out.append(list(reversed({L})))
out.append([v for v in {L}])
out.append(list(zip({L}, {L})))
out.append(list(enumerate({L})))
out.append(list(map(type, {L})))
out.append(sum(v for v in {L} if type(v) is int))
out.append(max({L}, default=0) if plain({L}) else 1)
out.append(sorted({L}) if plain({L}) else 1)
out.append(repr({L}) if plain({L}) else 0)
out.append(json.dumps({L}) if plain({L}) else 2)
out.append('%s %d' % ({L} if plain({L}) else 1, len({L})))
out.append({L} == {M} if plain({L}, {M}) else 1)
out.append({L} < {M} if plain({L}, {M}) else 1)
{L}[:] = {M}
{L}[len({L}):] = {M}
{L}.extend({M})
d['k'] = {L}; d['k'].append(1)
a, *b = {L} or [1]; out.append(a)
out.append((lambda *a: len(a))(*{L}))
it = iter({L}); out.append(next(it, 5))
del {L}[:1]
out.append({L} + [1])
out.append({L} * 2)
out.append({L}.count({n}) if plain({L}) else 1)
out.append([len(v) for v in [{L}, {M}]])
out.append(list(map(len, [{L}, {M}])))
out.append([{L}, {M}] == [{M}, {L}] if plain({L}, {M}) else 1)
out.append(min([{L}, {M}]) if plain({L}, {M}) else 1)
out.append(any({L}) if plain({L}) else 2)
out.append(any([{L}, {M}]))
out.append(tuple({L}))
{L}.reverse()
{L}.sort() if plain({L}) else None
{L}.remove({L}[0]) if {L} and plain({L}) else None
out.extend(1 for v in {L})
out.append({L}.__len__())
out.append(copy.copy({L}))
out.append(copy.deepcopy({L}))
out.append(list(itertools.chain.from_iterable([{L}, {M}])))
out.append(len(list(itertools.chain({L}, {M}))))
out.append(dict([({n}, {L})]))
out.append(collections.OrderedDict(k={L}))
out.append(collections.deque({L}, 2))
out.append(torch.stack([v for v in {L} if torch.is_tensor(v)] or [x.sum()]))
out.append(torch.tensor({L}) if plain({L}) else 1)
out.append(functools.reduce(lambda a, b: a + len(b), [{L}, {M}], 0))
out.append(functools.partial(len, {L})())
out.append(list(filter(None, [{L}, {M}])))
d['both'] = [{L}, {M}]; d['both'][0].append({n}); out.append(len(d['both'][1]))
h.append({L}); out.append(h[-1] == {M} if plain({L}, {M}) else 1)
""".strip().splitlines()

#: where lists live; ``HISTORY`` is a global variable
PLACES = ("o.a", "o.b", "d['k']", "d['n']", "g", "h[0]", "HISTORY", "o.inner.a")


class Holder:
    """An object with lists as attributes."""


def plain(*lists: list[Any]) -> bool:
    """Return whether lists have numbers alone."""
    return all(type(v) is int for items in lists for v in items)


def program(draw: random.Random, *, grows: bool) -> str:
    """Return the text of a program; one that grows reads no item that it has not added."""
    lines, names = ["def f(x, o, d, g, h):", "out = []"], list(PLACES)
    if draw.random() < 0.5:
        lines.append(f"local = {draw.choice(PLACES)}")
        names.append("local")
    for _ in range(draw.randint(1, 6)):
        use = draw.choice(GROWING if grows or draw.random() < 0.5 else READING)
        lines.append(use.format(L=draw.choice(names), M=draw.choice(names), n=draw.randint(0, 3)))
    return "\n    ".join([*lines, "return x + len(out), out"])


def made(text: str, history: list[Any]) -> Any:
    """Return the function of a program, with its own global variable."""
    space: dict[str, Any] = {"HISTORY": history, "plain": plain, "torch": torch, "__name__": "lists"}
    exec("import collections, copy, functools, itertools, json", space)
    exec(text, space)
    return space["f"]


def state(draw: random.Random) -> tuple[Any, ...]:
    """Return the arguments of a program, and the content of its global variable; some are one list."""

    def items() -> list[Any]:
        with_tensors = draw.random() < 0.3
        count = draw.randint(0, 3)
        return [
            torch.tensor(float(i)) if with_tensors and draw.random() < 0.5 else draw.randint(0, 3)
            for i in range(count)
        ]

    o: Any = Holder()
    o.a, o.inner = items(), Holder()
    o.b = items() if draw.random() < 0.7 else o.a
    o.inner.a = items()
    d = {"k": items(), "n": o.a if draw.random() < 0.3 else items()}
    g = o.b if draw.random() < 0.2 else items()
    h = [items() if draw.random() < 0.8 else g, items()]
    return o, d, g, h, items()


def shown(value: Any) -> Any:
    """Return a value in words that can be compared: content, classes, and which lists are one."""
    names: dict[int, int] = {}

    def walk(v: Any) -> Any:
        if isinstance(v, torch.Tensor):
            return v.tolist()
        if isinstance(v, list | dict | collections.deque | Holder):
            if id(v) in names:
                return f"<{names[id(v)]}>"
            names[id(v)] = len(names)
        if isinstance(v, dict):
            return type(v).__name__, [(k, walk(item)) for k, item in v.items()]
        if isinstance(v, list | tuple | collections.deque):
            return type(v).__name__, [walk(item) for item in v]
        return [(name, walk(part)) for name, part in vars(v).items()] if isinstance(v, Holder) else v

    return walk(value)
