"""Branches and loops."""

from interpreter.programs.registry import program


@program((0,), (5,), (-3,))
def branches(n):
    if n > 0:
        return "positive"
    elif n < 0:
        return "negative"
    else:
        return "zero"


@program((0,), (7,))
def while_loop(n):
    total = 0
    while n > 0:
        total += n
        n -= 2
    return total


@program(([1, 2, 3],), ([],))
def for_else(items):
    for item in items:
        if item == 2:
            found = item
            break
    else:
        found = None
    return found


@program((10,), (3,))
def while_else(n):
    while n > 5:
        n -= 1
        if n == 7:
            break
    else:
        return "finished", n
    return "broken", n


@program((10,))
def continue_and_break(n):
    out = []
    for i in range(n):
        if i % 2:
            continue
        if i > 6:
            break
        out.append(i)
    return out, i


@program((4,))
def nested_loops(n):
    out = []
    for i in range(n):
        for j in range(i):
            if (i + j) % 2:
                continue
            out.append((i, j))
        else:
            out.append(i)
    return out


@program(([3, 1, 2],))
def loop_over_enumerate_zip(items):
    return [(i, a, b) for i, (a, b) in enumerate(zip(items, items[1:], strict=False))]


@program()
def loop_variable_stays():
    for i in range(3):  # noqa: B007
        pass
    return i


@program()
def empty_loop_leaves_variable_unbound():
    for i in []:  # noqa: B007
        pass
    return i


@program(({"a": 1, "b": 2},))
def loop_over_dict(d):
    out = []
    for k in d:
        out.append(k)
    for k, v in d.items():
        out.append((k, v))
    for v in d.values():
        out.append(v)
    return out


@program(("héllo",))
def loop_over_string(s):
    out = ""
    for c in s:
        out = c + out
    return out


@program((5,))
def loop_over_own_iterator(n):
    class Count:
        def __init__(self, n):
            self.n = n

        def __iter__(self):
            return self

        def __next__(self):
            if self.n == 0:
                raise StopIteration
            self.n -= 1
            return self.n

    return [i for i in Count(n)], list(Count(n)), sum(Count(n)), max(Count(n)), tuple(Count(2))


@program()
def loop_over_getitem():
    class Sequence:
        def __getitem__(self, i):
            if i >= 3:
                raise IndexError(i)
            return i * i

    return [x for x in Sequence()], list(Sequence()), 4 in Sequence()


@program((5,), (None,), (3.5,))
def loop_over_non_iterable(x):
    for _ in x:
        pass


@program()
def iter_returning_non_iterator():
    class Bad:
        def __iter__(self):
            return 3

    return list(Bad())


@program()
def changing_dict_while_looping():
    d = {1: 2}
    for k in d:
        d[k + 1] = 0


@program()
def list_grows_while_looping():
    items = [1, 2]
    for i in items:
        if len(items) < 6:
            items.append(i * 10)
    return items


@program((True,), (False,))
def conditional_expression(c):
    return (1 if c else 2), [x if c else -x for x in (1, 2)]


@program((3,))
def pass_and_ellipsis(n):
    if n:
        pass
    else:
        ...
    return ...


@program((1,), (0,))
def assertions(n):
    assert n, f"n is {n}"
    return n


@program((0,))
def assertion_without_message(n):
    assert n


@program((25,))
def collatz(n):
    steps = [n]
    while n != 1:
        n = 3 * n + 1 if n % 2 else n // 2
        steps.append(n)
    return steps


@program((30,))
def sieve(n):
    numbers = [True] * n
    for i in range(2, int(n**0.5) + 1):
        if numbers[i]:
            for j in range(i * i, n, i):
                numbers[j] = False
    return [i for i in range(2, n) if numbers[i]]


@program((8,))
def deep_nesting(n):
    out = 0
    for a in range(n):
        if a % 2:
            while True:
                try:
                    if a == 5:
                        break
                    out += a
                    if out > 10:
                        continue
                finally:
                    out += 1
                    if out > 20:
                        break
    return out


@program()
def return_in_loop_in_try():
    for i in range(5):
        try:
            if i == 3:
                return i
        finally:
            if i == 3:
                i = 100
    return -1


@program((None, 3), (2, None))
def none_tests(a, b):
    out = []
    if a is None:
        out.append("a")
    if b is not None:
        out.append("b")
    while a is None:
        a = 1
    while b is not None:
        b = None
    return out
