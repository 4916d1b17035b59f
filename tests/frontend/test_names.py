"""Names of users in generated code: whatever they are, the code is valid and means what it should."""

from __future__ import annotations

import keyword
import types
import unicodedata

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import thunder
from sweeping import in_turn
from thunder.ir.object_names import RESERVED_NAMES, identifier

NAMES = [
    *("class", "__class__", "__init__", "None", "__debug__", "lambda", "return", "async", "match"),
    *("1abc", "a b", "a-b", "x.y", "", "_", "__", "²", "x²", "é", "e\u0301", "ﬁ", "\u210c", "🙂", "ª", "x·"),
    *("type", "len", "int", "str", "dict", "print", "setattr", "builtins", "KeyError", "torch", "math"),
    *("self", "args", "kwargs", "t0", "n0", "i0", "c1", "cell1", "const1", "tensor1", "obj1", "new", "new_1"),
    *("epilogue", "computation", "prologue", "discard_attribute", "x" * 300),
]
PROGRAMS = {}


@given(st.text(max_size=12), st.sampled_from(["Module", "a b", "1"]))
def test_an_identifier_is_a_name_that_code_does_not_use_otherwise(text, otherwise):
    name = identifier(text, otherwise)
    assert name.isidentifier()
    assert not keyword.iskeyword(name)
    assert name not in RESERVED_NAMES
    assert name == unicodedata.normalize("NFKC", name)


def program(build):
    PROGRAMS[build.__name__] = build
    return build


@program
def class_and_module(name):
    cls = type(name, (), {"level": 0})
    namespace = {"__name__": name, "cls": cls, "owner": types.SimpleNamespace(n=0), "items": []}
    exec(
        "def program(x):\n    global G\n    cls.level += 1\n    owner.n += 1\n    items.append(x + 1)\n"
        "    G = owner.n\n    return x * 2, items[-1]\n",
        namespace,
    )
    state = lambda: (cls.level, namespace["owner"].n, len(namespace["items"]), namespace["G"])  # noqa: E731
    return namespace["program"], state


@program
def after_super(name):
    class Base:
        def read(self):
            return self.n

    class Derived(Base):
        level = 0

        def read(self):
            setattr(__class__, name or "level", getattr(__class__, name or "level", 0) + 1)
            __class__.level += 1
            return super().read() + __class__.level

    owner = Derived()
    owner.n = 1
    is_special = name.startswith("__")
    return (lambda x: x * (1 if is_special else owner.read())), lambda: Derived.level


@program
def items_and_attributes(name):
    if hasattr(object, name):
        return None
    owner, table = types.SimpleNamespace(), {}

    def program(x):
        table[name] = table.get(name, 0) + 1
        setattr(owner, name, getattr(owner, name, 0) + 2)
        return x + table[name], {name: x}

    return program, lambda: (table[name], vars(owner))


@program
def attributes_of_a_class_in_python(name):
    if hasattr(object, name):
        return None
    owner = type("Owner", (), {})()
    setattr(owner, name, 0)

    def program(x):
        setattr(owner, name, getattr(owner, name) + 1)
        return x * getattr(owner, name)

    return program, lambda: vars(owner)


@program
def own_module(name):
    if not name or "." in name or hasattr(torch.nn.Module(), name):
        return None

    def forward(self, x):
        setattr(self, f"{name}_b", getattr(self, f"{name}_b") + 1)
        return x * getattr(self, name) + getattr(self, f"{name}_b")

    module = type(name, (torch.nn.Module,), {"forward": forward})()
    module.register_parameter(name, torch.nn.Parameter(torch.ones(2)))
    module.register_buffer(f"{name}_b", torch.zeros(2))
    return module, lambda: getattr(module, f"{name}_b").tolist()


@program
def gradient_function(name):
    rules = {
        "forward": staticmethod(lambda ctx, x: x * 3),
        "backward": staticmethod(lambda ctx, g: g * 3),
    }
    function = type(name, (torch.autograd.Function,), rules)
    return (lambda x: function.apply(x)), lambda: 0


@program
def kept_object(name):
    cls, kept = type(name, (), {}), []

    def program(x):
        owner = cls()
        owner.value = x * 2
        kept.append(owner)
        kept.append(owner)
        return x + 1

    return program, lambda: (kept[-1] is kept[-2], type(kept[-1]) is cls, kept[-1].value.tolist())


@program
def variables(name):
    if not name.isidentifier() or keyword.iskeyword(name) or name == "__debug__":
        return None
    counted = types.SimpleNamespace(k=0)
    namespace = {"kept": [], "counts": {"k": 0}, unicodedata.normalize("NFKC", name): counted}
    exec(
        f"def inner({name}):\n    {name} = {name} + 1\n    both = [{name}, {name}]\n    kept.append(both)\n"
        f"    counts['k'] += 1\n    return both, both, {{'a': {name}, 'b': slice(1, 2), 'c': {{1}}}}\n"
        f"def program(x):\n    {name}.k += 1\n    return inner(x + {name}.k)\n",
        namespace,
    )
    return namespace["program"], lambda: (len(namespace["kept"]), namespace["counts"], counted.k)


@program
def parameters(name):
    if not name.isidentifier() or keyword.iskeyword(name) or name in ("__debug__", "self", "other"):
        return None
    namespace = {"counts": {"k": 0}}
    exec(
        f"def f({name}, other={{}}):\n    counts['k'] += 1\n    return [{name} * 2, counts['k']]\n", namespace
    )
    return namespace["f"], lambda: namespace["counts"]


def plain(value):
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    return [plain(v) for v in value] if isinstance(value, list | tuple) else repr(value)


def calls(kind, name, compiles):
    built = PROGRAMS[kind](name)
    if built is None:
        return None
    fn, state = built
    fn = thunder.jit(fn) if compiles else fn
    return [(plain(fn(torch.ones(2, requires_grad=True))), plain(state())) for _ in range(3)]


@pytest.mark.parametrize(("name", "kind"), in_turn(NAMES, PROGRAMS))
def test_a_program_with_a_name_gives_what_eager_gives(name, kind):
    assert calls(kind, name, True) == calls(kind, name, False)


@pytest.mark.parametrize("name", NAMES)
def test_a_keyword_argument_may_have_any_name(name):
    def program(**named):
        return [value * 2 for value in named.values()]

    named = {name: torch.ones(2), "other": torch.zeros(2)}
    assert plain(thunder.jit(program)(**named)) == plain(program(**named))
