"""Subclasses of dict and list with methods and attributes, as configurations are."""

import copy
import dataclasses
import typing
from collections import Counter, OrderedDict, UserDict, defaultdict, deque
from collections.abc import Mapping
from typing import Generic, TypeVar

import pytest
import torch
from torch.testing import assert_close

import thunder

X = torch.ones(2)
T = TypeVar("T")


class Frozen(OrderedDict):
    """A configuration whose items are attributes as well, and which cannot be changed."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        for key, value in self.items():
            setattr(self, key, value)
        self.__frozen = True

    def update(self, *args, **kwargs):
        raise TypeError("frozen")

    def __setattr__(self, name, value):
        if hasattr(self, "__frozen") and self.__frozen:
            raise TypeError("frozen")
        super().__setattr__(name, value)


class Configured(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self._config = Frozen(scale=2.0, names=["a"])

    @property
    def config(self):
        return self._config

    def forward(self, x):
        c = self.config
        return x * c.scale + c["scale"] + len(dict(c)) + len({**c}) + c.get("n", 1) + len(c.names), c


class Tagged(list):
    def __init__(self, items=(), tag="t"):
        super().__init__(items)
        self.tag = tag

    def total(self):
        return sum(self)


def test_items_and_attributes_of_a_configuration_are_read_and_guarded():
    module = Configured()
    compiled = thunder.jit(module)

    def check(compiles):
        result, config = compiled(X)
        assert torch.equal(result, module(X)[0])
        assert config is module.config
        assert thunder.cache_misses(compiled) == compiles

    check(1)
    check(1)
    OrderedDict.__setitem__(module._config, "scale", 7.0)
    check(2)
    vars(module._config)["scale"] = 3.0
    check(3)
    module._config = Frozen(scale=5.0, names=[])
    check(4)


def test_a_program_creates_and_returns_such_a_dict():
    def program(x, config):
        return Frozen(y=x * config.scale)

    config = Frozen(scale=2.0)
    compiled = thunder.jit(program)
    for x in (X, 3 * X):
        found, expected = compiled(x, config), program(x, config)
        assert type(found) is Frozen
        assert vars(found).keys() == vars(expected).keys()
        assert found.y is found["y"]
        assert torch.equal(found.y, expected.y)


def test_a_list_with_methods_and_attributes():
    def program(x, items):
        return x * items.total() + len(items.tag), items, Tagged([x], "new")

    items, compiled = Tagged([1, 2], "ab"), thunder.jit(program)
    result, same, created = compiled(X, items)
    assert torch.equal(result, X * 3 + 2)
    assert same is items
    assert (type(created), created.tag, torch.equal(created[0], X)) == (Tagged, "new", True)
    items.tag = "abc"
    items.append(3)
    assert torch.equal(compiled(X, items)[0], X * 6 + 3)


def test_attributes_that_a_program_writes_are_written_at_each_call():
    def program(x, items):
        items.tag = items.tag + "!"
        return x + len(items.tag)

    items, compiled = Tagged([1], "a"), thunder.jit(program)
    assert torch.equal(compiled(X, items), X + 2)
    assert items.tag == "a!"


class Output(OrderedDict):
    """A result of a model, whose items may be read by number too."""

    def __init__(self, items=()):
        super().__init__(items)

    def __getitem__(self, key):
        return list(self.values())[key] if isinstance(key, int) else super().__getitem__(key)


def test_a_created_dict_with_special_methods_is_a_mapping():
    def program(x):
        output = Output({"logits": x * 2})
        return output[0].double() if isinstance(output, Mapping) else output["logits"]

    assert torch.equal(thunder.jit(program)(X), (X * 2).double())


class Typed(dict[str, object], Generic[T]):
    """A dict whose class is generic, and whose items are attributes."""

    def __getattr__(self, name):
        return self[name]

    def __setattr__(self, name, value):
        self[name] = value


class TypedList(typing.List[int], Generic[T]):  # noqa: UP006  (the form with another base)
    def total(self):
        return sum(self)


def test_generic_containers_are_created_and_returned():
    def program(x):
        typed = Typed(a=x * 2)
        typed.b = typed.a + 1
        return typed, x * TypedList([1, 2]).total()

    compiled = thunder.jit(program)
    for x in (X, X * 3):
        (expected, scaled), (result, again) = program(x), compiled(x)
        assert type(result) is Typed
        assert list(result) == ["a", "b"]
        torch.testing.assert_close((dict(result), again), (dict(expected), scaled))


# -- methods that read and write the items -------------------------------------------------------------------


class OwnDict(dict):
    """A dict whose attributes are its items."""

    def __init__(self, *args, **items):
        super().__init__(*args, **items)
        self.__dict__ = self


class Attributes(dict):
    """A dict whose attributes are found by its own methods."""

    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__


class Both(dict):
    """A dict whose items are attributes too, whichever way they are set."""

    def __init__(self, *args, **items):
        for key, value in dict(*args, **items).items():
            setattr(self, key, value)

    def __setattr__(self, name, value):
        super().__setattr__(name, Both(value) if type(value) is dict else value)
        super().__setitem__(name, getattr(self, name))

    __setitem__ = __setattr__


class Tree(dict):
    """A dict that makes its branches when they are read."""

    def __missing__(self, key):
        branch = self[key] = Tree()
        return branch

    def __getattr__(self, name):
        return self[name]

    def __setattr__(self, name, value):
        self[name] = value


@dataclasses.dataclass
class Result(OrderedDict):
    """A result as Hugging Face's: items and attributes, read by name or by number."""

    a: torch.Tensor | None = None
    b: torch.Tensor | None = None

    def __post_init__(self):
        for field in dataclasses.fields(self):
            if getattr(self, field.name) is not None:
                self[field.name] = getattr(self, field.name)

    def __getitem__(self, key):
        return dict(self.items())[key] if isinstance(key, str) else tuple(self.values())[key]

    def __setattr__(self, name, value):
        if name in self.keys() and value is not None:
            super().__setitem__(name, value)
        super().__setattr__(name, value)

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)


class Lower(OrderedDict):
    def __setitem__(self, key, value):
        super().__setitem__(key.lower(), value)

    def __getitem__(self, key):
        return super().__getitem__(key.lower())

    def __contains__(self, key):
        return super().__contains__(key.lower())


class Latest(OrderedDict):
    """A cache that drops what was used longest ago."""

    def __init__(self, most):
        super().__init__()
        self.most = most

    def __getitem__(self, key):
        self.move_to_end(key)
        return super().__getitem__(key)

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        if len(self) > self.most:
            self.popitem(last=False)


class Keyed(defaultdict):
    def __missing__(self, key):
        value = self[key] = self.default_factory(key)
        return value


class Made:
    """A factory with a state."""

    def __init__(self):
        self.count = 0

    def __call__(self):
        self.count += 1
        return self.count


class Scaled(list):
    """A list that changes what is put in and taken out."""

    def __init__(self, *items):
        super().__init__(items)
        self.scale = 1

    def __getitem__(self, index):
        return super().__getitem__(index) * self.scale

    def __setitem__(self, index, value):
        super().__setitem__(index, value * 2)

    def append(self, value):
        super().append(value + 1)


class Recent(deque):
    def __init__(self, most):
        super().__init__(maxlen=most)
        self.count = 0

    def append(self, value):
        self.count += 1
        super().append(value)


class Next(set):
    def add(self, value):
        super().add(value + 1)


class Tally(Counter):
    def add(self, key):
        self[key] += 1


class Slotted(dict):
    __slots__ = ("tag",)

    def __init__(self, *args, **items):
        super().__init__(*args, **items)
        self.tag = 1


class LowerUser(UserDict):
    def __setitem__(self, key, value):
        super().__setitem__(key.lower(), value)


def attributes_and_items(s, x):
    y = x * s.k + s["k"]
    s.out, s["n"] = y, s["n"] + 1
    return y * s.out * s.n


def nested(s, x):
    s.b.c = s["b"].c + 1
    s.made = {"y": x * s.b.c}
    return s["made"].y + len(s)


def branches(s, x):
    s.out.y = x * s.b.c
    s.count.n = s.b.c + 1
    return s.out.y * s.count["n"] + len(s)


def result(s, x):
    y = s.a * x + s["a"] + s[0]
    s["b"] = y
    s.a = y * 2
    return y + s[1]


def lowered(s, x):
    s["OUT"], s["N"] = x * s["K"], s["n"] + 1
    return s["out"] * ("Z" in s) + len(s) + s["N"] + s.setdefault("NEW", 3)


def latest(s, x):
    s["abc"[int(s.most)]] = x
    s.most = (s.most + 1) % 3
    return sum(s.values()) + len(s)


def counted(s, x):
    s.add("a")
    return x * s["a"] + s["absent"]


def appended(s, x):
    s.append(x.sum())
    return x * sum(s) * s.count


def scaled(s, x):
    s[0] = x
    s.append(x)
    s.scale += 1
    return s[0] + s[-1]


def slotted(s, x):
    s.tag += 1
    s["y"] = x
    return x * s.tag


def from_factory(s, x):
    return x * s["key"] + s["other"] + len(s)


STATES = {
    "own dict": (lambda: OwnDict(k=2.0, n=0), attributes_and_items),
    "own methods as attributes": (lambda: Attributes(k=2.0, n=0), attributes_and_items),
    "both": (lambda: Both(k=2.0, n=0), attributes_and_items),
    "both, nested": (lambda: Both(b={"c": 2.0}), nested),
    "tree": (lambda: Tree(b=Tree(c=2.0)), branches),
    "result": (lambda: Result(a=torch.ones(2)), result),
    "lower": (lambda: Lower(K=2.0, n=0, Z=1), lowered),
    "latest": (lambda: Latest(2), latest),
    "user dict": (lambda: LowerUser(K=2.0, N=0), lambda s, x: (s.update(OUT=x), s["out"] * s["k"])[1]),
    "keyed": (lambda: Keyed(len), from_factory),
    "factory": (lambda: defaultdict(Made()), from_factory),
    "scaled list": (lambda: Scaled(torch.ones(2)), scaled),
    "deque": (lambda: Recent(2), appended),
    "set": (lambda: Next({3}), lambda s, x: (s.add(x.shape[0]), x * len(s))[1]),
    "counter": (Tally, counted),
    "slots": (lambda: Slotted(a=1), slotted),
}


def content(value):
    """The class, items and attributes of a value, at any depth, for a comparison."""
    if isinstance(value, torch.Tensor):
        return [round(number, 4) for number in value.double().flatten().tolist()]
    if isinstance(value, dict):
        parts = [(key, content(dict.__getitem__(value, key))) for key in type(value).__iter__(value)]
    elif isinstance(value, list):
        parts = [content(item) for item in list.copy(value)]
    else:
        parts = [content(item) for item in value] if isinstance(value, deque | set) else value
    own = {} if getattr(value, "__dict__", value) is value else vars(value)
    slots = [value.tag] if isinstance(value, Slotted) else []
    if isinstance(value, defaultdict):
        factory = value.default_factory
        slots.append(content(factory) if type(factory) is Made else factory.__qualname__)
    attributes = [(name, content(item)) for name, item in own.items()]
    return type(value), parts if type(value) not in (Made, LowerUser) else None, attributes, slots


@pytest.mark.parametrize("name", STATES)
def test_methods_of_a_reached_container_are_interpreted_and_their_writes_repeated(name):
    make, program = STATES[name]
    expected, found = make(), make()
    compiled = thunder.jit(program)
    for i in range(4):
        x, y = (torch.arange(2.0).add(i).requires_grad_() for _ in range(2))
        outcomes = program(expected, x), compiled(found, y)
        assert_close(outcomes[1], outcomes[0])
        assert content(found) == content(expected)
        gradients = [
            torch.autograd.grad(outcome.sum(), leaf, retain_graph=True)
            for outcome, leaf in zip(outcomes, (x, y), strict=True)
        ]
        assert_close(gradients[1], gradients[0])


CHANGES = {
    "an item": lambda s: put(s, "k", 5.0),
    "the order": lambda s: put(s, "n", s.pop("n")),
    "a new item": lambda s: put(s, "new", 1),
}


def put(s, key, value):
    """Store an item by the builtin's method."""
    (OrderedDict if isinstance(s, OrderedDict) else dict).__setitem__(s, key, value)


@pytest.mark.parametrize("cls", [OwnDict, Attributes, Both, Tree, Lower, Slotted])
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_item_of_such_a_dict_is_noticed(cls, change):
    def program(s, x):
        return x * s["k"] + len(s), list(s)

    state = cls(n=0, k=2.0, m=1)
    compiled = thunder.jit(program)
    assert compiled(state, X)[1] == ["n", "k", "m"]
    CHANGES[change](state)
    (expected, keys), (result, found) = program(state, X), compiled(state, X)
    assert_close(result, expected)
    assert found == keys


MADE = {
    "own dict": lambda x: OwnDict(b=x * 2),
    "both": lambda x: Both({"a": 1}, b={"y": x * 2}),
    "tree": lambda x: (t := Tree(), t.a.b.__setitem__("y", x * 2), t)[-1],
    "result": lambda x: Result(a=x, b=x * 2),
    "lower": lambda x: Lower(A=x, B=x * 2),
    "lower of a dict": lambda x: Lower({"A": x}).copy(),
    "keyed": lambda x: (k := Keyed(lambda key: x * len(key)), k["ab"], k)[-1],
    "from keys": lambda x: Lower.fromkeys(["A", "B"], x * 2),
    "list": lambda x: (v := Scaled(x), v.append(x), v)[-1],
    "deque": lambda x: (v := Recent(2), [v.append(x * i) for i in range(3)], v)[-1],
    "set": lambda x: (v := Next(), v.add(x.shape[0]), v)[-1],
    "slots": lambda x: Slotted(y=x * 2),
}


@pytest.mark.parametrize("name", MADE)
def test_a_container_that_the_program_makes_by_its_methods_is_returned(name):
    program, compiled = MADE[name], thunder.jit(MADE[name])
    for x in (X, X * 3):
        assert content(compiled(x)) == content(program(x))
    assert thunder.cache_misses(compiled) == 1


def test_the_attributes_of_a_returned_dict_are_its_items():
    made = thunder.jit(lambda x: OwnDict(b=x * 2))(X)
    made["c"] = 1
    assert (made.c, vars(made) is made) == (1, True)


def test_a_tensor_kept_by_a_method_has_its_gradient():
    def program(s, x):
        s.out = (x * 3).sin()
        return s["out"].sum()

    results = []
    for run in (program, thunder.jit(program)):
        state, x = Both(), torch.arange(2.0).requires_grad_()
        run(state, x)
        state.out.sum().backward()
        results.append(x.grad)
    assert_close(results[1], results[0])


def test_an_operator_that_creates_an_object_by_its_methods_is_refused():
    class Named(OrderedDict):
        def __init__(self, *args, **items):
            super().__init__(*args, **items)
            self.name = "n"

    with pytest.raises(thunder.UnsupportedProgram, match="would create an object of the class"):
        thunder.jit(lambda x: Named(a=x) | {"b": x})(X)


class Doubled(list):
    """A list whose iteration torch does not use."""

    def __iter__(self):
        return (2 * item for item in super().__iter__())

    def __len__(self):
        return 7

    def __getitem__(self, index):
        return super().__getitem__(index) * 3


class DoubledTuple(tuple):
    __slots__ = ()

    def __iter__(self):
        return (2 * item for item in super().__iter__())


@pytest.mark.parametrize("cls", [Doubled, DoubledTuple])
def test_torch_reads_the_items_without_the_methods_of_the_class(cls):
    def program(x, reached):
        shaped = x.view(cls([2, 1])) + torch.ones(size=cls([2, 1]))
        return (
            torch.stack(cls([x, x + 1])),
            shaped.sum(dim=cls([0, 1])),
            torch.cat(reached),
            sum(reached),
        )

    reached, compiled = cls([torch.ones(2), torch.zeros(2)]), thunder.jit(program)
    for x in (X, X * 3):
        assert_close(compiled(x, reached), program(x, reached))


def test_data_of_a_new_tensor_are_iterated_over():
    class Iterated(list):
        def __iter__(self):
            return (2 * item for item in super().__iter__())

    def program(x):
        return x * torch.tensor(Iterated([1, 2]))

    assert_close(thunder.jit(program)(X), program(X))


COPIED = {
    "own dict": lambda x: OwnDict(k=x, n=1),
    "own methods as attributes": lambda x: Attributes(k=x, n=1),
    "both": lambda x: Both(k=x, b={"c": 1}),
    "lower": lambda x: Lower(K=x, N=2),
    "result": lambda x: Result(a=x),
    "scaled list": lambda x: Scaled(x, x),
    "keyed": lambda x: Keyed(len, k=x),
    "tagged": lambda x: Tagged([x], "tag"),
}


@pytest.mark.parametrize("is_deep", [False, True])
@pytest.mark.parametrize("name", COPIED)
def test_a_copy_has_the_items_and_the_attributes(name, is_deep):
    copied = copy.deepcopy if is_deep else copy.copy

    def run(call, make, x):
        state = make(x)
        if isinstance(state, list):
            vars(state)["more"] = 3
        try:
            return content(call(x, state)), content(state)
        except KeyError as error:
            return error.args

    def reached(x, state):
        return copied(state)

    def made(x, state):
        return copied(COPIED[name](x))

    for program in (reached, made):
        compiled = thunder.jit(program)
        for x in (X, X * 3):
            try:
                found = run(compiled, COPIED[name], x)
            except thunder.UnsupportedProgram:
                assert (name, is_deep) == ("keyed", True)
                continue
            assert found == run(program, COPIED[name], x)


def test_a_default_dict_with_methods_is_cleared():
    def program(x, state):
        state.clear()
        return x * state["abc"] + len(state)

    expected, found = Keyed(len, k=1), Keyed(len, k=1)
    assert_close(thunder.jit(program)(X, found), program(X, expected))
    assert found == expected
