"""Writes of the program reach the user's objects once per call, in order, and no proxy does."""

from __future__ import annotations

import collections

import torch
from torch import nn

import thunder
from soundness.harness import Bag, Cases, arg, check_case, ramp, with_globals, without_grad, world

cases = Cases()


class Counter(nn.Module):
    """Counts its calls, in a number, a tensor attribute, and a buffer of each kind."""

    def __init__(self):
        super().__init__()
        self.n = 0
        self.last = None
        self.register_buffer("rebound", torch.zeros(()))
        self.register_buffer("updated", torch.zeros(3))
        self.register_buffer("temporary", torch.zeros(()), persistent=False)

    def forward(self, x):
        self.n = self.n + 1
        self.last = x * 2
        self.rebound = self.rebound + 1
        self.updated.add_(x)
        self.temporary += 1
        return x + self.rebound


@cases(hits=False, reset=lambda w: setattr(w.program, "n", 40))
def number_attribute_of_the_root_module():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.n = 0

        def forward(self, x):
            self.n = self.n + 1
            return x * self.n

    return world(Model(), ramp(3))


@cases(values=arg(0, ramp(3, start=7.0)))
def tensor_attribute_of_an_object():
    def program(x, o):
        o.t = x * 2
        o.n = 3
        return o.t + 1

    return world(program, ramp(3), Bag(t=None, n=3))


@cases(hits=False, values=arg(0, ramp(3, start=7.0)))
def attributes_and_buffers_of_a_submodule():
    return world(nn.Sequential(nn.ReLU(), Counter()), ramp(3))


@cases(hits=False, attribute=lambda w: setattr(w.args[1], "total", 9.0))
def augmented_assignment_of_an_attribute():
    def program(x, o):
        o.total += 1.5
        return x * o.total

    return world(program, ramp(3), Bag(total=1.0))


@cases(hits=False, back=lambda w: setattr(w.args[1], "s", 4.0))
def attribute_deleted():
    def program(x, o):
        s = getattr(o, "s", 1.0)
        if hasattr(o, "s"):
            del o.s
        return x * s

    return world(program, ramp(3), Bag(s=2.0))


@cases(hits=False, values=arg(0, ramp(3, start=7.0)))  # it adds to the keys that it reads
def attribute_by_setattr_and_dict():
    def program(x, o, name="a"):
        setattr(o, name, x + 1)
        o.__dict__["b"] = x + 2
        vars(o).update(c=5)
        return o.a + o.b

    return world(program, ramp(3), Bag())


@cases(values=arg(0, ramp(3, start=7.0)))
def written_through_a_property():
    class Box:
        def __init__(self):
            self._v, self.writes = 1.0, []

        @property
        def v(self):
            return self._v

        @v.setter
        def v(self, value):
            self._v = value

    def program(x, o):
        o.v = x * 2
        return o.v + 1

    return world(program, ramp(3), Box())


@cases(hits=False, start=lambda w: setattr(w.args[1], "_v", 10))
def property_that_counts_its_reads():
    class Box:
        def __init__(self):
            self._v = 0

        @property
        def v(self):
            self._v += 1
            return self._v

    return world(lambda x, o: x * o.v + o.v, ramp(3), Box())


@cases(
    values=arg(0, ramp(3, start=7.0)),
    reset=lambda w: w.program.rebound.zero_(),
    rebound=lambda w: setattr(w.program, "rebound", torch.full((), 50.0)),
)
def buffer_rebound_on_the_root_module():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("rebound", torch.zeros(()))

        def forward(self, x):
            self.rebound = self.rebound + 1
            return x * self.rebound

    return world(Model(), ramp(3))


@cases(values=arg(0, ramp(3, start=7.0)), reset=lambda w: w.program[0].mean.zero_())
def buffer_updated_in_place_in_a_submodule():
    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(3))

        def forward(self, x):
            self.mean.mul_(0.5).add_(x * 0.5)
            return x - self.mean

    return world(nn.Sequential(Mean()), ramp(3))


@cases(
    values=arg(0, ramp(4, 3, start=7.0)),
    evaluated=lambda w: w.program.eval(),
    momentum=lambda w: setattr(w.program, "momentum", 0.5),
)
def batch_norm_statistics():
    return without_grad(world(nn.BatchNorm1d(3), ramp(4, 3)))


@cases(values=arg(0, ramp(2, 3, start=7.0)))
def buffer_written_at_an_index():
    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("k", torch.zeros(4, 3))

        def forward(self, x, at):
            self.k[at : at + 2] = x
            return self.k * 2

    return world(Cache(), ramp(2, 3), 1)


@cases(hits=False, values=arg(0, ramp(3, start=7.0)))
def list_appended():
    def program(x, seen):
        seen.append(x * 2)
        return x + 1

    return world(program, ramp(3), [])


@cases(values=arg(0, ramp(3, start=7.0)), longer=lambda w: w.args[1].extend([1, 2]))
def list_written_by_every_method():
    def program(x, xs):
        xs.append(x + 1)
        xs.extend([x + 2, 5])
        xs.insert(0, "first")
        xs[1] = x + 3
        popped = xs.pop()
        xs.reverse()
        xs.remove("first")
        del xs[0]
        xs += [x + popped]
        while len(xs) > 2:
            del xs[-1]
        xs[:] = [4.0, *xs]
        while len(xs) > 2:
            xs.pop(0)
        return x * popped

    return world(program, ramp(3), [ramp(3), 4.0])


@cases(hits=False, shuffled=lambda w: w.args[1].insert(0, 9.0))
def list_sorted_and_cleared():
    def program(x, xs, ys):
        xs.sort()
        ys.clear()
        return x * xs[0]

    return world(program, ramp(3), [3.0, 1.0, 2.0], [x := 1.0, x])


@cases(hits=False, values=arg(0, ramp(3, start=7.0)))
def dict_written_by_every_method():
    def program(x, d):
        d["t"] = x * 2
        d.update(u=x + 1, n=3)
        d.setdefault("v", x - 1)
        d.setdefault("n", 100)
        removed = d.pop("drop", 0)
        if "gone" in d:
            del d["gone"]
        return x * removed

    return world(program, ramp(3), {"drop": 4, "gone": 1, "keep": 2})


@cases(hits=False, again=lambda w: w.args[1].update(a=1, b=2))
def dict_emptied():
    def program(x, d):
        _key, value = d.popitem() if d else ("none", 0)
        d.clear()
        return x + value

    return world(program, ramp(3), {"a": 1, "b": 2})


@cases(hits=False, other=lambda w: w.args[1].discard(3))
def set_written():
    def program(x, s):
        s.add(3)
        s.discard(1)
        s |= {7}
        return x * len(s)

    return world(program, ramp(3), {1, 2})


@cases(hits=False, values=arg(0, ramp(3, start=7.0)))
def nested_containers_written():
    def program(x, d):
        d["a"][0]["t"] = x * 2
        d["b"] = [d["a"][0]["t"], d["a"]]
        return x + 1

    return world(program, ramp(3), {"a": [{"t": None}]})


@cases(hits=False, values=arg(0, ramp(3, start=7.0)))
def order_of_writes_to_two_names_of_one_list():
    def program(x, a, b):
        a.append(x + 1)
        b.append(x + 2)
        a.append(len(b))
        return x * len(a)

    shared = []
    return world(program, ramp(3), shared, shared)


@cases(hits=False, values=arg(0, ramp(3, start=7.0)))
def deque_and_ordered_dict_written():
    def program(x, q, d):
        q.appendleft(x + 1)
        d["z"] = x
        d.move_to_end("a")
        return x * len(q)

    return world(program, ramp(3), collections.deque([1], maxlen=3), collections.OrderedDict(a=1, b=2))


@cases(hits=False)
def an_input_stored_is_that_input():
    def program(x, keep):
        keep.append(x)
        keep.append(x[0])
        return x * 2

    return world(program, ramp(3), [])


@cases(hits=False, may_refuse="UnsupportedProgram")
def list_that_contains_itself():
    def program(x, xs):
        xs.append(xs)
        return x * len(xs)

    return world(program, ramp(3), [])


@cases(hits=False, reset=lambda w: w.program.__globals__.update(calls=100))
def global_written():
    def program(x):
        global calls, latest
        calls += 1
        latest = x * 2
        return x * calls

    return world(with_globals(program, calls=0, latest=None), ramp(3))


@cases(values=arg(0, ramp(3, start=7.0)))
def global_tensor_written():
    def program(x):
        global latest
        latest = x * 2
        return latest + 1

    return world(with_globals(program), ramp(3))


@cases(hits=False)
def closure_cell_written():
    n = 0

    def program(x):
        nonlocal n
        n += 1
        return x * n

    return world(program, ramp(3))


@cases(hits=False)
def container_in_a_global_written():
    def program(x):
        history.append(x.sum())  # noqa: F821 - given by with_globals
        return x + len(history)  # noqa: F821

    return world(with_globals(program, history=[]), ramp(3))


@cases(values=arg(0, ramp(3, start=7.0)))
def attribute_of_a_function_written():
    def program(x, f):
        f.latest = x + 1
        return x * 2

    def target():
        pass

    return world(program, ramp(3), target)


@cases(values=arg(0, ramp(3, start=7.0)))
def print_of_tensors_and_numbers():
    def program(x):
        print("before", 1, 2.5, None)
        y = x * 2
        print(y, x.sum(), sep=" | ", end=".\n")
        print(f"shape {tuple(y.shape)}")
        return y

    return world(program, ramp(3))


@cases(values=arg(0, ramp(3, start=7.0)))
def print_of_containers_of_tensors():
    def program(x):
        print({"a": [x, x + 1]}, (x * 2,))
        return x

    return world(program, ramp(3))


@cases(may_refuse="UnsupportedProgram", values=arg(0, ramp(3, start=7.0)))
def print_of_a_formatted_tensor():
    def program(x):
        print(f"{x * 2}")
        return x

    return world(program, ramp(3))


@cases(refused="UnsupportedProgram")
def a_refused_program_that_wrote_before():
    def program(x, o, seen):
        o.t = x * 2
        seen.append(x + 1)
        return x.data_ptr()

    return world(program, ramp(3), Bag(), [])


@cases(hits=False, values=arg(0, ramp(3, start=7.0)))
def a_failing_program_that_wrote_before():
    def program(x, o, seen):
        o.t = x * 2
        seen.append(x + 1)
        return x[5]

    return world(program, ramp(3), Bag(), [])


@cases(hits=False, values=arg(0, ramp(3, start=7.0)))
def a_tensor_kept_by_an_object_made_in_the_program():
    def program(x, registry):
        box = Bag(t=x * 2, inner=[x])
        registry["box"] = box
        return box.t + 1

    return world(program, ramp(3), {"box": None})


@cases.parametrize()
def test_world_equals_eagers_after_each_call(case, change):
    check_case(case, change, thunder)
