"""Members of a module that are read, written and read again: every way to write, times every way to read.

A program is text made of four choices: the kind of member, how it is written, how it is read, and when
(before the write, after it, or both). Eager torch runs it on one module, the compiler on another, three
times; results must agree, and what the two modules hold after each call.

    python -m soundness.module_members        all programs; prints those that differ
    python -m soundness.module_members 0 8        the first of eight parts
"""

from __future__ import annotations

import collections
import functools
import itertools
import random
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from comparison.errors import is_a
from soundness.harness import is_stand_in, ramp

NAME = "member"


class Scale(nn.Module):
    """Multiplies by a number that it holds."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


class Owner(nn.Module):
    """What has the member; the spare parts are what a program may put in its place."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.before = 1.5
        self.register_buffer("first", ramp(3))
        KINDS[kind].install(self)
        self.weight = nn.Parameter(ramp(3, start=2.0), requires_grad=False)
        self.spare_parameter = nn.Parameter(ramp(3, start=-2.0), requires_grad=False)
        self.spare_module = Scale(5.0)
        self.after = 2.5

    def use(self, value: Any, x: torch.Tensor) -> Any:
        """A result that shows which value it is."""
        return value(x) if callable(value) else value

    def nested(self) -> Any:
        """The member, read in a method."""
        return self.member

    def in_a_method(self, value: Any) -> None:
        """The member, written in a method."""
        self.member = value


class CountsWrites(Owner):
    """As many metrics and configurations do: writes pass through a method of the class."""

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__["writes"] = self.__dict__.get("writes", 0) + 1
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        self.__dict__["writes"] = self.__dict__.get("writes", 0) + 100
        super().__delattr__(name)


class CountsReads(Owner):
    """What is not found in the usual places passes through a method of the class."""

    def __getattr__(self, name: str) -> Any:
        self.__dict__["reads"] = self.__dict__.get("reads", 0) + 1
        return super().__getattr__(name)


class Intercepts(Owner):
    """Every read passes through a method of the class."""

    def __getattribute__(self, name: str) -> Any:
        return super().__getattribute__("member" if name == "alias" else name)

    def nested(self) -> Any:
        """The member under another name."""
        return self.alias


class HasProperty(Owner):
    """The member is read and written through a property as well."""

    @property
    def alias(self) -> Any:
        """The member."""
        return self.member

    @alias.setter
    def alias(self, value: Any) -> None:
        self.member = value

    def nested(self) -> Any:
        """The member, by the property."""
        return self.alias

    def in_a_method(self, value: Any) -> None:
        """The member, written by the property."""
        self.alias = value


class HasDefault(Owner):
    """Below the member lies an attribute of the class, with a ``register_buffer`` of its own beside it."""

    member = 0.5

    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        """As the base's, and counted."""
        self.__dict__["registered"] = self.__dict__.get("registered", 0) + 1
        super().register_buffer(name, tensor, persistent)


CLASSES: dict[str, type[Owner]] = {
    cls.__name__: cls for cls in (Owner, CountsWrites, CountsReads, Intercepts, HasProperty, HasDefault)
}


@dataclass(frozen=True)
class Kind:
    """A kind of member: how it is there at first, and the text of a new value."""

    install: Callable[[nn.Module], object]
    new: str
    place: str  # the dictionary of the module that holds it


def _set(value: Callable[[], Any]) -> Callable[[nn.Module], object]:
    return lambda m: setattr(m, NAME, value())


def _double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def triple(x: torch.Tensor) -> torch.Tensor:
    """A function that a program may put in the place of another."""
    return x * 3


KINDS: dict[str, Kind] = {
    "number": Kind(_set(lambda: 3), "7", "__dict__"),
    "list": Kind(_set(lambda: [1.0, 2.0]), "[x.shape[0], x + 1]", "__dict__"),
    "tensor": Kind(_set(lambda: ramp(3)), "x * 2 + 1", "__dict__"),
    "function": Kind(_set(lambda: _double), "triple", "__dict__"),
    "parameter": Kind(
        lambda m: m._parameters.update(member=nn.Parameter(ramp(3))), "self.spare_parameter", "_parameters"
    ),
    "no parameter": Kind(lambda m: m._parameters.update(member=None), "self.spare_parameter", "_parameters"),
    "buffer": Kind(lambda m: m._buffers.update(member=ramp(3)), "x * 2 + 1", "_buffers"),
    "hidden buffer": Kind(
        lambda m: m._buffers.update(member=ramp(3)) or m._non_persistent_buffers_set.add(NAME),
        "torch.cat([x, x])",
        "_buffers",
    ),
    "no buffer": Kind(lambda m: m._buffers.update(member=None), "x * 2 + 1", "_buffers"),
    "module": Kind(lambda m: m._modules.update(member=Scale(4.0)), "self.spare_module", "_modules"),
    "new module": Kind(lambda m: m._modules.update(member=Scale(4.0)), "Scale(6.0)", "_modules"),
}

#: ways to write, as statements; `o` is the owner, `v` the new value, {place} the dictionary of this kind
WRITES: dict[str, str] = {
    "attribute": "o.member = v",
    "none": "o.member = None",
    "twice": "o.member = None; o.member = v",
    "setattr": "setattr(o, 'member', v)",
    "object": "object.__setattr__(o, 'member', v)",
    "module": "nn.Module.__setattr__(o, 'member', v)",
    "method": "o.in_a_method(v)",
    "place": "o.{place}['member'] = v",
    "place of vars": "vars(o).get('{place}', vars(o))['member'] = v",
    "vars": "vars(o)['member'] = v",
    "dict": "o.__dict__['member'] = v",
    "update": "o.{place}.update(member=v)",
    "pop": "o.{place}.pop('member'); o.{place}['member'] = v",
    "pop only": "o.{place}.pop('member', None)",
    "setdefault": "o.{place}.setdefault('member', v)",
    "delete": "del o.member",
    "delattr": "delattr(o, 'member')",
    "delete and set": "del o.member; o.member = v",
    "set and delete": "o.member = v; del o.member",
    "delete and attribute": "del o.member; object.__setattr__(o, 'member', v)",
    "module delete": "nn.Module.__delattr__(o, 'member')",
    "object delete": "object.__delattr__(o, 'member')",
    "register_buffer": "o.register_buffer('member', v)",
    "register_buffer again": "del o.member; o.register_buffer('member', v, persistent=False)",
    "register_parameter": "o.register_parameter('member', v)",
    "register_module": "o.register_module('member', v)",
    "add_module": "o.add_module('member', v)",
    "item": "o.member[0] = 9.0",
    "in place": "o.member.add_(1)",
    "new member": "o.added = v; o.member = v",
}

#: ways to read, as expressions
READS: dict[str, str] = {
    "attribute": "o.use(o.member, x)",
    "getattr": "o.use(getattr(o, 'member', None), x)",
    "nested": "o.use(o.nested(), x)",
    "hasattr": "hasattr(o, 'member')",
    "place": "o.use(o.{place}['member'], x)",
    "in place": "('member' in o.{place}, list(o.{place}))",
    "vars": "('member' in vars(o), list(vars(o)))",
    "dict get": "o.use(o.__dict__.get('member'), x)",
    "object": "o.use(object.__getattribute__(o, 'member'), x)",
    "get_buffer": "o.get_buffer('member')",
    "get_parameter": "o.get_parameter('member')",
    "get_submodule": "o.get_submodule('member')(x)",
    "named_buffers": "list(o.named_buffers())",
    "named_parameters": "list(o.named_parameters())",
    "named_children": "[(n, m(x)) for n, m in o.named_children()]",
    "children": "[m(x) for m in o.children()]",
    "modules": "[type(m).__name__ for m in self.modules()]",
    "state_dict": "dict(o.state_dict())",
    "is": "o.member is v",
    "isinstance": "(isinstance(o.member, nn.Module), isinstance(o.member, torch.Tensor))",
}

ORDERS = ("before", "after", "both")
PLACES = ("self", "self.sub")

#: a write that makes a value of its own, or none, at a moment at which a read of it means nothing
_PROGRAM = """
def forward(self, x):
    o = {owner}
    v = {new}
    r = []
    {before}
    {write}
    {after}
    return r, x * 2
"""


#: class, kind of member, write, read, order, owner
Choice = tuple[str, str, str, str, str, str]


def program_of(choice: Choice) -> str:
    """The text of one program."""
    _, kind, write, read, order, owner = choice
    place = KINDS[kind].place
    reading = f"r.append({READS[read].format(place=place)})"
    return _PROGRAM.format(
        owner=owner,
        new=KINDS[kind].new,
        before=reading if order != "after" else "pass",
        write=WRITES[write].format(place=place),
        after=reading if order != "before" else "pass",
    )


def build(choice: Choice) -> nn.Module:
    """The module of one choice; each call makes a class of its own."""
    base, kind = CLASSES[choice[0]], choice[1]
    namespace: dict[str, Any] = {"torch": torch, "nn": nn, "Scale": Scale, "triple": triple}
    exec(compile(program_of(choice), "<members>", "exec"), namespace)
    module: nn.Module = type("Program", (base,), {"forward": namespace["forward"]})(kind)
    module.sub = base(kind)
    return module


def holdings(module: nn.Module) -> list[tuple[Any, ...]]:
    """What a module and its submodules hold, in order: dictionary, name, kind and value."""
    found: list[tuple[Any, ...]] = []
    for path, m in module.named_modules(remove_duplicate=False):
        for name, value in vars(m).items():
            if name in ("_parameters", "_buffers", "_modules"):
                found += [(path, name, k, *facts_of(v)) for k, v in value.items()]
            else:
                found.append((path, "__dict__", name, *facts_of(value)))
    return found


def facts_of(value: Any) -> tuple[Any, ...]:
    """A value as something that can be compared; a stand-in of the compiler's compares with nothing."""
    assert not is_stand_in(type(value)), f"a {type(value).__name__} was left behind"
    if isinstance(value, torch.Tensor):
        return (type(value).__name__, value.requires_grad, tuple(value.shape), value.detach().tolist())
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, *map(facts_of, value))
    if isinstance(value, dict):
        return (type(value).__name__, *((k, facts_of(v)) for k, v in value.items()))
    if isinstance(value, nn.Module | types.FunctionType | collections.abc.Callable):
        return (getattr(value, "__qualname__", type(value).__qualname__),)
    return (type(value).__name__, repr(value))


def outcome(fn: Callable[..., Any], x: torch.Tensor) -> tuple[Any, BaseException | None]:
    """Return the facts of a result, or the error."""
    try:
        with torch.no_grad():
            return facts_of(fn(x)), None
    except Exception as error:
        return None, error


def disturb(module: nn.Module) -> None:
    """Changes in place what a program may have put into the module, to tell new objects from old ones."""
    for m in module.modules():
        if isinstance(m, Scale):
            m.factor += 1
        held = vars(m).get(NAME)
        if isinstance(held, list):
            held.append(0.5)


def judge(compiler: Any, choice: Choice) -> str | None:
    """What differs between eager and the compiler over three calls, "refused: …", or None."""
    theirs, ours = build(choice), build(choice)
    compiled = compiler.jit(ours, recompile_limit=None)
    for call in range(3):
        x = ramp(3, start=float(call))
        expected, error = outcome(theirs, x)
        found, raised = outcome(compiled, x)
        if is_a(raised, "UnsupportedProgram"):
            return f"refused: {raised}"
        if error is not None or raised is not None:
            # what was written before an error stays only in eager, and that is documented
            return None if type(error) is type(raised) else f"call {call} raised {raised!r}, eager {error!r}"
        if expected != found:
            return f"call {call} gave {found}, eager {expected}"
        pairs = itertools.zip_longest(holdings(theirs), holdings(ours))
        lines = [f"{mine} instead of {right}" for right, mine in pairs if right != mine]
        if lines:
            return f"after call {call}: " + "; ".join(lines)
        disturb(theirs)
        disturb(ours)
    return None


@functools.cache
def programs() -> list[Choice]:
    """Every choice, shuffled alike in each process, so that any stretch has many kinds of each."""
    product = list(itertools.product(CLASSES, KINDS, WRITES, READS, ORDERS, PLACES))
    random.Random(0).shuffle(product)
    return product


def main(part: int = 0, parts: int = 1) -> int:
    """Runs one part of all programs, and prints what differs."""
    import thunder

    counts: collections.Counter[str] = collections.Counter()
    refusals: collections.Counter[str] = collections.Counter()
    for choice in itertools.islice(programs(), part, None, parts):
        found = judge(thunder, choice)
        verdict = "right" if found is None else "refused" if found.startswith("refused") else "WRONG"
        counts[verdict] += 1
        if verdict == "WRONG":
            print(choice, found, flush=True)
        if verdict == "refused":
            refusals[str(found).splitlines()[0]] += 1
    for text, count in refusals.most_common(40):
        print(count, text)
    print(dict(counts))
    return counts["WRONG"]


if __name__ == "__main__":
    sys.exit(bool(main(*map(int, sys.argv[1:]))))
