"""copy, pickle, containers and their mutation."""

import copy
import json
import pickle

from interpreter.programs.registry import program


class Point:
    def __init__(self, x, y):
        self.x = x
        self.y = y

    def __eq__(self, other):
        return (self.x, self.y) == (other.x, other.y)

    def __getstate__(self):
        return {"x": self.x, "y": self.y, "via": "getstate"}

    def __setstate__(self, state):
        self.__dict__.update(state)


class Custom:
    def __init__(self, v):
        self.v = v

    def __copy__(self):
        return Custom(("copied", self.v))

    def __deepcopy__(self, memo):
        return Custom(("deep", copy.deepcopy(self.v, memo)))

    def __reduce__(self):
        return Custom, (("reduced", self.v),)


@program()
def copies():
    p = Point(1, [2])
    q = copy.copy(p)
    r = copy.deepcopy(p)
    return (
        q.y is p.y,
        r.y is p.y,
        r.y,
        q.via,
        copy.copy(Custom(1)).v,
        copy.deepcopy([Custom([1])])[0].v,
        copy.copy([1, {}]),
    )


@program()
def deep_copy_of_cycles():
    a = [1]
    a.append(a)
    b = copy.deepcopy(a)
    return b[1] is b, b[0], copy.deepcopy({"k": (1, [2])})


@program()
def pickles():
    p = pickle.loads(pickle.dumps(Point(1, 2)))
    c = pickle.loads(pickle.dumps(Custom(3)))
    return p == Point(1, 2), p.via, c.v, pickle.loads(pickle.dumps({"a": [1, (2,)]}))


@program()
def json_round_trip():
    def default(o):
        return {"point": [o.x, o.y]}

    text = json.dumps({"p": Point(1, 2), "l": [1, None, True, 2.5]}, default=default, sort_keys=True)
    return text, json.loads(text, object_hook=lambda d: sorted(d.items())), json.dumps([1], indent=1)


@program(([3, 1, 2],))
def list_mutation(items):
    items.append(4)
    items.extend([5, 6])
    items.insert(0, 9)
    items.remove(1)
    items.reverse()
    popped = items.pop(), items.pop(0)
    items.sort()
    items[0:1] = ["a", "b"]
    del items[1]
    return popped, items, items.index(3), items.count(2), items.copy() == items


@program(({"a": 1, "b": 2},))
def dict_mutation(d):
    d["c"] = 3
    d.update(e=5, **{"f": 6})
    d.setdefault("g", []).append(1)
    popped = d.pop("a"), d.pop("zz", None), d.popitem()
    del d["b"]
    return (
        popped,
        list(d.items()),
        d | {"q": 1},
        d.get("nope", 0),
        {**d, "c": 0},
        dict(sorted(d.items())),
        list(reversed(d)),
    )


@program(({1, 2, 3},))
def set_mutation(s):
    s.add(4)
    s.discard(9)
    s.remove(1)
    s |= {7}
    s -= {2}
    s ^= {3, 8}
    return s, s & {4, 7}, s <= {4, 7, 8, 9}, s.isdisjoint({1}), frozenset(s) == s, {x for x in s if x > 4}


@program(([[1], [2]],))
def aliasing(rows):
    rows[0].append(rows[1])
    rows.append(rows[0])
    rows[2].append("x")
    grid = [[0] * 2] * 2
    grid[0][0] = 1
    return rows, grid


@program((bytearray(b"abc"),))
def bytearray_mutation(b):
    b[0] = 90
    b.extend(b"xy")
    b += b"!"
    del b[1:3]
    return b


@program()
def nested_data():
    data = {"users": [{"name": "a", "tags": {"x"}}, {"name": "b", "tags": set()}]}
    for user in data["users"]:
        user["tags"] |= {user["name"]}
        user.setdefault("n", 0)
        user["n"] += len(user["tags"])
    return (
        data,
        [u["name"] for u in data["users"] if u["n"] > 1],
        {u["name"]: sorted(u["tags"]) for u in data["users"]},
    )
