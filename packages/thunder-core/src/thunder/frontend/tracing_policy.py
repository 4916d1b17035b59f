"""The tracer: a policy under which the interpreter's primitive reads become facts, its writes wait, its
operators are recorded.

the program reads x.k     →   a fact about x.k, and what stands for its value
the program writes x.k    →   an entry in the overlay of x; the object itself stays as it is
the program calls torch   →   a bound symbol
the program calls C code  →   by the table of natives, or not at all
"""

from __future__ import annotations

import logging
import sys
import types
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from thunder.base.devices import Device
from thunder.base.errors import (
    InternalError,
    OperatorError,
    PluginError,
    SharpEdge,
    ThunderError,
    TraceError,
    UnsupportedProgram,
)
from thunder.base.langctx import LanguageContext
from thunder.base.provenance import ABSENT, Path, lookup_instance, own_name, reads_natively
from thunder.frontend import ambient_state
from thunder.frontend.checkpoints import checkpoint_regions, region_effects
from thunder.frontend.custom_gradients import autograd_functions, backward_reads
from thunder.frontend.lookasides import (
    copying,
    custom_operators,
    grad_requests,
    imports,
    mode_regions,
    module_members,
    python_functions,
    rng_generators,
    tensors,
    transformer_masks,
    weakrefs,
)
from thunder.frontend.lookasides.lookaside_registry import CLOSURES, TABLE
from thunder.frontend.natives import native_arguments, native_calls
from thunder.frontend.objects.callable_kinds import DICT_GETTERS, LAZY, METHODS, OWN, SYMBOL_LIKE
from thunder.frontend.objects.class_attributes import ClassAttributes
from thunder.frontend.objects.class_kinds import is_immutable
from thunder.frontend.objects.namespaces import Variables
from thunder.frontend.objects.object_table import Record, Tracker
from thunder.frontend.output import logging_calls, printing, warning_calls
from thunder.frontend.raised_errors import name_tensors
from thunder.frontend.source_locations import locations, source_of
from thunder.interpreter.frame import Frame, has_handler
from thunder.interpreter.policy import MISSING, FunctionParts, Policy
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import Symbol
from thunder.ir.trace import Source, TraceCtx
from thunder.ops.meta_kernels import as_torch_raises
from thunder.torch.autocast import Autocast, is_interpreted
from thunder.wrappers.compiled_function import CompiledFunction

#: modules whose rules stand in place of interpretation
RULES = (
    python_functions,
    mode_regions,
    autograd_functions,
    checkpoint_regions,
    copying,
    custom_operators,
    rng_generators,
    grad_requests,
    imports,
    logging_calls,
    transformer_masks,
    printing,
    warning_calls,
    weakrefs,
)


class Tracer(Variables):
    """The policy of one acquisition.

    Args:
        trace: what operators are recorded into.
        tracker: what is known of objects.
        language: what torch's functions stand for.
        assumed: the device on which everything from outside is taken to lie, if one is.
        sharp_edge: called with a message where the program reads what cannot be guarded; raises, warns or
        returns.
    """

    uncatchable = (UnsupportedProgram, InternalError, TraceError, PluginError)

    def __init__(
        self,
        trace: TraceCtx,
        tracker: Tracker,
        language: LanguageContext,
        sharp_edge: Any,
        assumed: Device | None = None,
    ) -> None:
        super().__init__(tracker)
        self.trace, self.language, self.sharp_edge = trace, language, sharp_edge
        self.made: dict[
            int, Any
        ] = {}  # functions and cells that the program made; held, so that ids stay theirs
        self.classes = ClassAttributes(self)
        self.parts: dict[int, tuple[Any, FunctionParts]] = {}
        self.autocast, self.autocast_settings = Autocast(), ambient_state.autocast_settings()
        self.inference_regions: list[tuple[bool, bool]] = []  # the modes to return to
        self.in_inference_mode = self.had_inference_regions = False
        self.had_grad_in_inference_mode = False
        #: values that a part of the program recorded apart made for itself: by id, the value and the part
        self.hidden: dict[int, tuple[Any, str]] = {}
        #: tensors that the program made require gradients, with the lines
        self.grad_requests: list[tuple[TensorProxy, list[Any]]] = []
        self.backwards: list[Any] = []  # the functions whose backward is being traced, innermost last
        self.made_in_backwards: set[int] = set()  # the ids of those that a backward made
        #: variables of inner functions that a backward reads: what they hold, who reads them, and where
        self.captured: list[tuple[types.CellType, Any, str, list[Any]]] = []
        #: what the program made and a later call makes again: by id, the value, its parts' ids, and where
        self.rebuilt: dict[int, tuple[Any, list[int], list[Any]]] = {}
        self.regions: list[Any] = []  # the checkpointed regions that are being traced, innermost last
        #: tensors that a backward reads from its ctx, as the function, the tensors, a result, and where
        self.kept_attributes: list[tuple[str, list[TensorProxy], TensorProxy, list[Any]]] = []
        self.symbol_ids: dict[str, int] = {}  # how many calls have a symbol of their own under the id
        self.handled_outside = sys.exception()  # by the caller
        self.modes = ambient_state.Modes.now()
        self.default_dtype = self.modes.dtype
        #: whether an operator was called where a handler of the program would see an error of it
        self.handles_errors = False
        self.calls_symbols = False  # whether the program calls what exists in traces only
        self.special_methods: set[str] = set()  # the names under which operators were looked up in tensors
        self.streams: dict[str, printing.StandardStream] = {}
        self.filters = warning_calls.Filters()
        self.questions: dict[tuple[Any, ...], Any] = {}  # asked of torch and of loggers, by what was asked
        self.generators = rng_generators.Generators(self, assumed)

    # -- attributes ------------------------------------------------------------------------------------------

    def load_attr(self, obj: Any, name: str) -> Any:
        if isinstance(obj, TensorProxy):
            if self.backwards:
                backward_reads.check_tensor(self, name)
            return tensors.load_attr(self, obj, name)
        getter = self.type_attr(type(obj), "__getattribute__")
        if isinstance(obj, torch.nn.Module):
            if self.backwards:
                backward_reads.check_attribute(self, obj, name)
            found = module_members.load_member(self, obj, name) if getter is _PLAIN_GETTER else MISSING
            if found is not MISSING:
                return found
        elif type(obj) is torch.Generator:
            return rng_generators.load_attr(self, obj, name)
        elif type(obj) is CompiledFunction and name != "__get__":
            return self.load_attr(module_members.wrapped_callable(self, obj), name)
        elif printing.is_stream(obj, name):
            return printing.load_stream(self, obj, name)
        elif type(obj) in LAZY:
            getattr(obj, name, None)  # made when it is first asked for; then it is there as others are
        return self.machine.generic_load_attr(obj, name)

    def store_attr(self, obj: Any, name: str, value: Any) -> None:
        if isinstance(obj, TensorProxy):
            tensors.store_attr(self, obj, name, value)
        elif isinstance(obj, torch.nn.Module) and module_members.store_member(self, obj, name, value):
            self.note_write()
        elif obj is sys and name in printing.STREAMS:
            printing.refuse_redirection(name)
        elif isinstance(obj, logging.Filterer) and name in logging_calls.CONFIGURING:
            logging_calls.refuse_configuration()
        elif type(obj) is CompiledFunction:
            self.store_attr(module_members.wrapped_callable(self, obj), name, value)
        else:
            self.type_attr(type(obj), "__setattr__")
            self.machine.generic_store_attr(obj, name, value)

    def delete_attr(self, obj: Any, name: str) -> None:
        owner = module_members.wrapped_callable(self, obj) if type(obj) is CompiledFunction else obj
        self.type_attr(type(owner), "__delattr__")
        self.machine.generic_delete_attr(owner, name)

    def type_attr(self, cls: type, name: str) -> Any:
        if self.backwards:
            backward_reads.check_class(self, cls, name)
        known = self.classes.known.get((cls, name), self)
        return known if known is not self else self.classes.find(cls, name)

    def super_attr(self, start: type, after: type, name: str) -> Any:
        if self.backwards:
            backward_reads.check_class(self, start, name)
        mro = start.__mro__
        return self.classes.find_in(mro[mro.index(after) + 1 :], name)

    def instance_attr(self, obj: Any, name: str) -> Any:
        if self.backwards:
            backward_reads.check_attribute(self, obj, name)
        record = self.record_of(obj)
        if record is None:
            found = lookup_instance(obj, name)
            return MISSING if found is ABSENT else found
        if record.own is not None:
            return record.own.get(name, MISSING)
        if issubclass(type(record.obj), types.ModuleType):
            return self.module_attr(record, name)
        if name in record.attrs:
            return record.attrs[name]
        value = self.read_instance(record, name)
        record.attrs[name] = value
        return value

    def record_of(self, obj: Any) -> Record | None:
        """The record of an object. A class, function or module that the program came upon in no place of its
        inputs is known by itself.
        """
        record = self.tracker.records.get(id(obj))
        if record is not None or not isinstance(obj, _BY_THEMSELVES) or id(obj) in self.made:
            return record
        if isinstance(obj, type) and (is_immutable(obj) or obj is TensorProxy):
            return None
        self.tracker.adopt(obj, self.tracker.pinned_path(obj, own_name(obj, *_NAMES) or "module"))
        return self.tracker.records[id(obj)]

    def read_instance(self, record: Record, name: str) -> Any:
        """The value that a tracked object itself holds, as it was when the call began; MISSING is a fact as
        well.
        """
        raw = lookup_instance(record.obj, name)
        if raw is not ABSENT:
            return self.tracker.adopt(raw, record.path.step("instance", name))
        if type(record.obj).__dictoffset__:
            self.tracker.note("lacks", record.path, name, key=name)
        return MISSING

    def module_attr(self, record: Record, name: str) -> Any:
        """A variable of a module, which is a global of its functions."""
        key = (id(record.obj.__dict__), name)
        known = self.globals.get(key, self)
        if known is self:
            self.namespace_path(record.obj.__dict__)  # holds the namespace, so that its id stays its own
            known = self.globals[key] = self.read_instance(record, name)
        return known

    def set_instance_attr(self, obj: Any, name: str, value: Any) -> None:
        if self.backwards:
            backward_reads.check_store(self, obj, name)
        record = self.record_of(obj)
        if record is None:
            object.__setattr__(obj, name, value)
            return
        if not type(record.obj).__dictoffset__:
            raise AttributeError(f"{type(obj).__name__!r} object has no attribute {name!r}")
        self.note_write()
        if record.own is not None:
            record.own[name] = value
        elif issubclass(type(record.obj), types.ModuleType):
            self.store_global(record.obj.__dict__, name, value)
        else:
            record.write(name, value)

    def delete_instance_attr(self, obj: Any, name: str) -> None:
        if self.backwards:
            backward_reads.check_store(self, obj, name)
        record = self.record_of(obj)
        if record is None:
            object.__delattr__(obj, name)
            return
        if self.instance_attr(obj, name) is MISSING:
            raise AttributeError(f"{type(obj).__name__!r} object has no attribute {name!r}")
        self.note_write()
        if record.own is not None:
            del record.own[name]
        elif issubclass(type(record.obj), types.ModuleType):
            self.store_global(record.obj.__dict__, name, MISSING)
        else:
            record.delete(name)

    def set_type_attr(self, cls: type, name: str, value: Any) -> None:
        if self.backwards:
            backward_reads.check_store(self, cls, name)
        self.note_write()
        self.classes.write(cls, name, value)

    def delete_type_attr(self, cls: type, name: str) -> None:
        if self.backwards:
            backward_reads.check_store(self, cls, name)
        self.note_write()
        self.classes.delete(cls, name)

    def native_get(self, descriptor: Any, obj: Any, owner: type, name: str) -> Any:
        if self.backwards:
            backward_reads.check_slot(self, descriptor, obj, name)
        record = self.record_of(obj)
        if record is not None and name == "__dict__" and isinstance(descriptor, DICT_GETTERS):
            return module_members.instance_dict(self, record)
        if record is None or record.value is not record.obj or isinstance(descriptor, METHODS):
            return type(descriptor).__get__(descriptor, obj, owner)
        if name == "__class__":
            return type(obj)
        if name in record.attrs:
            if record.attrs[name] is MISSING:
                raise AttributeError(name)
            return record.attrs[name]
        path = record.path.step("attribute" if reads_natively(type(record.obj)) else "slot", name)
        try:
            raw = type(descriptor).__get__(descriptor, record.obj, owner)
        except AttributeError:  # a slot that holds nothing
            self.tracker.note("is", path, ABSENT)
            raise
        value = self.tracker.adopt(raw, path)
        if name == "__globals__":
            self.namespace_in_hand(raw, value)
        record.attrs[name] = value
        return value

    def native_set(self, descriptor: Any, obj: Any, value: Any, name: str) -> None:
        if self.backwards:
            backward_reads.check_store(self, obj, name)
        record = self.record_of(obj)
        if record is None:
            type(descriptor).__set__(descriptor, obj, value)
            return
        if not isinstance(descriptor, types.MemberDescriptorType):
            raise UnsupportedProgram(f"the program writes {record.path.source}.{name}")
        self.note_write()
        record.write(name, value)

    def native_delete(self, descriptor: Any, obj: Any, name: str) -> None:
        if self.backwards:
            backward_reads.check_store(self, obj, name)
        self.note_write()
        record = self.record_of(obj)
        if record is None:
            type(descriptor).__delete__(descriptor, obj)
            return
        if not isinstance(descriptor, types.MemberDescriptorType):
            raise UnsupportedProgram(f"the program deletes {record.path.source}.{name}")
        self.native_get(descriptor, obj, type(obj), name)  # raises AttributeError of an empty slot
        record.delete(name)

    def member_path(self, record: Record, name: str) -> Path:
        """The path to a dictionary that a module keeps under ``name``."""
        path = record.members.get(name)
        if path is None:
            path = record.members[name] = record.path.step("instance", name)
        return path

    # -- variables -------------------------------------------------------------------------------------------

    def load_global(self, namespace: dict[str, Any], builtin_names: Mapping[str, Any], name: str) -> Any:
        if self.backwards:
            backward_reads.check_global(self, namespace, builtin_names, name)
        return super().load_global(namespace, builtin_names, name)

    def load_cell(self, cell: types.CellType) -> Any:
        if self.backwards:
            backward_reads.check_cell(self, cell)
        return super().load_cell(cell)

    def namespace(self, namespace: Any) -> Any:
        return python_functions.namespace_of(self, namespace)

    def note_autocast(self) -> None:
        """Guards the settings of autocast at the call, which what follows depends on."""
        settings = self.tracker.pinned_path(ambient_state.autocast_settings, "torch's autocast")
        self.tracker.note("state", settings, self.autocast_settings)

    # -- calls -----------------------------------------------------------------------------------------------

    def call(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            if self.backwards:
                backward_reads.check_call(self, fn)
            kind = type(fn)
            if kind in SYMBOL_LIKE:
                lookaside = TABLE.get(id(fn))
                if lookaside is not None:
                    return lookaside(self, args, kwargs)
                if kind is types.FunctionType:
                    lookaside = CLOSURES.get(id(fn.__code__))
                    if lookaside is not None:
                        return lookaside(self, (fn, *args), kwargs)
                symbol = self.language.functions.get(fn)
                if symbol is not None and not is_interpreted(fn, symbol):
                    return tensors.call_function(self, fn, symbol, args, kwargs)
                if native_calls.is_unknown_torch(fn):
                    if custom_operators.is_custom(fn):
                        return custom_operators.call_custom(self, fn, args, kwargs)
                    return tensors.call_unknown(self, fn, args, kwargs)
            elif kind is CompiledFunction:
                return self.call(module_members.inlined(self, fn), args, kwargs)
            elif kind is native_calls.CACHED and self.tracker.record_of(fn) is not None:
                return native_calls.call_cached(self, fn, args, kwargs)
            elif kind is torch.jit.ScriptFunction:
                return self.call(native_calls.scripted(fn), args, kwargs)
            elif isinstance(fn, Symbol):
                self.calls_symbols = True
                return tensors.call_symbol(self, fn, args, kwargs)
            elif isinstance(fn, torch.nn.Module):
                return module_members.call_module(self, fn, args, kwargs)
            return self.machine.generic_call(fn, args, kwargs)
        except ThunderError as error:
            raise error.at(self.locations()) from error.__cause__

    def call_native(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.regions:
            return region_effects.call_native(self, fn, args, kwargs)
        return native_calls.call(self, fn, args, kwargs)

    def is_same(self, a: Any, b: Any) -> bool:
        if type(a) is weakrefs.Uncertain or type(b) is weakrefs.Uncertain:
            return weakrefs.is_same(self, a, b)
        if isinstance(a, TensorProxy) and isinstance(b, TensorProxy) and tensors.is_same(self, a, b):
            return True
        same = a is b
        first, second = self.tracker.record_of(a), self.tracker.record_of(b)
        if first is not None and second is not None and first is not second:
            self.tracker.note("same", first.path, False, others=(second.path,))
        return same

    def referent(self, reference: weakref.ref[Any]) -> Any:
        return weakrefs.referent_of(self, reference)

    def function_parts(self, fn: types.FunctionType) -> FunctionParts:
        if self.backwards:
            backward_reads.check_defaults(self, fn)
        if id(fn) in self.made or self.is_native(fn):
            return Policy.function_parts(self, fn)
        known = self.parts.get(id(fn))
        if known is None:
            known = self.parts[id(fn)] = (fn, self._read_parts(fn))
        return known[1]

    def _read_parts(self, fn: types.FunctionType) -> FunctionParts:
        tracker = self.tracker
        path = tracker.path_of(fn) or tracker.pinned_path(fn, fn.__qualname__)
        for i, cell in enumerate(fn.__closure__ or ()):
            name = fn.__code__.co_freevars[i]
            if id(cell) not in self.made:
                self.cell_paths.setdefault(id(cell), (cell, path.step("closure", i).step("cell", name)))
        if fn.__globals__.get("__name__", "").partition(".")[0] in native_calls.LIBRARIES:
            return Policy.function_parts(self, fn)
        tracker.note("is", path.step("attribute", "__code__"), fn.__code__)
        tracker.note("is", path.step("attribute", "__defaults__"), fn.__defaults__)
        defaults = fn.__defaults__ and tuple(
            tracker.adopt(v, path.step("default", i)) for i, v in enumerate(fn.__defaults__)
        )
        kwdefaults = tracker.adopt(fn.__kwdefaults__, path.step("attribute", "__kwdefaults__"))
        return FunctionParts(fn.__code__, fn.__globals__, defaults, kwdefaults, fn.__closure__)

    def is_native(self, fn: types.FunctionType) -> bool:
        module: str = fn.__globals__.get("__name__", "")
        return module.startswith("thunder.") and module.startswith(OWN)

    def bypass_cache(self, fn: Any) -> bool:
        return True

    def import_module(
        self, name: str, namespace: dict[str, Any], fromlist: tuple[str, ...] | None, level: int
    ) -> Any:
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
        place = warning_calls.place_of(frame, levels_above)
        warning_calls.warn(self, message, category, place, source)

    # -- observation -----------------------------------------------------------------------------------------

    def on_make(self, obj: Any) -> Any:
        if isinstance(obj, types.FunctionType | types.CellType | type):
            self.made[id(obj)] = obj
            if self.backwards:
                self.made_in_backwards.add(id(obj))
        elif isinstance(obj, dict | set | frozenset):
            native_arguments.check_keys(self, obj)
        return obj

    def on_keys(self, keys: Iterable[Any]) -> None:
        native_arguments.note_keys(self, keys)

    def on_store_local(self, frame: Frame, name: str, value: Any) -> None:
        if type(value) is TensorProxy and value.name_hint is None:
            value.name_hint = name

    def forget(self) -> None:
        """Lets go of everything of the user's, so that nothing but the facts holds it."""
        for table in (
            self.made,
            self.parts,
            self.hidden,
            self.captured,
            self.rebuilt,
            self.questions,
        ):
            table.clear()
        self.forget_variables()
        self.generators.forget()
        self.classes.forget()
        self.tracker.forget()
        self.machine.has_ended = True
        del self.machine, self.generators, self.classes, self.handled_outside

    def note_write(self) -> None:
        """Notes that the program writes to an object of Python, for the regions that it is in."""
        if self.regions:
            region_effects.note_write(self)

    def unique_id(self, base: str) -> str:
        """``base`` for a symbol of the program's own, told apart from that of an earlier call."""
        count = self.symbol_ids[base] = self.symbol_ids.get(base, 0) + 1
        return base if count == 1 else f"{base}#{count}"

    def locate(self) -> Source | None:
        """The line of the program that is running, at which an operator is called."""
        frames = self.machine.frames
        self.handles_errors = self.handles_errors or any(map(has_handler, frames))
        return source_of(frames)

    def locations(self) -> list[Any]:
        """The lines of the program that are running, innermost first."""
        return locations(self.machine.frames)

    def refuse_sharp_edge(self, what: str, hint: str | None = None) -> None:
        """Refuses, or warns of, something that can be neither guarded nor replayed."""
        self.sharp_edge(SharpEdge(what, where=self.locations(), hint=hint))


_BY_THEMSELVES = (type, types.FunctionType, types.ModuleType, types.CodeType)
_NAMES = ("__qualname__", "co_qualname", "__name__")
_PLAIN_GETTER = object.__getattribute__
