"""Assignment targets, unpacking, walrus, deletion."""

from interpreter.programs.registry import program


@program()
def targets():
    a, b = 1, 2
    a, b = b, a
    (c, d), [e, *f] = (3, 4), [5, 6, 7]
    g, *h, i = range(5)
    *j, k = "xyz"
    [l] = [8]  # noqa: E741
    m = n = []
    m.append(1)
    return a, b, c, d, e, f, g, h, i, j, k, l, n


@program()
def evaluation_order():
    log = []

    class T:
        def __setattr__(self, name, value):
            log.append((name, value))

    def t(name):
        log.append(name)
        return T()

    t("first").a, t("second").b = (log.append("value"), 2)
    d = {}
    i = 0
    i, d[i] = 5, "x"
    return log, d


@program(([1],), ([1, 2, 3],), (5,), ("ab",), (None,), ({"a": 1, "b": 2},), (iter([1, 2]),))
def two_values(x):
    a, b = x
    return a, b


@program(([],), ([1],), ([1, 2, 3, 4],), (7,))
def starred(x):
    a, *b, c = x
    return a, b, c


@program()
def unpacking_own_iterables():
    class I:  # noqa: E742
        def __init__(self, n):
            self.n = n

        def __iter__(self):
            yield from range(self.n)

    out = []
    for n in (1, 2, 3):
        try:
            a, b = I(n)
            out.append((a, b))
        except ValueError as e:
            out.append(str(e))
    a, *b = I(4)
    return out, a, b, [*I(2), *I(1)], (*I(2),), {*I(2)}


@program()
def dict_displays():
    a = {"x": 1, **{"y": 2}, "x": 3}

    class M:
        def keys(self):
            return ["k1", "k2"]

        def __getitem__(self, k):
            return k + "!"

    out = [a, {**a, **M()}, dict(M()), dict(**M()), {**{}, "q": 1}]
    for bad in (5, [1]):
        try:
            {**bad}
        except TypeError as e:
            out.append(str(e))
    return out


@program()
def list_displays():
    out = [[*range(3), *"ab"], (*[1], *[2]), {*[1, 1], 2}, [1, *[], 2]]
    try:
        [*5]
    except TypeError as e:
        out.append(str(e))
    try:
        (1, *None)
    except TypeError as e:
        out.append(str(e))
    return out


@program(([3, 1, 2],))
def walrus(items):
    if (n := len(items)) > 2:
        out = [n]
    while (x := items.pop()) != 3:
        out.append(x)
    return out, (y := 5) + y, [z := 1, z + 1]


@program()
def deletions():
    a, b = 1, [1, 2, 3, 4]
    d = {"k": 1}

    class C:
        x = 1

    c = C()
    c.y = 2
    del a, b[0], b[1:2], d["k"], c.y
    try:
        a  # noqa: B018
    except UnboundLocalError:
        pass
    try:
        del d["zz"]
    except KeyError as e:
        return b, d, vars(c), str(e)


@program()
def slices():
    x = list(range(10))
    x[2:5] = "ab"
    x[::3] = [0] * len(x[::3])
    y = x[:]
    y[1:1] = (i for i in range(3))
    out = [x, y, x[-3:], x[5:2:-1], "hello"[1:-1], (1, 2, 3)[:2]]
    try:
        x[::2] = [1]
    except ValueError as e:
        out.append(str(e))
    try:
        x[1:2] = 5
    except TypeError as e:
        out.append(str(e))
    return out


@program()
def swap_in_place():
    items = [1, 2, 3]
    i = 0
    items[i], items[i + 1] = items[i + 1], items[i]
    i, items[i] = 2, "x"
    return items, i


@program()
def augmented_targets_evaluated_once():
    log = []

    def key(k):
        log.append(k)
        return k

    d = {"a": 1}
    d[key("a")] += 5
    return d, log


@program()
def for_targets():
    d = {}
    out = []
    for d["k"] in range(2):
        out.append(dict(d))
    for (a, [b]), *c in [((1, [2]), 3, 4)]:
        out.append((a, b, c))
    return out
