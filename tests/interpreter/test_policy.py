"""What a host sees of a program: every primitive read, write and call; nothing written in Python runs
natively.
"""

from __future__ import annotations

import contextlib
import fnmatch
import gc
import io
import operator
from collections import Counter
from typing import Any

import pytest

from interpreter.audit import native_functions
from interpreter.programs.registry import Program, load_programs
from sweeping import one_in
from thunder.interpreter import Machine, Policy


class Watching(Policy):
    """Counts primitive reads and writes by kind and name."""

    def __init__(self) -> None:
        self.seen: Counter[tuple[str, str]] = Counter()
        self.native: list[Any] = []

    def type_attr(self, cls, name):
        self.seen["type", name] += 1
        return super().type_attr(cls, name)

    def instance_attr(self, obj, name):
        self.seen["instance", name] += 1
        return super().instance_attr(obj, name)

    def super_attr(self, start, after, name):
        self.seen["super", name] += 1
        return super().super_attr(start, after, name)

    def set_instance_attr(self, obj, name, value):
        self.seen["set", name] += 1
        super().set_instance_attr(obj, name, value)

    def load_global(self, namespace, builtin_names, name):
        self.seen["global", name] += 1
        return super().load_global(namespace, builtin_names, name)

    def load_cell(self, cell):
        self.seen["cell", ""] += 1
        return super().load_cell(cell)

    def call_native(self, fn, args, kwargs):
        self.native.append(fn)
        return super().call_native(fn, args, kwargs)


def watch(fn, *args):
    policy = Watching()
    result = Machine(policy).call(fn, args)
    return policy, result


class Scaled:
    """Every way to reach ``secret`` goes through Python code of this class."""

    def __init__(self, value, secret=3):
        self.value = value
        self.secret = secret

    @property
    def scaled(self):
        return self.value * self.secret

    def __getattr__(self, name):
        return f"{name}{self.secret}"

    def __lt__(self, other):
        return self.value * self.secret < other.value * self.secret

    def __eq__(self, other):
        return self.secret == other.secret

    __hash__ = None

    def __iter__(self):
        yield self.secret

    def __len__(self):
        return self.secret

    def __getitem__(self, key):
        return key * self.secret

    def __contains__(self, item):
        return item == self.secret

    def __bool__(self):
        return bool(self.secret)

    def __add__(self, other):
        return self.secret + other

    __radd__ = __add__

    def __call__(self, x):
        return x + self.secret

    def __enter__(self):
        return self.secret

    def __exit__(self, *exc):
        self.seen = self.secret

    def __repr__(self):
        return f"<{self.secret}>"

    def __format__(self, spec):
        return f"{self.secret}{spec}"

    def __index__(self):
        return self.secret

    def __reversed__(self):
        return iter([self.secret])

    def __float__(self):
        return float(self.secret)

    def __round__(self, n=None):
        return self.secret

    def __neg__(self):
        return -self.secret


class File:
    """Something with a ``write``."""

    def write(self, text):
        self.text = text


def entering(s):
    with s as x:
        return x


READERS = {
    "property": lambda s: s.scaled,
    "getattr hook": lambda s: s.nothing,
    "getattr": lambda s: getattr(s, "scaled"),  # noqa: B009
    "hasattr": lambda s: hasattr(s, "scaled"),
    "attrgetter": lambda s: operator.attrgetter("scaled")(s),
    "methodcaller": lambda s: operator.methodcaller("__len__")(s),
    "key of sorted": lambda s: sorted([1, 2], key=lambda v: v * s.secret),
    "key of sort": lambda s: [1, 2].sort(key=lambda v: v * s.secret),
    "key of max": lambda s: max([1, 2], key=lambda v: v * s.secret),
    "order in sorted": lambda s: sorted([s, Scaled(0)]) and None,
    "order in min": lambda s: min(s, Scaled(0)) and None,
    "map": lambda s: list(map(lambda v: v * s.secret, [1])),
    "filter": lambda s: list(filter(lambda v: v == s.secret, [1])),
    "callable in map": lambda s: list(map(s, [1])),
    "list": list,
    "tuple of generator": lambda s: tuple(x for x in s),
    "starred": lambda s: [*s],
    "unpacking": lambda s: [x for (x,) in [s]],
    "zip": lambda s: list(zip(s, [1], strict=True)),
    "join": lambda s: ",".join(str(x) for x in s),
    "sum": lambda s: sum([s]),
    "any": lambda s: any([s]),
    "len": len,
    "bool": bool,
    "not": lambda s: not s,
    "if": lambda s: 1 if s else 2,
    "subscript": lambda s: s[2],
    "in": lambda s: 3 in s,
    "equality in list": lambda s: s in [Scaled(1)],
    "equality of lists": lambda s: [s] == [Scaled(1)],
    "add": lambda s: s + 1,
    "reflected add": lambda s: 1 + s,
    "operator.add": lambda s: operator.add(1, s),
    "negative": lambda s: -s,
    "call": lambda s: s(1),
    "with": entering,
    "repr": repr,
    "str": str,
    "f-string": lambda s: f"{s:x}",
    "repr in list": lambda s: repr([s]),
    "print": lambda s: print(s, file=io.StringIO()),
    "print to own file": lambda s: print(s.secret, file=File()),
    "format": lambda s: format(s, "x"),
    "percent": lambda s: operator.mod("%s %r", (s, s)),
    "str.format": lambda s: "{} {0.scaled} {0[2]}".replace("{} ", "").format(s),
    "index of list": lambda s: [1, 2, 3, 4][s],
    "slice": lambda s: [1, 2, 3, 4][:s],
    "range": lambda s: range(4)[s],
    "reversed": lambda s: list(reversed(s)),
    "float": float,
    "int": int,
    "round": round,
    "match": lambda s: _match(s),
    "setattr and getattr": lambda s: setattr(s, "z", s.secret),
    "vars": lambda s: vars(s)["secret"] + s.secret,
}


def _match(s):
    match s:
        case Scaled(scaled=x):
            return x


@pytest.mark.parametrize("how", READERS)
def test_a_read_inside_python_code_is_seen_however_it_is_reached(how: str, capsys):
    policy, _ = watch(READERS[how], Scaled(2))
    assert policy.seen["instance", "secret"] >= 1
    assert native_functions(READERS[how], (Scaled(2),)) == set()


def test_globals_cells_and_super_are_read_through_the_policy():
    k = 3

    class Child(Scaled):
        def __len__(self):
            return super().__len__() + k

    policy, result = watch(lambda c: len(c), Child(1))
    assert result == 6
    assert policy.seen["super", "__len__"] == 1
    assert policy.seen["cell", ""] >= 2
    assert policy.seen["global", "len"] == 1


def test_writes_go_through_the_policy():
    def program(s):
        s.value = 5
        setattr(s, "other", 6)  # noqa: B010
        object.__setattr__(s, "third", 7)

    policy, _ = watch(program, Scaled(1))
    assert [policy.seen["set", name] for name in ("value", "other", "third")] == [1, 1, 1]


def test_native_calls_and_operators_arrive_at_call_native():
    policy, result = watch(lambda items: (items[0], operator.add(items, [1]), abs(-2), items == [5]), [5])
    assert result == (5, [5, 1], 2, True)
    assert operator.getitem in policy.native
    assert operator.add in policy.native


def test_an_exception_of_the_policy_reaches_the_program():
    class Refusing(Policy):
        def call_native(self, fn, args, kwargs):
            raise LookupError(f"refused {fn.__name__}")

    def program():
        try:
            return [].copy()
        except LookupError as e:
            return e

    assert Machine(Refusing()).call(program).args == ("refused copy",)


def test_functions_that_the_policy_calls_native_are_not_interpreted():
    def native():
        return 1

    class Native(Policy):
        def is_native(self, fn):
            return fn is native

    machine = Machine(Native())
    assert machine.call(lambda: native() + 1) == 2


def test_made_objects_are_announced():
    made = []

    class Noting(Policy):
        def __init__(self):
            self.on_make = lambda obj: made.append(type(obj).__name__) or obj

    def program(n):
        f = lambda: n  # noqa: E731
        return [1, n], {"a": n}, (n, f), {n}, slice(n), (x for x in [])

    Machine(Noting()).call(program, (1,))
    assert {"function", "list", "dict", "tuple", "set", "cell", "generator"} <= set(made)


def test_stores_of_local_variables_are_announced():
    seen = []

    class Naming(Policy):
        on_store_local = staticmethod(
            lambda frame, name, value: seen.append((frame.code.co_name, name, value))
        )

    def program(a):
        b = a + 1
        for c in [b]:
            b = c
        return b

    Machine(Naming()).call(program, (1,))
    assert seen == [("program", "b", 2), ("program", "c", 2), ("program", "b", 2)]


# Python functions that only C code calls, where no table can put the interpreter between: by reason.
RUN_NATIVELY = [
    # functools.lru_cache around a function of a module that was imported natively: its cache is native
    "typing.py:*",
    "typing_extensions.py:*",  # replaces functions of typing
    "fnmatch.py:*",
    "tokenize.py:_compile",
    "parse.py:*",
    "__init__.py:_compile*",  # re: and the template functions that a C pattern asks for
    "__init__.py:_subx*",
    "__init__.py:compile",
    "__init__.py:escape",
    "__init__.py:template",
    "_parser.py:*",
    "_compiler.py:*",
    "_casefix.py:*",
    "enum.py:Flag.*",
    "enum.py:Enum*",
    "enum.py:property.*",
    "<string>:<lambda>",
    "functools.py:_HashedSeq.__hash__",
    # functions with caches in C, and tests of C functions by path, of later versions
    "inspect.py:_shadowed_dict_from_*",
    "<frozen posixpath>:*",
    # hashing and comparing the keys of dictionaries and sets
    "*.__hash__",
    "*.__eq__",
    # abstract base classes and new classes
    "<frozen abc>:*",
    "*.__subclasshook__*",
    "*.__init_subclass__*",
    "*:_proto_hook*",
    "abc.py:*",
    # pickling, copying, JSON in C, finalisers, exception groups, files
    "copying.py:*",
    "*.__del__",
    "*.derive",
    "<frozen codecs>:*",
    "codecs.py:*",
    "pathlib.py:*",
    "_local.py:*",
    "__init__.py:PurePath.*",
    "tempfile.py:*",
    "warnings.py:*",
    "_py_warnings.py:*",
    # % formatting asks a mapping of the program for its items
    "*.Mapping.__getitem__",
    # sequence repetition asks for an index
    "*.__index__",
]


@pytest.mark.parametrize(
    "program",
    one_in(2, [p for p in load_programs() if "asyncio" not in p.name]),
    ids=lambda program: program.name,
)
def test_no_python_function_runs_natively(program: Program, capsys):
    gc.collect()  # a program that collects garbage would run the finalizers of an earlier program's objects
    found = set()
    for arguments in program.arguments:
        with contextlib.suppress(Exception):
            program.fn(*arguments)  # the standard library caches what its functions return
        found |= native_functions(program.fn, arguments)
    unexpected = {
        name for name in found if not any(fnmatch.fnmatch(name, pattern) for pattern in RUN_NATIVELY)
    }
    assert unexpected == set()
