"""The tracing session: what the rules of the frontend see of one acquisition.

A rule (a lookaside, a rule for tensors, modules, generators, …) is a function of a session and the arguments
of a call. It reads through the session, so that each read becomes a guarded fact, and records operators into
the session's trace. What a family of rules remembers between two calls is a :class:`SessionState`, defined
beside those rules:

    class GradRequests(SessionState):
        def __init__(self, session): self.requests = []

    session.state(GradRequests).requests.append(…)

:class:`~thunder.frontend.tracing_policy.Tracer` implements the session.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, cast

from thunder.base.devices import Device
from thunder.base.errors import (
    InternalError,
    Location,
    OperatorError,
    PluginError,
    SharpEdge,
    ThunderError,
    TraceError,
    UnsupportedProgram,
)
from thunder.base.extension_origin import is_of_core, origin_of
from thunder.base.langctx import LanguageContext
from thunder.base.plugin_calls import attributed
from thunder.base.provenance import Path
from thunder.frontend import ambient_state
from thunder.frontend.decisions.computed_sizes import OtherAnswers
from thunder.frontend.facts import Fact
from thunder.frontend.module_names import ModuleNames
from thunder.frontend.objects.namespaces import Variables
from thunder.frontend.objects.object_entry import ObjectEntry
from thunder.frontend.objects.object_table import ObjectTable
from thunder.frontend.objects.writes import Write, Writes
from thunder.frontend.places import CALLS_PACKAGE, Effect, Place, Places
from thunder.frontend.source_locations import locations, source_of
from thunder.interpreter.policy import Policy
from thunder.ir.proxies import ComplexProxy, FloatProxy, IntegerProxy, NumberProxy, Proxy, TensorProxy
from thunder.ir.size_facts import SizeFacts
from thunder.ir.symbolic_sizes import SymbolicFloat, SymbolicInt
from thunder.ir.trace import Source, TraceCtx
from thunder.ops import prims
from thunder.torch.autocast import Autocast

if TYPE_CHECKING:
    from thunder.frontend.decisions.speculation import Speculation
    from thunder.frontend.epilogue.epilogue_builder import EpilogueBuilder
    from thunder.frontend.equal_modules.equal_calls import EqualModules
    from thunder.frontend.session_rules import HandlerTable


@dataclass(frozen=True, kw_only=True)
class Ending:
    """A program that has returned.

    Args:
        leaving: the proxies of which its result is built, what it has written, and ``changed``.
        kept: those that objects of the user keep, where Python may run the call again.
        changed: objects and variables that its backwards need as it has left them.
        differentiable: whether a backward of the program may run later.
    """

    leaving: Sequence[Any]
    kept: Sequence[Any]
    changed: Sequence[Any]
    differentiable: bool


F = TypeVar("F", bound=Callable[..., Any])


def of_package(fn: F, *, may_raise: bool = False) -> F:
    """Return a function that the session calls; what one of a package raises is a PluginError.

    With ``may_raise`` it is one under ``check_traces`` only: a rule may raise what the program raises.
    """
    if is_of_core(fn):
        return fn
    run: Any = functools.wraps(fn)(lambda *args: list(fn(*args))) if inspect.isgeneratorfunction(fn) else fn
    what, passing = (
        f"the rule {getattr(fn, '__qualname__', fn)}",
        (UnsupportedProgram, OperatorError, OtherAnswers),
    )
    return cast(F, attributed(run, what, lambda: origin_of(fn), passing=passing, may_raise=may_raise))


class SessionState:
    """The base class of what one family of rules remembers during an acquisition.

    One that is written, checked at the end, or in the epilogue is among the kinds of its
    :class:`~thunder.frontend.session_rules.SessionRules`. What a method of a package's raises, if it is not a
    refusal of the program, is a PluginError.
    """

    #: whether rules only look at it: what they do of their own is counted where they do it
    is_only_read: ClassVar[bool] = False
    _session: TracingSession

    def __init_subclass__(cls) -> None:
        for name in () if is_of_core(cls) else vars(SessionState).keys() & vars(cls).keys():
            method = vars(cls)[name]
            if isinstance(method, property) and method.fget is not None:
                setattr(cls, name, property(of_package(method.fget)))
            elif inspect.isfunction(method):
                setattr(cls, name, of_package(method))

    def __new__(cls, session: TracingSession) -> Self:
        state = super().__new__(cls)
        state._session = session
        return state

    def __init__(self, session: TracingSession) -> None:
        """Called at the first use of the state in a session."""

    def writes(self) -> Iterable[Write]:
        """Return what the program has written of the state outside of it that the rules replay."""
        return ()

    def finish(self) -> None:
        """Called when the program has returned: does what it has left to do."""

    def check(self, ending: Ending) -> None:
        """Called after that: refuses a program that ends in a way that its trace cannot have."""

    @property
    def needs_epilogue(self) -> bool:
        """Whether the epilogue does something beside the writes."""
        return False

    def emit_before(self, builder: EpilogueBuilder) -> None:
        """Add what the epilogue does before the writes."""

    def emit_after(self, builder: EpilogueBuilder, ending: Ending) -> None:
        """Add what the epilogue does with the results, after the writes."""

    def end(self) -> None:
        """Called when the acquisition has ended, also by an error."""


S = TypeVar("S", bound=SessionState)


class TracingSession(Policy):
    """One acquisition, as rules see it.

    The reads and writes of :class:`~thunder.interpreter.policy.Policy` (``load_attr``, ``call``, …) are those
    of the traced program. The table of objects is reached by short names: ``note`` adds a fact, ``adopt``
    returns what the program sees of a value that was read at a path, ``track`` notes that, ``entry_of`` and
    ``path_of`` look an object up.

    Args:
        trace: operators are recorded into it.
        objects: the objects that were reached from the inputs, and the facts about them.
        language: maps torch's functions to operators.
        sharp_edge: called with an error where the program reads what cannot be guarded; raises, warns or
            returns.
        assumed_device: the device on which all tensors from outside are taken to be, or None for their own.
    """

    #: copies what was read of a module for one that equals it
    equal_modules: EqualModules
    #: whether lists are read too of whose items the program needs none, see Note [Unread lists]
    reads_all_lists = False
    uncatchable = (UnsupportedProgram, InternalError, TraceError, PluginError)
    number_types = (NumberProxy, IntegerProxy, FloatProxy, ComplexProxy, SymbolicInt, SymbolicFloat)

    #: what objects are to the program, by type
    handlers: HandlerTable
    #: the kinds of state, in the order in which they end
    kinds: tuple[type[SessionState], ...]

    def __init__(
        self,
        trace: TraceCtx,
        objects: ObjectTable,
        language: LanguageContext,
        sharp_edge: Callable[[ThunderError], None],
        assumed_device: Device | None = None,
    ) -> None:
        self.trace, self.objects, self.language = trace, objects, language
        self.assumed_device = assumed_device
        self.note, self.adopt, self.track = objects.note, objects.adopt, objects.track
        self.entry_of, self.path_of = objects.entry_of, objects.path_of
        self.object_root, self.guard_identity = objects.object_root, objects.guard_identity
        #: how the program's modules are named
        self.modules = ModuleNames(trace.fn, objects.path_of)
        self.variables = Variables(objects, lambda: self.note_write())
        #: the special parts of the program in which it is
        self.place = Places(self.place_changed, lambda: len(trace.peek_scope()))
        self.place.add_state(Place.DECOMPOSITION, lambda: len(trace.open_scopes) > 1)
        #: what the program has written so far outside of it
        self.writes = Writes()
        self.writes.add_kind(objects.writes)
        self.writes.add_kind(self.variables.writes)
        self.writes.add_kind(lambda: (write for state in self.states() for write in state.writes()))
        #: functions, classes and cells that the program created, by id; held, so that no id is used again
        self.created_by_program: dict[int, Any] = {}
        self.written_class_attributes: set[str] = set()  # names, of whichever class
        #: the ambient state when the call began
        self.modes, self.autocast_settings = ambient_state.Modes.now(), ambient_state.autocast_settings()
        self.autocast = Autocast()
        self.handled_outside = sys.exception()  # the exception that the caller is handling
        #: whether an operator was called where a handler of the program would see an error of it
        self.handles_errors = False
        self.catches_errors = False  # or where one may end it
        self.shown_proxy: Proxy | TensorProxy | None = None  # whose text was made last
        #: how many calls of native code run that looks into what the program yields or returns to it
        self.native_reads = 0
        #: answers questions about data, if the program may ask them
        self.speculation: Speculation | None = None
        self.tracks_grad = True  # whether results may require grad
        self._sizes: SizeFacts | None = None
        self.uses_arrays = False  # whether the program has arrays of NumPy
        self.roots: dict[str, Any] = {}  # the arguments of the call, by the names of their paths
        self.calls_symbols = False  # whether the program calls symbols, which exist in traces only
        self._sharp_edge = sharp_edge
        self._states: dict[type[Any], Any] = {}
        self._symbol_counts: dict[str, int] = {}

    def state(self, kind: type[S]) -> S:
        """Return the session's one object of a state class, created at the first use."""
        if not kind.is_only_read:
            self.objects.effects += 1
        state = self._states.get(kind)
        if state is None:
            state = self._states[kind] = kind(self)
        return state

    def states(self) -> Iterator[SessionState]:
        """Return the kinds of state that the program has, in the order in which they end."""
        return (self._states[kind] for kind in self.kinds if kind in self._states)

    def place_changed(self, places: frozenset[Place]) -> None:
        """Called when the program enters or leaves a part, with all in which it then is."""

    # -- objects ---------------------------------------------------------------------------------------------

    def fetched(self, path: Path) -> Any:
        """Return what is at a path when the call begins, or ABSENT."""
        return path.fetch(self.roots)

    def resolve_entry(self, obj: Any) -> ObjectEntry | None:
        """Return an object's entry; a class, function or module without a path becomes a root."""
        raise NotImplementedError

    def is_code_constant(self, value: Any) -> bool:
        """Return whether a tuple or frozenset is a constant of code: one object in all calls."""
        raise NotImplementedError

    def interprets(self, fn: Any) -> bool:
        """Return whether a Python function is interpreted: no rule, replacement or native call does it."""
        raise NotImplementedError

    def made_by(self, value: Any) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
        """Return how a rule makes an object that the program has made: a function and its arguments."""
        rule = self.handlers[type(value)].made_by
        return None if rule is None else rule(self, value)

    def member_path(self, entry: ObjectEntry, name: str) -> Path:
        """Return the path of a dictionary that a module has under ``name``."""
        path = entry.members.get(name)
        if path is None:
            path = entry.members[name] = entry.path.step("instance", name)
        return path

    def forget_reads(self) -> None:
        """Let attributes, items and variables be read again, except for what the program has written."""
        raise NotImplementedError

    def read_lists(self, *values: Any) -> None:
        """Read the lists among values that a rule looks into, and in containers at any depth."""
        raise NotImplementedError

    def may_run_unseen(self) -> bool:
        """Return whether code that thunder does not see may run here, once in each call of the program."""
        return self.speculation is not None and self.place.allows(CALLS_PACKAGE)

    def load_plain(self, obj: Any, name: str) -> Any:
        """Return ``obj.name`` by Python's protocol, which the class decides: a fact."""
        self.type_attr(type(obj), "__getattribute__")
        return self.machine.generic_load_attr(obj, name)

    def store_plain(self, obj: Any, name: str, value: Any) -> None:
        """Do ``obj.name = value`` by Python's protocol."""
        self.type_attr(type(obj), "__setattr__")
        self.machine.generic_store_attr(obj, name, value)

    def delete_plain(self, obj: Any, name: str) -> None:
        """Do ``del obj.name`` by Python's protocol."""
        self.type_attr(type(obj), "__delattr__")
        self.machine.generic_delete_attr(obj, name)

    def note_write(self) -> None:
        """Called before the program writes to a Python object."""
        self.objects.effects += 1

    def check_fact(self, fact: Fact) -> None:
        """Called before a new fact is noted; may raise."""

    def note_operator(self) -> None:
        """Called before the program records an operator."""

    def note_state(self, query: Callable[[], Any], name: str, answer: Any) -> None:
        """Guard what a query of the surroundings answers, which is the same as long as nobody changes it."""
        self.note(prims.check_state, self.object_root(query, name), answer)

    def note_autocast(self) -> None:
        """Guard the settings of autocast when the call began, which what follows depends on."""
        settings = self.object_root(ambient_state.autocast_settings, "torch's autocast")
        self.note(prims.check_state, settings, self.autocast_settings)

    def effect_of(self, fn: Any) -> Effect:
        """Return what a call of a function does that its arguments do not show."""
        raise NotImplementedError

    def run_native(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call native code by the tables of natives, when nothing overrides the call."""
        raise NotImplementedError

    def call_unmodelled(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function on tensors that thunder does not model, see Note [Unmodelled tensors]."""
        raise NotImplementedError

    def gradient_node(self, x: TensorProxy) -> Any:
        """Return ``x.grad_fn`` of a tensor that is not a leaf, as the program sees it."""
        raise NotImplementedError

    # -- the trace -------------------------------------------------------------------------------------------

    def locate(self) -> Source | None:
        """Return the running line of the program, at which an operator is called."""
        return source_of(self.machine.frames, self.modules.running(self.machine.frames))

    def unique_id(self, base: str) -> str:
        """Return ``base``, numbered from the second call on, as the id of a program's symbol."""
        count = self._symbol_counts[base] = self._symbol_counts.get(base, 0) + 1
        return base if count == 1 else f"{base}#{count}"

    def locations(self) -> list[Location]:
        """Return the running lines of the program, innermost first."""
        return locations(self.machine.frames)

    def follow_sizes(self, sizes: SizeFacts | None) -> None:
        """Let questions about symbolic sizes be noted with the running line of the program."""
        self._sizes = sizes
        if sizes is not None:
            sizes.locate = lambda: "" if (source := self.locate()) is None else str(source.location)

    def refuse_sharp_edge(self, what: str, hint: str | None = None) -> None:
        """Refuse, or warn of, a read that can be neither guarded nor replayed."""
        self.objects.effects += 1
        self._sharp_edge(SharpEdge(what, where=self.locations(), hint=hint))

    def forget(self) -> None:
        """Release everything of the user's, so that only the facts hold it."""
        self.created_by_program.clear()
        if self._sizes is not None:
            self._sizes.locate = str  # passes and executors ask from now on
        for state in self._states.values():
            state.end()
        self._states.clear()
        self.writes.forget()
        self.variables.forget()
        self.modules.forget()
        self.objects.forget()
        self.machine.has_ended = True
        self.speculation, self.roots = None, {}
        del self.machine, self.handled_outside, self.place
