"""The statements of a prologue: its facts with variables in the places of paths, and back.

    self.fc.weight is read, and x         self = unpack_function_obj(model, name='self')
                                    ↔     t_fc_weight = unpack_parameter(self, 'fc.weight')
                                          check_tensor_shape_and_metadata(t_fc_weight, (4, 4), …)

Hooks read and extend the statements (:func:`structured`). The function that runs is written from the facts of
the result (:func:`interface_of`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from thunder.base.dtypes import to_torch_dtype
from thunder.base.equal_values import COMPARISONS
from thunder.base.errors import PluginError
from thunder.base.provenance import ABSENT, MEMBER_DICTS, Path, StepKind, object_root, root
from thunder.base.structural_ids import COMMENT, RELEASES
from thunder.frontend.facts import Fact, TensorFacts
from thunder.frontend.free_sizes import FreeSizes
from thunder.frontend.value_names import is_size
from thunder.ir.module_inputs import returned_inputs
from thunder.ir.object_names import Constant, argument_value, as_argument, identifier, readable_name
from thunder.ir.proxies import (
    AnyProxy,
    DictProxy,
    GeneratorProxy,
    TensorProxy,
    TupleProxy,
    is_proxy,
)
from thunder.ir.size_facts import FloatFact, SizeFact, SizeFacts
from thunder.ir.symbol import BoundSymbol, BoundSymbolTag, Symbol
from thunder.ir.symbolic_numbers import SymbolicNumber
from thunder.ir.symbolic_sizes import SymbolicInt, number_of
from thunder.ir.trace import TraceCtx, TraceProvenance, tracectx
from thunder.ops import prims
from thunder.ops.prims import Check
from thunder.wrappers.overrides import OVERRIDES

#: the kind of step of each unpacking
KIND_OF_STEP = {symbol.id: kind for kind, symbol in prims.UNPACKINGS.items()}
#: the unpacking of an item of each dictionary of a module
MEMBERS = {
    "_modules": prims.unpack_submodule,
    "_parameters": prims.unpack_parameter,
    "_buffers": prims.unpack_buffer,
}
DICT_OF_MEMBER = {symbol.id: name for name, symbol in MEMBERS.items()}
#: the unpackings of all elements, and the type of the container
CONTAINERS = {prims.unpack_tuple.id: tuple, prims.unpack_list.id: list}

BoundSymbolTag.register_tag("IF_RETURNED")
#: the check of a tensor that the prologue needs only if it returns the tensor
IF_RETURNED = BoundSymbolTag.IF_RETURNED


@dataclass(frozen=True, eq=False)
class Interface:
    """The facts that a prologue checks, and the values that it returns.

    ``inputs`` are those of the computation, ``reached`` the paths of what the epilogue needs. ``added`` are
    overriding tensors that the program itself does not read; what is not returned of them is not checked.
    """

    facts: Sequence[Fact]
    inputs: Sequence[tuple[TensorProxy | GeneratorProxy | SymbolicNumber, Path]]
    reached: Sequence[Path]
    added: Sequence[tuple[TensorProxy, Path]] = ()
    #: what is known of symbolic sizes, which are among the inputs
    sizes: SizeFacts | None = None


def structured(interface: Interface) -> TraceCtx:
    """Return the prologue as statements, one for each fact and each value that is fetched."""
    builder = _StatementBuilder(interface)
    with tracectx(builder.trace):
        builder.run()
    return builder.trace


class _StatementBuilder:
    """Statements in the order of the facts; each path is unpacked where it is first needed."""

    def __init__(self, interface: Interface) -> None:
        self.interface = interface
        self.trace = TraceCtx(name="prologue")
        self.trace.star_args = True
        self.trace.set_provenance(TraceProvenance("Acquisition"))
        self.expected = {f.path: f.expected for f in interface.facts if f.sym is prims.check_tensor}
        self.proxies = {path: proxy for proxy, path in (*interface.inputs, *interface.added)}
        self.values: dict[Path, Any] = {}

    def run(self) -> None:
        """Record the prologue."""
        trace, interface = self.trace, self.interface
        trace.names |= {proxy.name for proxy in self.proxies.values()}
        added = {path for _, path in interface.added}
        for fact in interface.facts:
            if fact.sym is not prims.check_distinct:  # the check of all tensors includes it
                self._record(*self._check(fact), tags={IF_RETURNED} if fact.path in added else ())
        for relation in interface.sizes.checked() if interface.sizes is not None else ():
            self._record(prims.check_compare, *_compared(interface.sizes, relation))
        inputs = tuple(self.value(path) for _, path in interface.inputs)
        reached = tuple(self.value(path) for path in interface.reached)
        self._record(prims.python_return, (inputs, reached))

    def _record(
        self, symbol: Symbol, *args: Any, output: Any = None, tags: Iterable[Any] = (), **kwargs: Any
    ) -> Any:
        self.trace.bound_symbols.append(BoundSymbol(symbol, args, kwargs, output, tags=tags))
        return output

    # -- values --------------------------------------------------------------------------------------------

    def value(self, path: Path) -> Any:
        """Return the proxy of the value at a path; it is unpacked where it is first needed."""
        value = self.values.get(path)
        if value is None:
            value = self.values[path] = self._unpacked(path)
        return value

    def _unpacked(self, path: Path) -> Any:
        if path.parent is None:
            return self._root(path)
        member = _member(path)
        if member is not None:
            symbol, owner, key = member
            args = self.value(owner), key
        else:
            step_key = () if path.kind in ("array", "cached") else (as_argument(path.key),)
            symbol, args = prims.UNPACKINGS[path.kind], (self.value(path.parent), *step_key)
        return self._record(symbol, *args, output=self._proxy(path))

    def _root(self, path: Path) -> Any:
        if path.root_object is ABSENT:
            return (TupleProxy if path.key == "args" else DictProxy)(str(path.key))
        output, name = AnyProxy(prefix="v"), str(path.key)
        if name == identifier(name) and name != readable_name(
            path.root_object
        ):  # else the object has the name
            output = output.replace(name=self.trace.make_derived_name(name))
        constant = Constant(path.root_object)
        return self._record(prims.unpack_function_obj, constant, name=str(path.key), output=output)

    def _proxy(self, path: Path) -> Any:
        """Return the proxy of a new value: of a tensor with the metadata that it has."""
        proxy = self.proxies.get(path)
        if proxy is None:
            return AnyProxy(prefix="v")
        expected = self.expected.get(path)
        if expected is None or not isinstance(proxy, TensorProxy) or expected.free is not None:
            return proxy
        if proxy.shape == expected.shape and to_torch_dtype(proxy.dtype) == expected.dtype:
            return proxy
        return proxy.replace(
            shape=expected.shape, dtype=expected.dtype, strides=expected.strides, input_offset=None
        )

    def _check(self, fact: Fact) -> tuple[Any, ...]:
        """Return the symbol and the arguments of the statement of a fact."""
        if fact.sym is prims.check_tensor:
            value = self.value(fact.path)
            for proxy, path in self.interface.inputs:  # the sizes that the check names
                if isinstance(proxy, SymbolicInt) and _owner(path) is fact.path:
                    self.value(path)
            return prims.check_tensor_shape_and_metadata, value, *fact.expected.metadata
        is_named = fact.sym is prims.check_same_object and type(fact.expected) is not bool
        constant = Constant if is_named else as_argument
        return fact.sym, *(self.value(a) if type(a) is Path else constant(a) for a in fact.args)


def _owner(path: Path) -> Path | None:
    """Return the path of the tensor of which a path leads to a size or a stride."""
    return None if path.parent is None else path.parent.parent


def _compared(sizes: SizeFacts | None, fact: SizeFact | FloatFact) -> tuple[Any, str, Any]:
    """Return both sides of a fact about sizes, and the sign between them."""
    assert sizes is not None, "facts about sizes are those of a compile"
    left, right = fact.sides()
    return number_of(sizes, left), fact.relation, number_of(sizes, right)


def _is_named(path: Path, dictionaries: frozenset[str] = MEMBER_DICTS) -> bool:
    """Return whether a path leads to an item of a dictionary of a module, by a name."""
    parent = path.parent
    return (
        path.kind == "key"
        and type(path.key) is str
        and parent is not None
        and parent.kind == "instance"
        and parent.key in dictionaries
    )


def _member(path: Path) -> tuple[Symbol, Path, str] | None:
    """Return how a member of a module is unpacked: the symbol, the outermost module, the dotted name."""
    parent = path.parent
    if parent is not None and parent.parent is None and type(parent.root_object) is dict:
        if parent.key != OVERRIDES:
            return None
        is_parameter = getattr(path.fetch({}), "requires_grad", False)
        return prims.unpack_parameter if is_parameter else prims.unpack_buffer, parent, path.key
    if parent is None or not _is_named(path):
        return None
    names, owner = [path.key], _module_of(path)
    while _is_named(owner, frozenset({"_modules"})):
        names.insert(0, owner.key)
        owner = _module_of(owner)
    return MEMBERS[parent.key], owner, ".".join(names)


def _module_of(path: Path) -> Path:
    """Return the path of the module of which a path leads to a member."""
    dictionary = path.parent
    assert dictionary is not None, "a member is read from a dictionary"
    assert dictionary.parent is not None, "the dictionary is read from a module"
    return dictionary.parent


# -- the facts of statements -------------------------------------------------------------------------------


class Acquired(Protocol):
    """The facts that a program was acquired with, and what is known of symbols."""

    @property
    def facts(self) -> Iterable[Fact]: ...

    @property
    def sizes(self) -> SizeFacts | None: ...


def interface_of(
    prologue: TraceCtx,
    roots: dict[str, Any],
    acquired: Acquired | None = None,
    *,
    assumed_device: bool = False,
) -> Interface:
    """Return what the statements of a prologue check and return, for the call with these roots.

    Sizes that are symbols are those of what was acquired; what is known of them is checked apart from the
    statements. With ``assumed_device`` tensors are taken to be on the devices that the checks name. Raises
    PluginError for a statement that is neither an unpacking nor a check, and for the check of a tensor that
    does not hold for the call.
    """
    facts, sizes = ((), None) if acquired is None else (acquired.facts, acquired.sizes)
    free = {f.path.source: f.expected.free for f in facts if f.sym is prims.check_tensor and f.expected.free}
    reader = _StatementReader(roots, assumed_device, free)
    inputs, reached = returned_inputs(prologue)
    returned = {proxy.name for proxy in inputs}
    for bsym in prologue.bound_symbols[:-1]:
        if IF_RETURNED not in bsym.own_tags or bsym.args[0].name in returned:
            reader.read(bsym)
    _check_sizes_are_found(reader, inputs)
    return Interface(
        facts=reader.with_distinctness(),
        inputs=tuple((proxy, reader.path(proxy)) for proxy in inputs),
        reached=tuple(map(reader.path, reached)),
        sizes=sizes,
    )


def _check_sizes_are_found(reader: _StatementReader, inputs: Iterable[Any]) -> None:
    """Raise PluginError for the size of a tensor whose check, which finds the size, a transform dropped."""
    checked = {fact.path.source for fact in reader.facts if fact.sym is prims.check_tensor}
    for path in (reader.path(proxy) for proxy in inputs if isinstance(proxy, SymbolicNumber)):
        owner = path.parent.parent if path.parent is not None and is_size(path) else None
        if owner is not None and owner.source not in checked:
            raise PluginError(
                f"a transform dropped the check of {owner.source}, of which a size or stride is a symbol",
                hint="Keep the checks of arguments, or leave out keeps_sizes = True.",
            )


class _StatementReader:
    """Reads statements in order; a path is one object for each value, however often it is used."""

    def __init__(self, roots: dict[str, Any], assumed_device: bool, free: Mapping[str, FreeSizes]) -> None:
        self.roots, self.assumed_device, self.free = roots, assumed_device, free
        self.paths: dict[str, Path] = {name: root(name) for name in ("args", "kwargs")}
        self.facts: list[Fact] = []
        self._steps: dict[tuple[int, str, str], Path] = {}

    def path(self, proxy: Any) -> Path:
        """Return the path of the value of a proxy."""
        return self.paths[proxy.name]

    def read(self, bsym: BoundSymbol) -> None:
        """Note what a statement unpacks or checks."""
        symbol = bsym.sym.id
        if symbol == COMMENT or symbol in RELEASES:
            return
        if symbol in CONTAINERS:
            self._read_elements(bsym)
        elif symbol == prims.check_tensors.id:
            for proxy, metadata in zip(*bsym.args, strict=True):
                self.read(prims.check_tensor_shape_and_metadata.bind(proxy, *metadata, output=None))
        elif bsym.output is not None:
            self.paths[bsym.output.name] = self._unpacked(bsym)
        elif symbol == prims.check_tensor_shape_and_metadata.id:
            self.facts.append(self._tensor_fact(bsym))
        elif symbol == prims.check_compare.id and any(isinstance(p, SymbolicNumber) for p in bsym.args):
            return  # a relation of symbols
        else:
            self.facts.append(self._fact(bsym))

    def _step(self, path: Path, kind: StepKind, key: Any) -> Path:
        """Return the path that is a step longer; the same one for the same name."""
        if kind not in ("instance", "key") or type(key) is not str:
            return path.step(kind, key)
        known = self._steps.get((id(path), kind, key))
        if known is None:
            known = self._steps[id(path), kind, key] = path.step(kind, key)
        return known

    def _read_elements(self, bsym: BoundSymbol) -> None:
        """Note the elements that a tuple or list is unpacked into, with its type and its length."""
        container, n = bsym.args
        path = self.path(container)
        kind = CONTAINERS[bsym.sym.id]
        self.facts += [Fact(prims.check_type, (path, kind)), Fact(prims.check_len, (path, n))]
        for index, element in enumerate(bsym.output):
            self.paths[element.name] = self._step(path, "index", index)

    def _unpacked(self, bsym: BoundSymbol) -> Path:
        symbol, (first, *rest) = bsym.sym.id, bsym.args
        if symbol == prims.unpack_function_obj.id:
            return object_root(bsym.kwargs.get("name", "object"), argument_value(first))
        if symbol in KIND_OF_STEP:
            key = argument_value(rest[0]) if rest else None
            return self._step(self.path(first), KIND_OF_STEP[symbol], key)
        if symbol not in DICT_OF_MEMBER:
            raise _unknown(bsym)
        path, (name,) = self.path(first), rest
        if type(path.root_object) is dict:  # overriding tensors
            return self._step(path, "key", name)
        *owners, last = name.split(".")
        for owner in owners:
            path = self._step(self._step(path, "instance", "_modules"), "key", owner)
        return self._step(self._step(path, "instance", DICT_OF_MEMBER[symbol]), "key", last)

    def _fact(self, bsym: BoundSymbol) -> Fact:
        check, args = bsym.sym, bsym.args
        if not isinstance(check, Check) or not is_proxy(args[0]) or not _is_known(check, args):
            raise _unknown(bsym)
        return Fact(check, tuple(self.path(a) if is_proxy(a) else argument_value(a) for a in args))

    def _tensor_fact(self, bsym: BoundSymbol) -> Fact:
        proxy, shape, device, dtype, requires_grad = bsym.args
        path = self.path(proxy)
        tensor = path.fetch(self.roots)
        if not isinstance(tensor, torch.Tensor):
            raise _wrong_check(bsym, path, type(tensor).__name__)
        assumed = torch.device(device) if self.assumed_device else None
        facts = TensorFacts.of(tensor, assumed, self.free.get(path.source))
        if facts.metadata != (tuple(shape), device, dtype, requires_grad):
            raise _wrong_check(bsym, path, str(facts.metadata))
        return Fact(prims.check_tensor, (path, facts))

    def with_distinctness(self) -> tuple[Fact, ...]:
        """Return the facts, and the fact that all tensors are different objects."""
        paths = tuple(f.path for f in self.facts if f.sym is prims.check_tensor)
        return (*self.facts, *([Fact(prims.check_distinct, paths)] if len(paths) > 1 else ()))


def _is_known(check: Check, args: tuple[Any, ...]) -> bool:
    return check is not prims.check_compare or args[1] in COMPARISONS


def _wrong_check(bsym: BoundSymbol, path: Path, found: str) -> PluginError:
    return PluginError(
        f"a transform checks {path.source} for metadata that the tensor does not have",
        found={"statement": str(bsym), "tensor": found},
        hint="The check has the metadata of the tensor in use; get_checks has that statement.",
    )


def _unknown(bsym: BoundSymbol) -> PluginError:
    return PluginError(
        f"a prologue has a call of {bsym.sym.id}, which is neither an unpacking nor a check",
        found={"statement": str(bsym)},
        hint="The primitives of prologues are in thunder.core.prims: unpack_… and check_….",
    )
