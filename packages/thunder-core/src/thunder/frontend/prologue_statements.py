"""Facts as the statements of a prologue, and the facts of a prologue's statements.

    self.fc.weight is read, and x         self = unpack_function_obj(model, name='self')
                                    ↔     t_fc_weight = unpack_parameter(self, 'fc.weight')
                                          check_tensor_shape_and_metadata(t_fc_weight, (4, 4), …)

Hooks read and extend the statements; the function that runs is written from the facts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from thunder.base.dtypes import to_torch_dtype
from thunder.base.errors import PluginError
from thunder.base.provenance import ABSENT, MEMBER_DICTS, Path, StepKind, object_root, root
from thunder.base.structural_ids import COMMENT, RELEASES, RETURN
from thunder.frontend.facts import KINDS, Fact, GuardKind, Relation, TensorFacts
from thunder.ir.object_names import Constant, argument_value, as_argument, readable_name
from thunder.ir.proxies import AnyProxy, DictProxy, GeneratorProxy, TensorProxy, TupleProxy, is_proxy
from thunder.ir.rewrite import module_tensors
from thunder.ir.symbol import BoundSymbol, BoundSymbolTag, Symbol
from thunder.ir.trace import TraceCtx, TraceProvenance, tracectx
from thunder.ops import prims
from thunder.wrappers.overrides import OVERRIDES

#: the unpacking of each kind of step of a path
_STEPS: dict[StepKind, Symbol] = {
    "instance": prims.unpack_own_attr,
    "attribute": prims.unpack_attr,
    "slot": prims.unpack_slot,
    "key": prims.unpack_dict_key,
    "item": prims.unpack_item,
    "index": prims.unpack_getitem,
    "global": prims.unpack_global,
    "cell": prims.unpack_cell,
    "closure": prims.unpack_closure,
    "default": prims.unpack_default,
    "referent": prims.unpack_referent,
    "reference": prims.unpack_reference,
    "proxied": prims.unpack_proxied,
    "typeattr": prims.unpack_type_attr,
}
_KIND_OF_STEP = {symbol.id: kind for kind, symbol in _STEPS.items()}
#: the unpacking of an item of each dictionary of a module
_MEMBERS = {
    "_modules": prims.unpack_submodule,
    "_parameters": prims.unpack_parameter,
    "_buffers": prims.unpack_buffer,
}
_DICT_OF_MEMBER = {symbol.id: name for name, symbol in _MEMBERS.items()}
#: the check of each kind of fact whose arguments are the value and what is expected
_CHECKS: dict[GuardKind, Symbol] = {
    "is": prims.check_same_object,
    "refers": prims.check_referent,
    "type": prims.check_type,
    "equal": prims.check_literal_like,
    "int": prims.check_number_type_and_value,
    "str": prims.check_string_value,
    "len": prims.check_len,
    "keys": prims.check_keys,
    "order": prims.check_set,
    "dir": prims.check_dir,
    "offset": prims.check_storage_offset,
    "seed": prims.check_initial_seed,
    "state": prims.check_state,
}
_KIND_OF_CHECK = {symbol.id: kind for kind, symbol in _CHECKS.items()}
_ALL_CHECKS = frozenset(_KIND_OF_CHECK) | {
    prims.check_other_object.id,
    prims.check_none.id,
    prims.check_overlap.id,
    prims.check_different.id,
    prims.check_has_attr.id,
    prims.check_contains.id,
    prims.check_empty.id,
}

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
    inputs: Sequence[tuple[TensorProxy | GeneratorProxy, Path]]
    reached: Sequence[Path]
    added: Sequence[tuple[TensorProxy, Path]] = ()


# -- from facts to statements ------------------------------------------------------------------------------


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
        self.expected = {f.path: f.expected for f in interface.facts if f.kind == "tensor"}
        self.proxies = {path: proxy for proxy, path in (*interface.inputs, *interface.added)}
        self.values: dict[Path, Any] = {}

    def run(self) -> None:
        """Record the prologue."""
        trace, interface = self.trace, self.interface
        trace.names |= {proxy.name for proxy in self.proxies.values()}
        added = {path for _, path in interface.added}
        for fact in interface.facts:
            arguments = self._arguments(fact)
            if arguments is not None:
                symbol, *rest = arguments
                self._record(symbol, *rest, tags={IF_RETURNED} if fact.path in added else ())
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
            symbol, args = _STEPS[path.kind], (self.value(path.parent), as_argument(path.key))
        return self._record(symbol, *args, output=self._proxy(path))

    def _root(self, path: Path) -> Any:
        if path.root_object is ABSENT:
            return (TupleProxy if path.key == "args" else DictProxy)(str(path.key))
        output, name = AnyProxy(prefix="v"), str(path.key)
        if name.isidentifier() and name != readable_name(path.root_object):  # else the object has the name
            output = output.replace(name=self.trace.make_derived_name(name))
        constant = Constant(path.root_object)
        return self._record(prims.unpack_function_obj, constant, name=str(path.key), output=output)

    def _proxy(self, path: Path) -> Any:
        """Return the proxy of a new value: of a tensor with the metadata that it has."""
        proxy = self.proxies.get(path)
        if proxy is None:
            return AnyProxy(prefix="v")
        expected = self.expected.get(path)
        if expected is None or isinstance(proxy, GeneratorProxy):
            return proxy
        if proxy.shape == expected.shape and to_torch_dtype(proxy.dtype) == expected.dtype:
            return proxy
        return proxy.replace(
            shape=expected.shape, dtype=expected.dtype, strides=expected.strides, input_offset=None
        )

    # -- checks --------------------------------------------------------------------------------------------

    def _arguments(self, fact: Fact) -> tuple[Any, ...] | None:
        """Return the symbol and the arguments of the check of a fact; None if another check includes it."""
        if fact.kind == "distinct":  # the check of all tensors includes it
            return None
        value, expected = self.value(fact.path), as_argument(fact.expected)
        others = [self.value(path) for path in fact.others]
        match fact.kind:
            case "tensor":
                return prims.check_tensor_shape_and_metadata, value, *_metadata(fact.expected)
            case "same":
                symbol = prims.check_same_object if fact.expected else prims.check_other_object
                return symbol, value, *others
            case "overlap":
                relation = KINDS["overlap"]
                assert isinstance(relation, Relation), "a fact about several tensors is a relation"
                return prims.check_overlap, value, expected, Constant(relation.compute), *others
            case "different":
                return prims.check_different, value, *others
            case "lacks":
                return prims.check_has_attr, value, expected, False
            case "has_key" | "lacks_key":
                return prims.check_contains, value, expected, fact.kind == "has_key"
            case "empty":
                return prims.check_empty, value
            case "is" if fact.expected is None:
                return prims.check_none, value
            case "is" if not isinstance(fact.expected, bool):
                return prims.check_same_object, value, Constant(fact.expected)
        return _CHECKS[fact.kind], value, expected


def _metadata(expected: TensorFacts) -> tuple[Any, ...]:
    return expected.shape, str(expected.device), expected.dtype, expected.requires_grad


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
    return _MEMBERS[parent.key], owner, ".".join(names)


def _module_of(path: Path) -> Path:
    """Return the path of the module of which a path leads to a member."""
    dictionary = path.parent
    assert dictionary is not None, "a member is read from a dictionary"
    assert dictionary.parent is not None, "the dictionary is read from a module"
    return dictionary.parent


# -- from statements to facts ------------------------------------------------------------------------------


def interface_of(prologue: TraceCtx, roots: dict[str, Any], *, assumed_device: bool = False) -> Interface:
    """Return what the statements of a prologue check and return, for the call with these roots.

    With ``assumed_device`` tensors are taken to be on the devices that the checks name. Raises PluginError
    for a statement that is neither an unpacking nor a check, and for the check of a tensor that does not hold
    for the call.
    """
    reader = _StatementReader(roots, assumed_device)
    end = prologue.bound_symbols[-1] if prologue.bound_symbols else None
    inputs, reached = _returned(end)
    returned = {proxy.name for proxy in inputs}
    for bsym in prologue.bound_symbols[:-1]:
        if IF_RETURNED not in bsym.own_tags or bsym.args[0].name in returned:
            reader.read(bsym)
    return Interface(
        facts=reader.with_distinctness(),
        inputs=tuple((proxy, reader.path(proxy)) for proxy in inputs),
        reached=tuple(map(reader.path, reached)),
    )


def _returned(end: BoundSymbol | None) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    if end is not None and end.sym.id == RETURN and len(end.args) == 1:
        match end.args[0]:
            case (tuple() as inputs, tuple() as reached):
                return inputs, reached
    raise PluginError(
        "a transform returned a prologue that does not return the inputs of computation and epilogue",
        found=None if end is None else str(end),
        hint="The last statement returns ((inputs of the computation), (inputs of the epilogue)).",
    )


def _interface(prologue: TraceCtx, computation: TraceCtx) -> tuple[tuple[Any, ...], list[Any]]:
    """Return what a prologue returns for the computation, and what the computation takes."""
    returned, _ = _returned(prologue.bound_symbols[-1] if prologue.bound_symbols else None)
    return returned, [p for p in computation.args if is_proxy(p)]


def check_count(prologue: TraceCtx, computation: TraceCtx, transform: str) -> None:
    """Raise PluginError unless a prologue returns as many inputs as the computation takes.

    ``transform`` is the name of the transform that returned them.
    """
    returned, taken = _interface(prologue, computation)
    if len(returned) != len(taken):
        raise PluginError(
            f"the prologue that {transform} returned has {len(returned)} inputs for the computation, "
            f"which takes {len(taken)}",
            found={"prologue": [p.name for p in returned], "computation": [p.name for p in taken]},
            hint="thunder.core.rewrite.add_input adds an input to both.",
        )


def check_metadata(prologue: TraceCtx, computation: TraceCtx) -> None:
    """Raise PluginError unless the computation takes its inputs with the metadata that they have."""
    names = {tensor.name: name for name, tensor in module_tensors(prologue).items()}
    for value, argument in zip(*_interface(prologue, computation), strict=True):
        if _described(value) != _described(argument):
            name = names.get(value.name, value.name)
            raise PluginError(
                f"the program reads {name} with other metadata than the tensor in use has",
                found={"program": _described(argument), "in use": _described(value)},
                hint="It is overridden with a tensor of another form, and no transform changes how it is "
                "read. thunder.core.rewrite.replace_input does, in transform_traces_pre_prologue.",
            )


def _described(value: Any) -> str:
    grad = ", requires grad" if getattr(value, "requires_grad", False) else ""
    return f"{value.type_string()}{grad}"


class _StatementReader:
    """Reads statements in order; a path is one object for each value, however often it is used."""

    def __init__(self, roots: dict[str, Any], assumed_device: bool) -> None:
        self.roots, self.assumed_device = roots, assumed_device
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
        if bsym.output is not None:
            self.paths[bsym.output.name] = self._unpacked(bsym)
        elif symbol == prims.check_tensor_shape_and_metadata.id:
            self.facts.append(self._tensor_fact(bsym))
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

    def _unpacked(self, bsym: BoundSymbol) -> Path:
        symbol, (first, *rest) = bsym.sym.id, bsym.args
        if symbol == prims.unpack_function_obj.id:
            return object_root(bsym.kwargs.get("name", "object"), argument_value(first))
        if symbol in _KIND_OF_STEP:
            return self._step(self.path(first), _KIND_OF_STEP[symbol], argument_value(rest[0]))
        if symbol not in _DICT_OF_MEMBER:
            raise _unknown(bsym)
        path, (name,) = self.path(first), rest
        if type(path.root_object) is dict:  # overriding tensors
            return self._step(path, "key", name)
        *owners, last = name.split(".")
        for owner in owners:
            path = self._step(self._step(path, "instance", "_modules"), "key", owner)
        return self._step(self._step(path, "instance", _DICT_OF_MEMBER[symbol]), "key", last)

    def _fact(self, bsym: BoundSymbol) -> Fact:
        symbol, (first, *rest) = bsym.sym.id, bsym.args
        if symbol not in _ALL_CHECKS or not is_proxy(first):
            raise _unknown(bsym)
        path, expected = self.path(first), [argument_value(argument) for argument in rest]
        others = tuple(self.path(p) for p in rest if is_proxy(p))
        match symbol.removeprefix("prims."):
            case "check_same_object" | "check_other_object" if others:
                return Fact("same", path, symbol == prims.check_same_object.id, others)
            case "check_none":
                return Fact("is", path, None)
            case "check_overlap":
                return Fact("overlap", path, expected[0], others)
            case "check_different":
                return Fact("different", path, True, others)
            case "check_has_attr" if expected[1:] == [False]:
                return Fact("lacks", path, expected[0])
            case "check_has_attr":
                return Fact("has_key", self._step(path, "attribute", "__dict__"), expected[0])
            case "check_contains":
                return Fact("has_key" if expected[1:] != [False] else "lacks_key", path, expected[0])
            case "check_empty":
                return Fact("empty", path, None)
        return Fact(_KIND_OF_CHECK[symbol], path, expected[0])

    def _tensor_fact(self, bsym: BoundSymbol) -> Fact:
        proxy, shape, device, dtype, requires_grad = bsym.args
        path = self.path(proxy)
        tensor = path.fetch(self.roots)
        if not isinstance(tensor, torch.Tensor):
            raise _wrong_check(bsym, path, type(tensor).__name__)
        facts = TensorFacts.of(tensor, torch.device(device) if self.assumed_device else None)
        if _metadata(facts) != (tuple(shape), device, dtype, requires_grad):
            raise _wrong_check(bsym, path, str(_metadata(facts)))
        return Fact("tensor", path, facts)

    def with_distinctness(self) -> tuple[Fact, ...]:
        """Return the facts, and the fact that all tensors are different objects."""
        paths = [f.path for f in self.facts if f.kind == "tensor"]
        distinct = [Fact("distinct", paths[0], True, tuple(paths[1:]))] if len(paths) > 1 else []
        return (*self.facts, *distinct)


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
