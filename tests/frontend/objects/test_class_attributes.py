"""Attributes of classes, modules and functions that a program writes, deletes, or asks for their names."""

from __future__ import annotations

import types

import pytest
import torch
from torch import nn

import thunder

PROGRAMS = {}


def program(build):
    """A factory of a program and of a question about what it left behind."""
    PROGRAMS[build.__name__] = build
    return build


@program
def counts_in_the_class():
    class Base:
        count = 0

    class Derived(Base):
        pass

    o = Derived()

    def f(x):
        type(o).count += 1
        Base.count += 10
        return x * o.count, Base().count

    return f, lambda: (Base.count, Derived.count, "count" in vars(Derived))


@program
def class_attribute_set_and_deleted():
    class Holder:
        below = 2.0

    class Derived(Holder):
        below = 3.0

    def f(x):
        Holder.added = x + 1
        first = Derived.added
        del Holder.added
        del Derived.below
        second = x * Derived().below
        Derived.below = 4.0
        return first, second, hasattr(Derived(), "added")

    return f, lambda: (list(vars(Holder)), vars(Derived)["below"])


@program
def registry_and_class_of_a_module():
    class Net(nn.Module):
        seen = []  # noqa: RUF012
        calls = 0

        @classmethod
        def count(cls):
            cls.calls += 1
            return cls.calls

        def forward(self, x):
            self.seen.append(x.shape[0])
            return x * self.count() * len(Net.seen)

    return Net(), lambda: (Net.seen, Net.calls)


@program
def class_made_by_the_program():
    class Base:
        factor = 2.0

    def f(x):
        class Derived(Base):
            other = 3.0

        Derived.other = Derived.factor + 1
        return x * Derived.factor * Derived().other

    return f, lambda: setattr(Base, "factor", Base.factor + 1)


@program
def super_past_a_class_that_gets_the_method():
    class Top:
        def number(self):
            return 1.0

    class Middle(Top):
        pass

    class Bottom(Middle):
        def __call__(self, x):
            return x * super().number()

    return Bottom(), lambda: setattr(Middle, "number", lambda self: 5.0)


@program
def attribute_set_and_deleted():
    class Holder:
        below = 5

    o = Holder()

    def f(x):
        o.below = x
        first = o.below + 1
        del o.below
        o.new = 1
        del o.new
        return first * o.below, hasattr(o, "new")

    return f, lambda: (vars(o), o.below)


@program
def attribute_deleted_and_set():
    class Holder:
        below = 5

    o = Holder()
    o.below, o.other = 3, 1

    def f(x):
        del o.below
        between = x * o.below
        o.below = x.shape[0]
        return between

    return f, lambda: list(vars(o).items())


@program
def slot_deleted_and_set():
    class Holder:
        __slots__ = ("a", "b")

        def __getattr__(self, name):
            return 7.0

    o = Holder()
    o.a = 1.0

    def f(x):
        first = x * o.a
        o.b = 3
        del o.b, o.a
        second = o.a
        o.a = 2.0
        return first, second, o.b

    return f, lambda: (o.a, o.b)


@program
def members_set_and_deleted():
    class Net(nn.Module):
        scale = 5

        def forward(self, x):
            self.scale = x
            first = self.scale + 1
            del self.scale
            self.register_buffer("table", x)
            first = first + self.table
            del self.table
            self.act = nn.ReLU()
            first = self.act(first)
            del self.act
            return first * self.scale, hasattr(self, "table")

    net = Net()
    return net, lambda: (list(vars(net)), net._buffers, net._modules)


@program
def getattr_that_raises_key_error():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.values = {"a": 2.0}

        def __getattr__(self, name):
            return self.__dict__["values"][name]

        def forward(self, x):
            total = x * self.a
            for ask in (lambda: self.missing, lambda: hasattr(self, "z"), lambda: getattr(self, "z", None)):
                try:
                    ask()
                except KeyError:
                    total = total + 1
            return total

    net = Net()
    return net, lambda: net.values.update(a=net.values["a"] + 1)


@program
def getattr_whose_error_leaves():
    class Net(nn.Module):
        def __getattr__(self, name):
            raise LookupError(name)

        def forward(self, x):
            return x * self.factor

    return Net(), lambda: None


@program
def reads_that_are_counted():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Identity()

        def __getattr__(self, name):
            self.__dict__["reads"] = self.__dict__.get("reads", 0) + 1
            return super().__getattr__(name)

        def forward(self, x):
            return self.lin(x)

    net = Net()
    return net, lambda: vars(net)["reads"]


@program
def names_of_classes_and_functions():
    class Net(nn.Module):
        """A text."""

        width: int = 1

        def forward(self, x):
            cls = type(self)
            names = cls.__name__, cls.__qualname__, cls.__doc__, [c.__name__ for c in cls.__mro__]
            return names, cls.__annotations__, self.forward.__name__, f"{cls}", self._get_name()

    def rename():
        Net.__name__ += "s"
        Net.__doc__ += "!"
        Net.forward.__name__ += "s"
        Net.__annotations__["more"] = int
        return cls_text(Net)

    return Net(), rename


def cls_text(cls):
    """What a class is called."""
    return cls.__name__, cls.__doc__


@program
def code_of_a_method():
    class Net(nn.Module):
        def forward(self, x):
            return type(self).other.__code__.co_name, type(self).__bases__[0].__name__

        def other(self):
            return 1

    def replace():
        Net.other.__code__ = (lambda self: 2).__code__

    return Net(), replace


@program
def variables_of_a_module():
    module = types.ModuleType("variables")
    exec("flag = 1.0\ndef f(x): return x * flag\ndef bump():\n  global flag\n  flag += 1", vars(module))

    def f(x):
        first = module.f(x)
        module.flag = 5.0
        second = module.f(x)
        module.bump()
        third, fourth = module.flag, vars(module)["flag"]
        vars(module)["flag"] = 9.0
        fifth = module.f(x)
        module.bump()
        return first, second, third, fourth, fifth, module.f.__globals__["flag"], module.flag

    return f, lambda: module.flag


@program
def attributes_of_a_function():
    def helper(x):
        return x

    def f(x):
        helper.count = getattr(helper, "count", 0) + 1
        helper.last = x
        return x * helper.count + helper.last

    return f, lambda: vars(helper)


@program
def setattr_added_to_a_class():
    class Holder:
        pass

    o = Holder()

    def f(x):
        o.value = 2.0
        return x * o.value

    def add():
        Holder.__setattr__ = lambda self, name, value: object.__setattr__(self, name, value * 100)
        return o.value

    return f, add


@program
def sentinels_and_objects_are_results():
    class Pair:
        def __init__(self, a, b):
            self.a, self.b = a, b

    def f(x):
        fresh, space = object(), types.SimpleNamespace(x=x)
        pair = Pair(x * 2, [fresh])
        same = pair.b[0] is fresh
        return pair.a, same, type(pair).__name__, type(fresh), space.x, slice(x.shape[0], None)

    return f, lambda: None


def play(build, compiled):
    """Three calls: what each gave or raised, and what the program left behind."""
    fn, left = build()
    run, seen = thunder.jit(fn) if compiled else fn, []
    for call in range(3):
        try:
            with torch.no_grad():
                seen.append(repr(run(torch.full((2,), float(call)))))
        except LookupError as error:
            seen.append(f"{type(error).__name__}: {error}")
        seen.append(repr(left()))
    return seen


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_does_what_eager_does(name):
    assert play(PROGRAMS[name], compiled=True) == play(PROGRAMS[name], compiled=False)


def test_an_object_that_a_program_returns_is_another_at_each_call():
    class Pair:
        def __init__(self, a, b):
            self.a, self.b = a, b

    def f(x, w):
        mark = object()
        pair = Pair(x * w, mark)
        return pair, mark, {"again": pair}

    compiled = thunder.jit(f)
    w = torch.ones(3, requires_grad=True)
    first, second = compiled(torch.ones(3), w), compiled(torch.ones(3), w)
    for pair, mark, held in (first, second):
        assert type(pair) is Pair
        assert pair.b is mark
        assert held["again"] is pair
    assert first[0] is not second[0]
    assert first[1] is not second[1]
    second[0].a.sum().backward()
    assert torch.equal(w.grad, torch.ones(3))


def test_a_module_that_a_program_stores_is_another_at_each_call():
    class Net(nn.Module):
        def forward(self, x):
            self.act = nn.Sequential(nn.Dropout(0.0), nn.ReLU())
            return self.act(x)

    net = Net()
    compiled = thunder.jit(net)
    compiled(torch.ones(2))
    first = net.act
    first[1].inplace = True
    compiled(torch.ones(2))
    assert net.act is not first
    assert not net.act[1].inplace
    assert list(net.act._modules) == ["0", "1"]


@pytest.mark.parametrize("name", ["__len__", "__eq__"])
def test_a_special_method_is_not_written_to_a_class(name):
    class Holder:
        pass

    def f(x):
        setattr(Holder, name, len)
        return x

    with pytest.raises(thunder.UnsupportedProgram, match=rf"class attribute .*Holder\.{name}"):
        thunder.jit(f)(torch.ones(2))
    assert name not in vars(Holder)


def test_objects_that_share_their_attributes_are_not_written():
    class Shares:
        state = {"n": 1.0}  # noqa: RUF012

        def __init__(self):
            self.__dict__ = self.state

    a, b = Shares(), Shares()

    def f(x):
        a.n = a.n + 1
        return x * b.n

    with pytest.raises(thunder.UnsupportedProgram, match="have one __dict__"):
        thunder.jit(f)(torch.ones(2))
    assert b.n == 1.0


class Key:
    """A key that is equal to itself alone."""

    rank = 3.0


def test_a_dict_with_an_object_as_key_is_read_by_its_other_keys():
    key = Key()
    table = {"a": 2.0, key: 5.0, (key, 1): 7.0}

    def f(x):
        return x * table["a"] + sum(k.rank for k in table if isinstance(k, Key)) + table[key]

    compiled = thunder.jit(f)
    x = torch.ones(2)
    assert torch.equal(compiled(x), f(x))
    assert torch.equal(compiled(x), f(x))
    assert thunder.cache_misses(compiled) == 1
    key.rank = 4.0
    assert torch.equal(compiled(x), f(x))
    table[Key()] = 1.0
    assert torch.equal(compiled(x), f(x))
    assert thunder.cache_misses(compiled) == 3


def _patched(cls, name, value):
    """Set an attribute; return the function that sets what a read gave before, as a patch does."""
    before = getattr(cls, name, None)
    setattr(cls, name, value)
    return lambda: delattr(cls, name) if before is None else setattr(cls, name, before)


def _patched_own(cls, name, value):
    """Set an attribute; return the function that deletes it where the class had none of its own."""
    before = cls.__dict__.get(name)
    setattr(cls, name, value)
    return lambda: delattr(cls, name) if before is None else setattr(cls, name, before)


READS = {
    "method": lambda o: o.scale(),
    "attribute": lambda o: o.level,
    "class attribute": lambda o: type(o).level,
    "metaclass attribute": lambda o: type(o).factor,
    "missing": lambda o: getattr(o, "extra", 7),
    "hasattr": lambda o: 1 if hasattr(o, "extra") else 2,
}
PATCHES = {
    "scale": lambda self: 3.0,
    "level": 4.0,
    "factor": 6.0,
    "extra": 5.0,
    "level as a property": property(lambda self: 8.0),
    "scale as a function": staticmethod(lambda: 9.0),
}


@pytest.mark.parametrize("patch", [_patched, _patched_own])
@pytest.mark.parametrize("index", range(4))
@pytest.mark.parametrize("read", READS)
def test_a_class_that_is_patched_and_restored_between_calls(read, index, patch):
    kind = type("Kind", (type,), {"factor": 5.0})
    base = kind("Base", (), {"scale": lambda self: 2.0, "level": 1.0})
    middle = kind("Middle", (base,), {})
    derived = kind("Derived", (middle,), {})
    target, owner = (kind, base, middle, derived)[index], derived()

    def program(x):
        return x * READS[read](owner)

    compiled = thunder.jit(program)

    def outcome(fn):
        try:
            return fn(torch.ones(1)).item()
        except TypeError as error:  # of a property that is read from the class
            return type(error)

    for name, value in PATCHES.items():
        restore = patch(target, name.partition(" ")[0], value)
        assert outcome(compiled) == outcome(program)
        restore()
        assert outcome(compiled) == outcome(program)
        assert outcome(compiled) == outcome(program)


def test_a_reason_is_given_for_a_method_that_is_found_in_another_class():
    class Base(nn.Module):
        def scaled(self, x):
            return x * 2

        def forward(self, x):
            return self.scaled(x)

    class Derived(Base):
        pass

    compiled, x = thunder.jit(Derived()), torch.ones(1)
    assert compiled(x) == 2
    Derived.scaled = Base.scaled
    assert compiled(x) == 2
    (reason,) = thunder.compile_stats(compiled).last_recompile_reasons
    assert "though each of their facts holds" in str(reason)
