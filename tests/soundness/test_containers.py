"""What a program reads from containers is guarded by structure and type."""

from __future__ import annotations

import collections
import dataclasses

import torch

import thunder
from soundness.harness import Bag, Cases, arg, check_case, ramp, world

cases = Cases()


@cases(
    grow=lambda w: w.args[1].append(3.0),
    shrink=lambda w: w.args[1].pop(),
    empty=lambda w: w.args[1].clear(),
)
def length_by_len():
    return world(lambda x, xs: x * len(xs), ramp(3), [1.0, 2.0])


@cases(
    grow=lambda w: w.args[1].append(3.0),
    shrink=lambda w: w.args[1].pop(),
    element=lambda w: w.args[1].insert(0, 7.0),
)
def length_by_iteration():
    def program(x, xs):
        for s in xs:
            x = x + s
        return x

    return world(program, ramp(3), [1.0, 2.0])


@cases(grow=lambda w: w.args[1].append(ramp(3)), swap=lambda w: w.args[1].reverse())
def length_by_iteration_over_tensors():
    def program(x, xs):
        for t in xs:
            x = x * 2 + t
        return x

    return world(program, ramp(3), [ramp(3), ramp(3, start=9.0)])


@cases(grow=lambda w: w.args[1].append(3.0), shrink=lambda w: w.args[1].pop())
def length_by_unpacking():
    def program(x, xs):
        a, b = xs
        return x * a + b

    return world(program, ramp(3), [1.0, 2.0])


@cases(grow=lambda w: w.args[1].append(3.0), shrink=lambda w: w.args[1].pop(0))
def length_by_starred_unpacking():
    def program(x, xs):
        first, *rest = xs
        return x * first + sum(rest)

    return world(program, ramp(3), [1.0, 2.0])


@cases(grow=lambda w: w.args[1].append(3.0), shrink=lambda w: w.args[1].pop())
def length_by_star_argument():
    def add(x, *rest):
        return x + sum(rest) * len(rest)

    return world(lambda x, xs: add(x, *xs), ramp(3), [1.0, 2.0])


@cases(grow=lambda w: w.args[1].append(3.0), empty=lambda w: w.args[1].clear())
def truth_of_a_list():
    return world(lambda x, xs: x * 2 if xs else x - 1, ramp(3), [1.0])


@cases(grow=lambda w: w.args[1].append(5.0), first=lambda w: w.args[1].__setitem__(0, 9.0))
def negative_index_and_slice():
    return world(lambda x, xs: x * xs[-1] + sum(xs[1:]), ramp(3), [1.0, 2.0, 3.0])


@cases(grow=lambda w: w.args[1].append([4.0]), inner=lambda w: w.args[1][0].append(8.0))
def nested_lists():
    return world(lambda x, xss: x * sum(sum(xs) for xs in xss), ramp(3), [[1.0, 2.0], [3.0]])


@cases(other=lambda w: w.args[1].__setitem__(0, 2.0), absent=lambda w: w.args[1].clear())
def membership_in_a_list():
    return world(lambda x, xs: x * 2 if 1.0 in xs else x, ramp(3), [1.0, 3.0])


@cases(
    add=lambda w: w.args[1].update(c=4.0),
    drop=lambda w: w.args[1].pop("a"),
    order=lambda w: w.args[1].update(a=w.args[1].pop("a")),
    value=lambda w: w.args[1].update(a=8.0),
)
def keys_by_iteration():
    def program(x, d):
        for k in d:
            x = x * 2 + d[k]
        return x

    return world(program, ramp(3), {"a": 2.0, "b": 3.0})


@cases(add=lambda w: w.args[1].update(c=1.0), drop=lambda w: w.args[1].pop("b"))
def key_by_in():
    def program(x, d):
        if "c" in d:
            return x * d["c"] + 100
        return x - 1 if "b" in d else x

    return world(program, ramp(3), {"a": 2.0, "b": 3.0})


@cases(add=lambda w: w.args[1].update(c=1.0), drop=lambda w: w.args[1].pop("b"))
def count_by_len():
    return world(lambda x, d: x * len(d), ramp(3), {"a": 2.0, "b": 3.0})


@cases(
    appear=lambda w: w.args[1].update(c=4.0),
    vanish=lambda w: w.args[1].pop("a"),
    none=lambda w: w.args[1].update(a=None),
)
def key_by_get():
    def program(x, d):
        a, c = d.get("a"), d.get("c", 7.0)
        return x * c if a is None else x * a + c

    return world(program, ramp(3), {"a": 2.0, "b": 3.0})


@cases(add=lambda w: w.args[1].update(c="d"), order=lambda w: w.args[1].update(a=w.args[1].pop("a")))
def keys_view():
    return world(
        lambda x, d: x + len("".join(d.keys())) + (next(iter(d.keys())) == "a"),
        ramp(3),
        {"a": "p", "bb": "q"},
    )


@cases(add=lambda w: w.args[1].update(c=5.0), order=lambda w: w.args[1].update(a=w.args[1].pop("a")))
def items_view():
    def program(x, d):
        for name, s in d.items():
            x = x * s + len(name)
        return x

    return world(program, ramp(3), {"a": 2.0, "bb": 3.0})


@cases(change=lambda w: w.args[1].update(a=5.0), add=lambda w: w.args[1].update(c=5.0))
def values_view():
    return world(lambda x, d: x * sum(d.values()), ramp(3), {"a": 2.0, "b": 3.0})


@cases(
    add=lambda w: w.args[1].update(shift=4.0),
    drop=lambda w: w.args[1].pop("scale"),
    unknown=lambda w: w.args[1].update(oops=1.0),
)
def keys_by_double_star():
    def inner(x, scale=1.0, shift=0.0):
        return x * scale + shift

    return world(lambda x, d: inner(x, **d), ramp(3), {"scale": 2.0})


@cases(
    swap=lambda w: w.args[1].update(a=w.args[1]["b"], b=w.args[1]["a"]),
    replace=lambda w: w.args[1].update(a=ramp(3, start=7.0)),
)
def tensors_in_a_dict():
    return world(
        lambda x, d: {k: x - v for k, v in d.items()},
        ramp(3),
        {"a": ramp(3, start=2.0), "b": ramp(3, start=4.0)},
    )


@cases(key=lambda w: w.args[1].update({2: 3.0}), type=lambda w: w.args.__setitem__(1, {"1": 2.0}))
def keys_that_are_not_strings():
    return world(lambda x, d: x * d.get(2, 1.0) + d.get(1, 5.0), ramp(3), {1: 2.0, (0, 1): 4.0})


@cases(
    hits=False,
    default=lambda w: setattr(w.args[1], "default_factory", lambda: 9.0),
    present=lambda w: w.args[1].update(k=4.0),
)
def missing_key_of_a_defaultdict():
    return world(lambda x, d: x * d["k"], ramp(3), collections.defaultdict(lambda: 2.0))


@cases(
    inner=lambda w: w.args[0]["a"]["b"][0].update(c=ramp(2, start=6.0)),
    number=lambda w: w.args[0]["a"].update(n=4),
)
def nested_containers():
    return world(lambda d: d["a"]["b"][0]["c"] * d["a"]["n"], {"a": {"b": [{"c": ramp(2)}], "n": 3}})


@cases(add=lambda w: w.args[1].add(3), drop=lambda w: w.args[1].discard(1))
def membership_in_a_set():
    return world(lambda x, s: x * (2 if 1 in s else 5) + (3 in s), ramp(3), {1, 2})


@cases(
    add=lambda w: w.args[1].add(3.0),
    drop=lambda w: w.args[1].discard(1.0),
    empty=lambda w: w.args[1].clear(),
)
def set_by_iteration_and_length():
    return world(lambda x, s: x * sum(sorted(s)) + len(s), ramp(3), {1.0, 2.0})


@cases(other=arg(1, frozenset({"b", "c"})), unfrozen=arg(1, {"a", "b"}))
def frozenset_contents():
    return world(
        lambda x, s: x * len(s - {"a"}) + ("a" in s) + isinstance(s, frozenset),
        ramp(3),
        frozenset({"a", "b"}),
    )


Point = collections.namedtuple("Point", "x y")
Other = collections.namedtuple("Other", "x y")


@dataclasses.dataclass
class Pair:
    left: torch.Tensor
    right: float = 2.0


class MyList(list):
    pass


class MyDict(dict):
    pass


@cases(
    tuple=lambda w: w.args.__setitem__(0, tuple(w.args[0])),
    subclass=lambda w: w.args.__setitem__(0, MyList(w.args[0])),
)
def list_given_back():
    return world(lambda xs: xs, [ramp(2), 1.0])


@cases(plain=arg(0, (1.0, 2.0)), other=arg(0, Other(1.0, 2.0)), list=arg(0, [1.0, 2.0]))
def namedtuple_rebuilt():
    def program(p, x):
        return type(p), x * p[0] + p[1]

    return world(program, Point(1.0, 2.0), ramp(3))


@cases(tuple=arg(0, (1.0, 2.0)), subclass=arg(0, MyList([1.0, 2.0])))
def list_by_isinstance():
    def program(xs, x):
        if isinstance(xs, tuple):
            return x
        return x * 2 if type(xs) is list else x * 3

    return world(program, [1.0, 2.0], ramp(3))


@cases(ordered=arg(0, collections.OrderedDict(a=2.0)), subclass=arg(0, MyDict(a=2.0)))
def dict_type_copied():
    return world(lambda d, x: (d.copy(), type(d)(d), x * d["a"]), {"a": 2.0}, ramp(3))


@cases(
    number=lambda w: setattr(w.args[0], "right", 5.0),
    tensor=lambda w: setattr(w.args[0], "left", ramp(2, start=4.0)),
    extra=lambda w: setattr(w.args[0], "extra", 1.0),
    other=lambda w: w.args.__setitem__(0, Bag(left=ramp(2), right=9.0)),
)
def dataclass_fields():
    return world(lambda p: p.left * p.right + hasattr(p, "extra"), Pair(ramp(2)))


@cases(longer=arg(0, collections.deque([1.0, 2.0, 3.0])), list=arg(0, [1.0, 2.0]))
def deque_contents():
    return world(
        lambda q, x: x * q[0] + q[-1] + len(q) + isinstance(q, list), collections.deque([1.0, 2.0]), ramp(3)
    )


class Registry(dict):
    """A dict that is asked by name, and answers for what it lacks."""

    def get(self, key):
        return super().get(str(key)) or 1.0

    def __setitem__(self, key, value):
        super().__setitem__(str(key), value)


@cases(
    value=lambda w: w.args[1].__setitem__(2, 7.0),
    added=lambda w: w.args[1].__setitem__(3, 7.0),
    removed=lambda w: w.args[1].pop("2"),
    plain=arg(1, {"2": 3.0, 2: 5.0}),
)
def dict_with_methods_of_its_own():
    def program(x, registry):
        return x * registry.get(2) + (registry.get(3) or 0.0), len(registry), list(registry)

    return world(program, ramp(3), Registry({"2": 3.0}))


def test_a_write_to_a_dict_goes_through_the_methods_of_its_class():
    def program(x, registry):
        registry[3] = 1.0
        return x * registry.get(3)

    registry = Registry({"2": 3.0})
    assert torch.equal(thunder.jit(program)(ramp(3), registry), ramp(3))
    assert registry == {"2": 3.0, "3": 1.0}


@cases.parametrize()
def test_result_equals_eager(case, change):
    check_case(case, change, thunder)
