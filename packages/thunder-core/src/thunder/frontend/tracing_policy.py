"""The tracing policy: reads become facts, writes wait, operators are recorded.

the program reads x.k     →   a fact about x.k, and its value, proxy or shadow
the program writes x.k    →   an entry in the overlay of x; the object itself stays as it is
the program calls torch   →   a bound symbol
the program calls C code  →   by the table of natives, or not at all
"""

from __future__ import annotations

import contextlib
import functools
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from thunder.base.devices import Device
from thunder.base.errors import OperatorError, ThunderError
from thunder.base.langctx import LanguageContext
from thunder.base.provenance import Path
from thunder.frontend.attribute_policy import AttributePolicy
from thunder.frontend.call_dispatch import CallResolver
from thunder.frontend.checkpoints.region_effects import RegionPolicy
from thunder.frontend.custom_gradients.backward_policy import BackwardPolicy
from thunder.frontend.equal_modules.equal_calls import EqualModules
from thunder.frontend.lookasides import imports, made_values, python_functions, weakrefs
from thunder.frontend.natives import key_protocols, libraries, native_arguments, native_calls, unread_items
from thunder.frontend.natives.descriptors import descriptor_of
from thunder.frontend.objects.class_kinds import has_python_key
from thunder.frontend.objects.object_table import ObjectTable
from thunder.frontend.opaque_calls import (
    array_functions,
    native_functions,
    opaque_acquisition,
    opaque_iterators,
    unmodelled_operands,
)
from thunder.frontend.opaque_calls.array_functions import NOT_TAKEN
from thunder.frontend.opaque_calls.opaque_hints import add_opaque_hint
from thunder.frontend.output import warning_calls
from thunder.frontend.output.deferred_texts import combined, copies_texts
from thunder.frontend.output.percent_texts import is_percent, percent_text
from thunder.frontend.places import Effect, Place
from thunder.frontend.raised_errors import name_tensors
from thunder.frontend.session_rules import HandlerTable, SessionRules
from thunder.frontend.torch_functions import override_calls
from thunder.frontend.torch_functions.override_state import TorchFunctions
from thunder.frontend.traced_replacements import ReplacedCalls, ReplacementTable
from thunder.frontend.types import gradient_nodes, module_members
from thunder.frontend.types.globals_view import GlobalsView
from thunder.frontend.types.gradient_nodes import GradientNode
from thunder.interpreter.frame import Frame, has_handler, may_catch
from thunder.interpreter.policy import FunctionParts
from thunder.ir.proxies import TensorProxy
from thunder.ir.trace import Source, TraceCtx
from thunder.ir.unmodelled_proxies import UnmodelledObject
from thunder.ops import prims
from thunder.ops.torch_errors import as_torch_raises
from thunder.wrappers.compiled_function import CompiledFunction

#: types of defaults that have no parts: a tuple that is the same object has the same ones
_CONSTANTS = frozenset({type(None), bool, int, float, complex, str, bytes})


class Tracer(AttributePolicy):
    """The policy of one acquisition.

    Args:
        rules: what is done by rules and not interpreted.
        replacements: the functions in whose place others are interpreted.
        trace, objects, language, sharp_edge, assumed_device: see :class:`TracingSession`.
    """

    def __init__(
        self,
        trace: TraceCtx,
        objects: ObjectTable,
        language: LanguageContext,
        sharp_edge: Callable[[ThunderError], None],
        rules: SessionRules,
        replacements: ReplacementTable,
        *,
        assumed_device: Device | None = None,
    ) -> None:
        super().__init__(trace, objects, language, sharp_edge, assumed_device)
        self.handlers, self.kinds = HandlerTable(rules.handlers), rules.kinds
        objects.adopt_by_rule = self._adopt_by_rule
        objects.callback = lambda fn: self.machine.shim(fn)
        objects.adopt_unread_iterator = lambda raw, path: opaque_iterators.adopt_unread(self, raw, path)
        self._calls = CallResolver(self, rules.lookasides, replacements)
        self.state(ReplacedCalls).table = replacements
        self.equal_modules = EqualModules(self, self._calls.is_replaced)
        self._parts: dict[int, tuple[Any, FunctionParts]] = {}
        self._constants: set[int] | None = None  # ids of those of the code that was interpreted
        self._torch_functions = self.state(TorchFunctions)

    def place_changed(self, places: frozenset[Place]) -> None:
        """Let the policies of the parts in which the program is come before that of its own level."""
        self.objects.effects += 1
        self.__class__ = _class_within(places)
        self.machine.on_make = self.on_make
        self.objects.before_fact = self.check_fact if Place.BACKWARD in places else None

    def _adopt_by_rule(self, raw: Any, path: Path) -> Any:
        rule = self.handlers[type(raw)].adopt
        return NotImplemented if rule is None else rule(self, raw, path)

    # -- attributes ------------------------------------------------------------------------------------------

    def load_attr(self, obj: Any, name: str) -> Any:
        if id(obj) in self.equal_modules.around:
            self.objects.own_effects += 1
        load = self.handlers[type(obj)].load
        if load is not None:
            return load(self, obj, name)
        self.type_attr(type(obj), "__getattribute__")
        return self.machine.generic_load_attr(obj, name)

    def store_attr(self, obj: Any, name: str, value: Any) -> None:
        store = self.handlers[type(obj)].store
        if store is None:
            self.store_plain(obj, name, value)
        else:
            store(self, obj, name, value)

    def delete_attr(self, obj: Any, name: str) -> None:
        delete = self.handlers[type(obj)].delete
        if delete is None:
            self.delete_plain(obj, name)
        else:
            delete(self, obj, name)

    # -- variables -------------------------------------------------------------------------------------------

    def load_global(self, namespace: dict[str, Any], builtin_names: Mapping[str, Any], name: str) -> Any:
        return self.variables.load_global(namespace, builtin_names, name)

    def load_cell(self, cell: types.CellType) -> Any:
        return self.variables.load_cell(cell)

    def namespace(self, namespace: Any) -> Any:
        return python_functions.namespace_of(self, namespace)

    def globals_of(self, namespace: dict[str, Any]) -> GlobalsView:
        return GlobalsView(self, namespace)

    def store_global(self, namespace: dict[str, Any], name: str, value: Any) -> None:
        self.variables.store_global(namespace, name, value)

    def delete_global(self, namespace: dict[str, Any], name: str) -> None:
        self.variables.delete_global(namespace, name)

    def store_cell(self, cell: types.CellType, value: Any) -> None:
        self.objects.own_effects += not self.equal_modules.has_made(cell)
        self.variables.store_cell(cell, value)

    def delete_cell(self, cell: types.CellType) -> None:
        self.objects.own_effects += not self.equal_modules.has_made(cell)
        self.variables.delete_cell(cell)

    # -- calls -----------------------------------------------------------------------------------------------

    def call(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call ``fn`` by its handler, see Note [Order of dispatch]."""
        try:
            if self._torch_functions.applies:
                result = override_calls.call(self, fn, args, kwargs)
                if result is not override_calls.NOT_OVERRIDDEN:
                    return result
            if self.objects.has_unmodelled and unmodelled_operands.are_passed(self, fn, args, kwargs):
                return unmodelled_operands.call(self, fn, args, kwargs)
            if (self.uses_arrays or isinstance(fn, type | UnmodelledObject)) and native_functions.takes(
                self, fn, args, kwargs
            ):
                return native_functions.call(self, fn, args, kwargs)
            if self.uses_arrays and (made := array_functions.call(self, fn, args, kwargs)) is not NOT_TAKEN:
                return made
            handler = self._calls.resolve(fn)
            if handler is not None:
                if not self._calls.only_reads(handler):
                    self.objects.effects += 1
                if self.objects.unread and not _passes_on(handler, fn):
                    if handler in _AS_IT_IS or self._calls.takes_unread(fn):
                        self.read_lists(*args, *kwargs.values())
                    elif made_values.are_read(self, fn, fn, args, kwargs):
                        return made_values.derived(self, fn, args, kwargs)
                    else:
                        fn, args, kwargs = unread_items.readable_call(self, fn, fn, args, kwargs)
                return handler(self, fn, args, kwargs)
            return self.machine.generic_call(fn, args, kwargs)
        except ThunderError as error:
            raise self._placed(error) from error.__cause__

    def _placed(self, error: ThunderError) -> ThunderError:
        """Add to an error where the program is."""
        add_opaque_hint(error, self.machine.frames)
        return error.add_locations(self.locations())

    def call_native(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        native_arguments.count_effects(self, fn, args, kwargs)
        if is_percent(fn, args) and (text := percent_text(self, *args)) is not None:
            return text
        if self.objects.has_unmodelled and unmodelled_operands.are_passed(self, fn, args, kwargs):
            return unmodelled_operands.call(self, fn, args, kwargs)
        if self.uses_arrays and native_functions.takes(self, fn, args, kwargs):
            return native_functions.call(self, fn, args, kwargs)
        if self.uses_arrays and (made := array_functions.call(self, fn, args, kwargs)) is not NOT_TAKEN:
            return made
        if self.objects.unread:
            descriptor = descriptor_of(fn)
            if copies_texts(self, fn, descriptor, args):
                return combined(self, native_calls.call(self, fn, args, kwargs))
            if made_values.are_read(self, fn, descriptor, args, kwargs):
                return made_values.derived(self, fn, args, kwargs)
            fn, args, kwargs = unread_items.readable_call(self, fn, descriptor, args, kwargs)
        if self._torch_functions.applies or override_calls.has_foreign(args):
            return override_calls.call_native(self, fn, args, kwargs)
        return combined(self, self.run_native(fn, args, kwargs))

    def call_native_from(
        self, namespace: dict[str, Any], fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        return self.call_native(fn, args, kwargs)

    run_native = native_calls.call

    def call_unmodelled(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return unmodelled_operands.call(self, fn, args, kwargs)

    def copied_text(self, text: str) -> str:
        copied: str = combined(self, text)
        return copied

    def read_items(self, items: Any) -> None:
        if self.objects.unread:
            self.objects.read_items(items)

    def read_lists(self, *values: Any) -> None:
        if self.objects.unread:
            unread_items.read_lists(self, values)

    def read_text(self, text: str) -> str:
        return unread_items.readable_keys(self, (text,))[0] if self.objects.unread else text

    def is_same(self, a: Any, b: Any) -> bool:
        for one, other in ((a, b), (b, a)):
            rule = self.handlers[type(one)].is_same
            same = NotImplemented if rule is None else rule(self, one, other)
            if same is not NotImplemented:
                return bool(same)
        first, second = self.entry_of(a), self.entry_of(b)
        if first is not None and second is not None and first is not second:
            self.note(prims.check_other_object, first.path, second.path)
        return a is b

    def next(self, iterator: Iterator[Any]) -> Any:
        if self.objects.unread:
            unread_items.readable_keys(self, (iterator,))
        return super().next(iterator)

    def gradient_node(self, x: TensorProxy) -> GradientNode:
        return gradient_nodes.gradient_node(self, x)

    def truth(self, value: Any) -> bool:
        rule = self.handlers[type(value)].truth
        try:
            answer = NotImplemented if rule is None else rule(self, value)
        except ThunderError as error:
            raise self._placed(error) from error.__cause__
        return self.machine.generic_truth(value) if answer is NotImplemented else bool(answer)

    def class_of(self, obj: Any) -> type:
        class_of = self.handlers[type(obj)].class_of
        return type(obj) if class_of is None else class_of(self, obj)

    def referent(self, reference: weakref.ref[Any]) -> Any:
        return weakrefs.referent_of(self, reference)

    def function_parts(self, fn: types.FunctionType) -> FunctionParts:
        if id(fn) in self.created_by_program or self.is_native(fn):
            return super().function_parts(fn)
        read = self._parts.get(id(fn))
        if read is None:
            self._constants = None
            read = self._parts[id(fn)] = (fn, self._read_parts(fn))
        return read[1]

    def _read_parts(self, fn: types.FunctionType) -> FunctionParts:
        path = self.path_of(fn) or self.object_root(fn, fn.__qualname__)
        for i, cell in enumerate(fn.__closure__ or ()):
            name = fn.__code__.co_freevars[i]
            if id(cell) not in self.created_by_program:
                self.variables.cell_paths.setdefault(
                    id(cell), (cell, path.step("closure", i).step("cell", name))
                )
        if libraries.is_guarded_whole(fn.__globals__):
            return super().function_parts(fn)
        self.note(prims.check_same_object, path.step("attribute", "__code__"), fn.__code__)
        self.note(prims.check_same_object, path.step("attribute", "__defaults__"), fn.__defaults__)
        defaults = fn.__defaults__ and tuple(  # the tuple is one object, and so are the constants in it
            v if type(v) in _CONSTANTS else self.adopt(v, path.step("default", i))
            for i, v in enumerate(fn.__defaults__)
        )
        kwdefaults = self.adopt(fn.__kwdefaults__, path.step("attribute", "__kwdefaults__"))
        return FunctionParts(fn.__code__, fn.__globals__, defaults, kwdefaults, fn.__closure__)

    def interpreted_code(self) -> tuple[types.CodeType, ...]:
        """Return the code of the functions that were interpreted and that the program has not made."""
        return tuple({id(parts.code): parts.code for _, parts in self._parts.values()}.values())

    def is_code_constant(self, value: Any) -> bool:
        """Return whether a tuple or frozenset is a constant of code: one object in all calls."""
        if self._constants is None:
            self._constants = {id(c) for _, parts in self._parts.values() for c in _constants(parts.code)}
        return id(value) in self._constants

    def interprets(self, fn: Any) -> bool:
        return self._calls.resolve(fn) is None and not self.is_native(fn)

    def effect_of(self, fn: Any) -> Effect:
        return self._calls.effect_of(fn)

    def is_native(self, fn: types.FunctionType) -> bool:
        return libraries.is_own(fn.__globals__)

    def bypass_cache(self, fn: Any) -> bool:
        return True

    def import_module(
        self, name: str, namespace: dict[str, Any], fromlist: tuple[str, ...] | None, level: int
    ) -> Any:
        self.objects.effects += 1
        return imports.imported(self, name, namespace, fromlist, level)

    def as_caught(self, exc: BaseException) -> BaseException:
        if not isinstance(exc, OperatorError):
            name_tensors(exc)
            return exc
        handled = (frame.handled for frame in reversed(self.machine.frames) if frame.handled is not None)
        return as_torch_raises(exc, next(handled, self.handled_outside))

    def warn(
        self, message: Any, category: type[Warning], frame: Frame | None, levels_above: int, source: Any
    ) -> None:
        self.objects.effects += 1
        place = warning_calls.place_of(frame, levels_above)
        warning_calls.warn(self, message, category, place, source)

    # -- observation -----------------------------------------------------------------------------------------

    def on_make(self, obj: Any) -> Any:
        if isinstance(obj, types.FunctionType | types.CellType | type):
            self.created_by_program[id(obj)] = obj
            self.equal_modules.note_made(obj)
        elif isinstance(obj, dict | set | frozenset):
            native_arguments.note_keys(self, obj)
            key_protocols.note_container(self, obj)
        return obj

    def on_keys(self, keys: list[Any], container: Iterable[Any]) -> list[Any]:
        keys = unread_items.readable_keys(self, keys) if self.objects.unread else keys
        native_arguments.note_keys(self, keys)
        if any(map(has_python_key, keys)) or id(container) in self.objects.python_keyed:
            key_protocols.settle(self, keys, container)
            self.objects.python_keyed[id(container)] = container
        return keys

    def on_store_local(self, frame: Frame, name: str, value: Any) -> None:
        if type(value) is TensorProxy and value.name_hint is None:
            value.name_hint = name

    def forget(self) -> None:
        self._parts.clear()
        self.handlers = HandlerTable(self.handlers.rows)  # holds none of the classes
        self._calls.forget()
        self.equal_modules.forget()
        super().forget()

    def locate(self) -> Source | None:
        if not self.catches_errors:
            handling = [f for f in self.machine.frames if f.decoded.exception_table and has_handler(f)]
            self.handles_errors |= bool(handling)
            self.catches_errors = any(may_catch(f, _is_mode) for f in handling)
        return super().locate()


#: the policies of special parts of a program
_POLICIES = {Place.BACKWARD: BackwardPolicy, Place.REGION: RegionPolicy}


@functools.cache
def _class_within(places: frozenset[Place]) -> type[Tracer]:
    policies = tuple(policy for place, policy in _POLICIES.items() if place in places)
    return type(Tracer.__name__, (*policies, Tracer), {}) if policies else Tracer


#: context managers that set torch's modes, which a failed call restores, or nothing
_MODES = (
    *(torch.set_grad_enabled, torch.no_grad, torch.enable_grad, torch.inference_mode, torch.autocast),
    *(contextlib.nullcontext, torch.autograd.profiler.record_function),
)


def _is_mode(leave: Any) -> bool:
    """Return whether the ``__exit__`` of a ``with`` is that of a manager of torch which catches nothing."""
    return isinstance(getattr(leave, "__self__", None), _MODES)


#: handlers of calls of code that runs as it is, in each call
_AS_IT_IS = (opaque_acquisition.call, native_functions.call)


def _constants(code: types.CodeType) -> Iterator[Any]:
    """Yield the tuples and frozensets among the constants of code and of the functions in it."""
    for constant in code.co_consts:
        if type(constant) is types.CodeType:
            yield from _constants(constant)
        elif type(constant) in (tuple, frozenset):
            yield constant


def _passes_on(handler: Any, fn: Any) -> bool:
    """Return whether a rule passes its arguments on, or asks for the length of one."""
    return handler is module_members.call_module or type(fn) is CompiledFunction or fn is len
