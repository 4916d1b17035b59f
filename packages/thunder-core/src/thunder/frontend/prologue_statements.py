"""The statements of a prologue, from the facts that it checks.

    self.fc.weight is read, and x         self = unpack_function_obj(model, name='self')
                                    →     t_fc_weight = unpack_parameter(self, 'fc.weight')
                                          check_tensor_shape_and_metadata(t_fc_weight, (4, 4), …)

Hooks read and extend the statements; `thunder.frontend.prologue_reading` returns the facts of the result, and
the function that runs is written from the facts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from thunder.base.dtypes import to_torch_dtype
from thunder.base.provenance import ABSENT, MEMBER_DICTS, Path, StepKind
from thunder.frontend.facts import KINDS, Fact, GuardKind, Relation, TensorFacts
from thunder.ir.object_names import Constant, as_argument, identifier, readable_name
from thunder.ir.proxies import AnyProxy, DictProxy, GeneratorProxy, NumberProxy, TensorProxy, TupleProxy
from thunder.ir.size_facts import FloatFact, SizeFact, SizeFacts
from thunder.ir.symbol import BoundSymbol, BoundSymbolTag, Symbol
from thunder.ir.symbolic_sizes import SymbolicInt, number_of
from thunder.ir.trace import TraceCtx, TraceProvenance, tracectx
from thunder.ops import prims
from thunder.wrappers.overrides import OVERRIDES

#: the unpacking of each kind of step of a path
STEPS: dict[StepKind, Symbol] = {
    "instance": prims.unpack_own_attr,
    "attribute": prims.unpack_attr,
    "slot": prims.unpack_slot,
    "key": prims.unpack_dict_key,
    "content": prims.unpack_content,
    "index": prims.unpack_getitem,
    "global": prims.unpack_global,
    "cell": prims.unpack_cell,
    "closure": prims.unpack_closure,
    "default": prims.unpack_default,
    "referent": prims.unpack_referent,
    "reference": prims.unpack_reference,
    "proxied": prims.unpack_proxied,
    "typeattr": prims.unpack_type_attr,
    "plain": prims.unpack_plain_tensor,
    "outer": prims.unpack_outer_metadata,
    "iterated": prims.unpack_iterated,
    "length": prims.unpack_length,
    "strides": prims.unpack_strides,
    "array": prims.numpy_array_to_torch_tensor,
    "cached": prims.unpack_cached,
}
KIND_OF_STEP = {symbol.id: kind for kind, symbol in STEPS.items()}
#: the unpacking of an item of each dictionary of a module
MEMBERS = {
    "_modules": prims.unpack_submodule,
    "_parameters": prims.unpack_parameter,
    "_buffers": prims.unpack_buffer,
}
DICT_OF_MEMBER = {symbol.id: name for name, symbol in MEMBERS.items()}
#: the check of each kind of fact whose arguments are the value and what is expected
CHECKS: dict[GuardKind, Symbol] = {
    "is": prims.check_same_object,
    "refers": prims.check_referent,
    "type": prims.check_type,
    "instance": prims.check_instance,
    "equal": prims.check_literal_like,
    "int": prims.check_number_type_and_value,
    "str": prims.check_string_value,
    "len": prims.check_len,
    "keys": prims.check_keys,
    "order": prims.check_set,
    "dir": prims.check_dir,
    "offset": prims.check_storage_offset,
    "array": prims.check_array,
    "silent": prims.check_silent_deaths,
    "seed": prims.check_initial_seed,
    "state": prims.check_state,
}
KIND_OF_CHECK: dict[str, GuardKind] = {symbol.id: kind for kind, symbol in CHECKS.items()}
KIND_OF_CHECK[prims.check_slice_value.id] = "equal"
ALL_CHECKS = frozenset(KIND_OF_CHECK) | {
    prims.check_other_object.id,
    prims.check_none.id,
    prims.check_apart.id,
    prims.check_overlap.id,
    prims.check_different.id,
    prims.check_has_attr.id,
    prims.check_contains.id,
    prims.check_empty.id,
    prims.check_compare.id,
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
    inputs: Sequence[tuple[TensorProxy | GeneratorProxy | NumberProxy, Path]]
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
            symbol, args = STEPS[path.kind], (self.value(path.parent), *step_key)
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

    # -- checks --------------------------------------------------------------------------------------------

    def _arguments(self, fact: Fact) -> tuple[Any, ...] | None:
        """Return the symbol and the arguments of the check of a fact; None if another check includes it."""
        if fact.kind == "distinct":  # the check of all tensors includes it
            return None
        value, expected = self.value(fact.path), as_argument(fact.expected)
        others = [self.value(path) for path in fact.others]
        match fact.kind:
            case "tensor":
                for proxy, path in self.interface.inputs:  # the sizes that the check names
                    if isinstance(proxy, SymbolicInt) and _owner(path) is fact.path:
                        self.value(path)
                return prims.check_tensor_shape_and_metadata, value, *metadata(fact.expected)
            case "same":
                symbol = prims.check_same_object if fact.expected else prims.check_other_object
                return symbol, value, *others
            case "overlap":
                relation = KINDS["overlap"]
                assert isinstance(relation, Relation), "a fact about several tensors is a relation"
                return prims.check_overlap, value, expected, Constant(relation.compute), *others
            case "apart":
                relation = KINDS["apart"]
                assert isinstance(relation, Relation), "a fact about several values is a relation"
                return prims.check_apart, value, Constant(relation.compute), *others
            case "different":
                return prims.check_different, value, *others
            case "lacks":
                return prims.check_has_attr, value, expected, False
            case "has_key" | "lacks_key":
                return prims.check_contains, value, expected, fact.kind == "has_key"
            case "empty":
                return prims.check_empty, value
            case "equal" if type(fact.expected) is slice:
                return prims.check_slice_value, value, expected
            case "==" | "!=" | "<" | "<=" | ">" | ">=":
                return prims.check_compare, value, fact.kind, *others
            case "is" if fact.expected is None:
                return prims.check_none, value
            case "is" if not isinstance(fact.expected, bool):
                return prims.check_same_object, value, Constant(fact.expected)
        return CHECKS[fact.kind], value, expected


def metadata(expected: TensorFacts) -> tuple[Any, ...]:
    """Return the metadata that the check of a tensor has as arguments."""
    shape = expected.shape if expected.free is None else expected.free.shape
    return shape, str(expected.device), expected.dtype, expected.requires_grad


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
