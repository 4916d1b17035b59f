"""Programs whose results depend on sizes and numbers, for tests of the facts that are recorded about these.

name → the program, the shapes of tensors and the numbers of its first calls. The entry with symbols is
compiled for the last call.
"""

from __future__ import annotations

import math

import torch.nn.functional as F


def _grid(x, y):
    if x.shape[0] == y.shape[0]:
        return x.sum() + y.sum() * 2
    return x.sum() - y.sum()


def _three_ways(x):
    n = x.shape[0]
    if n > 6:
        return x * 2
    if n > 3:
        return x * 3
    return x * 5


def _kernel_choice(x):
    """Choose by a multiple, as a checker of an executor does."""
    return x.reshape(-1, 4).sum(-1) if x.shape[0] % 4 == 0 else x.flip(0)


def _nested(x):
    n, m = x.shape
    if n * m > 20:
        return x + 1
    if n // 2 == m:
        return x - 1
    return x * n if (n + m) % 3 == 1 else x * m


PROGRAMS = {
    "a bound": (lambda x: x * 2 if x.shape[0] > 4 else x * 3, [[[6]]]),
    "another bound": (lambda x: x * 2 if x.shape[0] > 4 else x * 3, [[[3]]]),
    "two bounds": (_three_ways, [[[5]]]),
    "an equality": (_grid, [[[5], [5]]]),
    "an inequality": (_grid, [[[5], [4]]]),
    "a multiple": (_kernel_choice, [[[8]]]),
    "no multiple": (_kernel_choice, [[[7]]]),
    "several": (_nested, [[[4, 3]]]),
    "a product": (_nested, [[[6, 5]]]),
    "a half": (_nested, [[[4, 2]]]),
    "a loop": (lambda x: sum(x[i] * i for i in range(x.shape[0])), [[[4, 2]]]),
    "a root": (lambda x: x * 2 if math.sqrt(x.shape[0]) >= 2.5 else x, [[[9]]]),
    "a rounded root": (lambda x: x * 2 if math.floor(math.sqrt(x.shape[0])) == 2 else x, [[[6]]]),
    "a smaller size": (lambda x, y: x[: min(x.shape[0], y.shape[0])] * 2, [[[6], [4]]]),
    "broadcast": (lambda x, y: x + y, [[[5, 4], [5, 4]]]),
    "broadcast from one": (lambda x, y: x + y, [[[5, 4], [5, 1]]]),
    "a beginning": (lambda x: x[:3] * 2, [[[6]]]),
    "all of it": (lambda x: x[:3] * 2, [[[2]]]),
    "an end": (lambda x: x[-2:], [[[6]]]),
    "an item": (lambda x: x[3] if x.shape[0] > 3 else x[0], [[[6]]]),
    "halves": (lambda x: x.chunk(2)[0], [[[5]]]),
    "unflattened": (lambda x: x.unflatten(0, (-1, 2)) if x.shape[0] % 2 == 0 else x, [[[6]]]),
    "padded to a multiple": (lambda x: F.pad(x, (0, 3)) if x.shape[0] % 2 else x, [[[5]]]),
    "a text": (lambda x: (x, f"{x.shape[0]}" == "4"), [[[5]]]),
    "a key": (lambda x: x * {4: 2.0, 5: 3.0}.get(x.shape[0], 1.0), [[[5]]]),
    "a branch on a number": (lambda x, n: x * 2 if n > 3 else x * n, [[[3], 7], [[3], 5]]),
    "a remainder of a number": (lambda x, n: x + 1 if n % 3 == 1 else x - n, [[[3], 7], [[3], 4]]),
    "a number and a size": (lambda x, n: x[:n] if n < x.shape[0] else x + n, [[[6], 4], [[5], 3]]),
    "a position": (lambda x, n: x[n], [[[6, 2], 4], [[6, 2], 3]]),
    "a number as a length": (lambda x, n: x.new_zeros(abs(n)) + x[0], [[[2], 4], [[2], 3]]),
    "a clamped number": (lambda x, n: x * max(min(n, 5), -2), [[[2], 4], [[2], 3]]),
}
