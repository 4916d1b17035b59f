"""The policy while a backward is traced: a read of state, and an effect, end the tracing of it.

The backward of a ``torch.autograd.Function`` is traced right after its forward. Its code, and the tensors and
constants that the forward saved, are the same when it runs; anything else may have changed:

    def backward(ctx, g):
        return g * ctx.factor          # a number that the forward saved: traced
        return g * FACTOR              # a variable: read when the backward runs

So the first read of state, and the first effect, end the tracing of a backward with
:class:`~thunder.frontend.places.ReadsState`. The backward is then called as it is, each time that it runs
(:mod:`~thunder.frontend.custom_gradients.eager_backward`). The check comes before the read, so that no unused
value is guarded.

The class is put before that of the session while a backward is traced, so that other programs pay nothing.
"""

from __future__ import annotations

import os
import types
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._library.custom_ops import CustomOpDef

from thunder.base.provenance import ABSENT, cell_content, lookup_instance, lookup_type
from thunder.frontend.custom_gradients.backward_reads import is_code, is_fixed, is_in_library
from thunder.frontend.custom_gradients.backward_state import BackwardState
from thunder.frontend.custom_gradients.function_context import FunctionContext
from thunder.frontend.facts import Fact
from thunder.frontend.natives.libraries import is_library, is_library_class, is_library_module
from thunder.frontend.natives.native_tables import IMPURE_MODULES
from thunder.frontend.objects.class_kinds import LEAVES, is_immutable
from thunder.frontend.places import COMPUTES_GRADIENTS, OUTPUT, READS, READS_SURROUNDINGS, Outcome, Place
from thunder.frontend.session import TracingSession
from thunder.frontend.traced_replacements import ReplacedCalls, full_name
from thunder.interpreter.frame import Frame
from thunder.interpreter.policy import MISSING, FunctionParts
from thunder.ir.proxies import TensorProxy
from thunder.ir.unmodelled_proxies import UnmodelledProxy
from thunder.ops import prims

__all__ = ["BackwardPolicy"]

_SLOTS = (types.MemberDescriptorType, types.GetSetDescriptorType)
_OF_GRAPHS = frozenset({"requires_grad", "is_leaf", "grad_fn", "output_nr", "_version"})


class BackwardPolicy(TracingSession):
    """The policy within a backward."""

    reads_all_lists = True

    def _reads_code(self, value: Any = ABSENT) -> bool:
        """Return whether a package replaces a value, or reads now what it reads of it."""
        table = self.state(ReplacedCalls).table
        if value is not ABSENT and table.is_code(value):
            return True
        module = str(self.machine.globals.get("__name__", ""))
        return module.partition(".")[0] in table.packages_that_read_code

    # -- variables -------------------------------------------------------------------------------------------

    def load_global(self, namespace: dict[str, Any], builtin_names: Mapping[str, Any], name: str) -> Any:
        if not is_library(namespace):
            value = namespace.get(name, builtin_names.get(name, MISSING))
            written = (id(namespace), name) in self.variables.global_writes
            is_state = value is not MISSING and not is_code(value)
            if written or (is_state and not self._reads_code(value)):
                self.place.end_backward(f"reads the variable {name}")
        return super().load_global(namespace, builtin_names, name)

    def load_cell(self, cell: types.CellType) -> Any:
        content = cell_content(cell)
        if id(cell) in self.state(BackwardState).created:
            pass
        elif content is ABSENT:
            self.place.end_backward("reads a variable that is not assigned yet")
        elif id(cell) not in self.variables.cell_paths:
            if not (is_fixed(self, content) or is_code(content)):
                self.place.end_backward("reads a variable of an enclosing function")
            reader = f"the backward of {self.place.parts(Place.BACKWARD)[-1].name}"
            self.state(BackwardState).captured.append((cell, content, reader, self.locations()))
        elif not is_in_library(self) and (
            id(cell) in self.variables.cell_writes or not (self._reads_code(content) or is_code(content))
        ):
            self.place.end_backward("reads a variable of an enclosing function")
        return super().load_cell(cell)

    def store_cell(self, cell: types.CellType, value: Any) -> None:
        self._check_stored_cell(cell)
        super().store_cell(cell, value)

    def delete_cell(self, cell: types.CellType) -> None:
        self._check_stored_cell(cell)
        super().delete_cell(cell)

    def _check_stored_cell(self, cell: types.CellType) -> None:
        if id(cell) not in self.state(BackwardState).created:
            self.place.end_backward("assigns a variable of an enclosing function")

    def function_parts(self, fn: types.FunctionType) -> FunctionParts:
        defaults = (*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values())
        if not self._reads_code() and not all(is_code(d) or is_fixed(self, d) for d in defaults):
            self.place.end_backward(f"reads a default of {fn.__qualname__}")
        return super().function_parts(fn)

    def on_make(self, obj: Any) -> Any:
        if isinstance(obj, types.FunctionType | types.CellType | type):
            self.state(BackwardState).created.add(id(obj))
        return super().on_make(obj)  # type: ignore[misc]

    # -- attributes ------------------------------------------------------------------------------------------

    def load_attr(self, obj: Any, name: str) -> Any:
        if isinstance(obj, TensorProxy) and type(obj) is not UnmodelledProxy:
            if name in _OF_GRAPHS and not is_in_library(self):
                self.place.end_backward(f"reads {name} of a tensor")
        elif isinstance(obj, torch.nn.Module):
            self._check_attribute(obj, name)
        return super().load_attr(obj, name)

    def instance_attr(self, obj: Any, name: str) -> Any:
        self._check_attribute(obj, name)
        return super().instance_attr(obj, name)

    def _check_attribute(self, obj: Any, name: str) -> None:
        """End the backward where it reads an attribute of an object that it did not create.

        Of its own context, only attributes that may change or that are the user's end it.
        """
        if isinstance(obj, FunctionContext):
            if not is_fixed(self, obj.__dict__.get(name)):
                self.place.end_backward(f"reads ctx.{name}")
            return
        entry = self.entry_of(obj)
        if entry is None or isinstance(obj, type):
            return
        value = lookup_instance(entry.obj, name)
        if name not in entry.writes and (self._reads_code(entry.obj) or self._reads_code(value)):
            return
        if isinstance(obj, types.ModuleType):
            if is_library_module(obj) and (value is ABSENT or type(value) in LEAVES or is_code(value)):
                return
        elif type(obj) is CustomOpDef:
            return
        is_member = isinstance(obj, torch.nn.Module) and any(
            name in obj.__dict__[d] for d in ("_parameters", "_buffers", "_modules")
        )
        if name in entry.writes or is_member or not (value is ABSENT or is_code(value)):
            self.place.end_backward(f"reads {entry.path.source}.{name}")

    def type_attr(self, cls: type, name: str) -> Any:
        self._check_class(cls, name)
        return super().type_attr(cls, name)

    def super_attr(self, start: type, after: type, name: str) -> Any:
        self._check_class(start, name)
        return super().super_attr(start, after, name)

    def _check_class(self, cls: type, name: str) -> None:
        """End the backward where it reads a class attribute that is not code."""
        if is_immutable(cls) or id(cls) in self.created_by_program or is_library_class(cls):
            return
        is_written = name in self.written_class_attributes
        if not is_written and self._reads_code():
            return
        value = lookup_type(cls, name)
        if is_written or not (value is ABSENT or name.startswith("__") or is_code(value)):
            self.place.end_backward(f"reads {cls.__qualname__}.{name}")

    def native_get(self, descriptor: Any, obj: Any, owner: type, name: str) -> Any:
        if obj is not None and name != "__class__" and isinstance(descriptor, _SLOTS):
            entry = self.entry_of(obj)
            if entry is not None and not self._reads_code(entry.obj):
                self.place.end_backward(f"reads {entry.path.source}.{name}")
        return super().native_get(descriptor, obj, owner, name)

    # -- writes ----------------------------------------------------------------------------------------------

    def store_attr(self, obj: Any, name: str, value: Any) -> None:
        if isinstance(obj, TensorProxy | torch.nn.Module):
            self._check_store(obj, name)
        super().store_attr(obj, name, value)

    def delete_attr(self, obj: Any, name: str) -> None:
        if isinstance(obj, TensorProxy | torch.nn.Module):
            self._check_store(obj, name)
        super().delete_attr(obj, name)

    def set_instance_attr(self, obj: Any, name: str, value: Any) -> None:
        self._check_store(obj, name)
        super().set_instance_attr(obj, name, value)

    def delete_instance_attr(self, obj: Any, name: str) -> None:
        self._check_store(obj, name)
        super().delete_instance_attr(obj, name)

    def set_type_attr(self, cls: type, name: str, value: Any) -> None:
        self._check_store(cls, name)
        super().set_type_attr(cls, name, value)

    def delete_type_attr(self, cls: type, name: str) -> None:
        self._check_store(cls, name)
        super().delete_type_attr(cls, name)

    def native_set(self, descriptor: Any, obj: Any, value: Any, name: str) -> None:
        self._check_store(obj, name)
        super().native_set(descriptor, obj, value, name)

    def native_delete(self, descriptor: Any, obj: Any, name: str) -> None:
        self._check_store(obj, name)
        super().native_delete(descriptor, obj, name)

    def _check_store(self, obj: Any, name: str) -> None:
        """End the backward where it writes to an object that it did not create."""
        is_context = any(obj is fn.context for fn in self.place.parts(Place.BACKWARD))
        is_class = isinstance(obj, type) and id(obj) not in self.created_by_program
        if is_context or is_class or self.entry_of(obj) is not None:
            self.place.end_backward(f"writes the attribute {name} of an object that outlives it")

    def note_write(self) -> None:
        self.place.end_backward("writes to an object that outlives it")

    def warn(
        self, message: Any, category: type[Warning], frame: Frame | None, levels_above: int, source: Any
    ) -> None:
        if not is_in_library(self):
            self.place.end_backward("warns")
        super().warn(message, category, frame, levels_above, source)

    # -- calls and surroundings ------------------------------------------------------------------------------

    def note_state(self, query: Callable[[], Any], name: str, answer: Any) -> None:
        """End the backward, which asks for the state of its surroundings when it runs."""
        if not self._reads_code():
            self.place.end_backward(f"reads {name}")
        super().note_state(query, name, answer)

    def call(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._check_call(fn)
        return super().call(fn, args, kwargs)

    def _check_call(self, fn: Any) -> None:
        """End the backward where it calls a function that has an effect, or reads state."""
        if fn in _ENVIRONMENT:
            self.place.end_backward("reads the environment")
        effect = self.effect_of(fn)
        is_allowed = effect.outcome(Place.BACKWARD) is Outcome.ALLOWED
        is_of_library = effect in _OF_LIBRARIES and (is_in_library(self) or self._reads_code())
        if not (is_allowed or is_of_library):
            self.place.end_backward(f"calls {full_name(fn)}, which {effect.name},")
        if isinstance(fn, types.BuiltinFunctionType | types.MethodType):
            module = getattr(fn, "__module__", None) or ""
            if module.partition(".")[0] in IMPURE_MODULES:
                self.place.end_backward(f"calls {fn.__name__}")

    def run_native(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """End the backward before native code reads an object that is not the backward's own."""
        for value in (getattr(fn, "__self__", None), *args, *kwargs.values()):
            entry = self.entry_of(value)
            if entry is None or is_fixed(self, value) or self._reads_code(entry.obj):
                continue
            if not is_in_library(self):
                self.place.end_backward(f"reads {entry.path.source}")
        return super().run_native(fn, args, kwargs)

    def check_fact(self, fact: Fact) -> None:
        """End the backward before a fact is noted that is not about code: it would be of this moment."""
        path, expected = fact.path, fact.expected
        if _is_absence(fact) or expected is ABSENT or is_code(expected) or path.key in _PARTS_OF_CODE:
            return
        owner = None if path.parent is None else path.parent.fetch(_NO_ROOTS)
        is_of_library = isinstance(owner, types.ModuleType) and is_library_module(owner)
        is_checked = is_of_library or path.kind == "default"  # by what reads them
        if not (is_checked or self._reads_code() or is_in_library(self)):
            self.place.end_backward(f"reads {path.source}")


#: a path from an argument leads to no module
_NO_ROOTS: dict[str, Any] = defaultdict(lambda: ABSENT)


def _is_absence(fact: Fact) -> bool:
    """Return whether a fact is about what there is not, or which of two objects it is."""
    if fact.sym is prims.check_has_attr or fact.sym is prims.check_contains:
        return fact.args[2] is False
    return fact.sym in (prims.check_same_object, prims.check_other_object) and fact.is_relation


#: parts of functions and classes that are no code themselves, and change only with it
_PARTS_OF_CODE = ("__defaults__", "__kwdefaults__", "__mro__")
#: what a library's own lines may do, which is the same when the backward runs
_OF_LIBRARIES = (READS, READS_SURROUNDINGS, OUTPUT, COMPUTES_GRADIENTS)
#: which libraries read for their users
_ENVIRONMENT = (os.getenv, type(os.environ).__getitem__, type(os.environ).__contains__)
