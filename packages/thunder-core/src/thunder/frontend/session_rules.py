"""What the frontend knows of a library beside operators: rules that plugins contribute by one hook.

    @hookimpl
    def thunder_session_rules():
        return [SessionRules("toy", lookasides=TABLE, handlers={Grid: Handler(load=load)}, kinds=(State,))]

The rules of thunder itself are those of built-in plugins (:mod:`~thunder.frontend.builtin_rules` has most). A
session is traced by the rules of all plugins as they are when it begins; no two may have a rule for one
function or type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from thunder.base.errors import InvalidArgument
from thunder.base.provenance import Path
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.session import SessionState, TracingSession, of_package
from thunder.plugins.contributions import list_of, per_generation
from thunder.plugins.manager import PluginManager
from thunder.plugins.plugin_info import PluginState

__all__ = ["Handler", "HandlerTable", "SessionRules", "session_rules"]

HOOK: Final = "thunder_session_rules"
#: the plugin whose kinds of state end last: they look at what the others have written and recorded
LAST: Final = "session"


@dataclass(frozen=True, eq=False, slots=True)
class Handler:
    """The rules of one type: what its objects are to the program. None is Python's own protocol.

        obj.name, obj.name = v, del obj.name    load(session, obj, name), store(…, value), delete(…)
        type(obj), obj.__class__                class_of(session, obj)
        obj is other                            is_same(session, obj, other), then that of the other
        if obj: …; float(obj)                   truth(session, obj); number(session, obj, float)
        obj is reached from an input            adopt(session, obj, path): what the program sees of it
        the program returns or stores obj       made_by(session, obj): a function and its arguments

    ``is_same``, ``truth`` and ``number`` return NotImplemented where they do not know, ``made_by`` None for
    an object of the user and for one that is built of its attributes. ``inherited`` says that the rules hold
    for derived classes without a row too. Calls have their order in :data:`~.call_dispatch.RESOLVERS`.
    """

    load: Callable[[TracingSession, Any, str], Any] | None = None
    store: Callable[[TracingSession, Any, str, Any], None] | None = None
    delete: Callable[[TracingSession, Any, str], None] | None = None
    class_of: Callable[[TracingSession, Any], type] | None = None
    is_same: Callable[[TracingSession, Any, Any], Any] | None = None
    truth: Callable[[TracingSession, Any], Any] | None = None
    number: Callable[[TracingSession, Any, Callable[..., Any]], Any] | None = None
    adopt: Callable[[TracingSession, Any, Path], Any] | None = None
    made_by: Callable[[TracingSession, Any], tuple[Callable[..., Any], tuple[Any, ...]] | None] | None = None
    inherited: bool = False

    def __post_init__(self) -> None:
        for column in fields(self):
            rule = getattr(self, column.name)
            if callable(rule):
                object.__setattr__(self, column.name, of_package(rule, may_raise=True))


@dataclass(frozen=True, eq=False, kw_only=True)
class SessionRules:
    """The rules by which programs that use a library are traced.

    Args:
        name: of the library or subject.
        lookasides: the functions that a rule carries out.
        handlers: what objects are to the program, by exact type, or by a function that recognises a type
            which need not be imported yet.
        kinds: the states that are written, checked at the end, or in the epilogue, in the order in which they
            end.
    """

    name: str = field(kw_only=False)
    lookasides: LookasideTable = field(default_factory=lambda: LookasideTable.merged(()))
    handlers: Mapping[Any, Handler] = field(default_factory=dict)  # also a mapping of the keys type[Grid]
    kinds: tuple[type[SessionState], ...] = ()

    def __post_init__(self) -> None:
        fits = isinstance(self.lookasides, LookasideTable)
        fits &= all(isinstance(row, Handler) for row in self.handlers.values())
        fits &= all(isinstance(kind, type) and issubclass(kind, SessionState) for kind in self.kinds)
        if not fits:
            raise InvalidArgument(
                f"SessionRules {self.name!r} received other values than rules",
                found={"lookasides": self.lookasides, "handlers": self.handlers, "kinds": self.kinds},
                hint="Pass a LookasideTable, Handlers by type, and classes of SessionState.",
            )

    @property
    def keys(self) -> frozenset[Any]:
        """The keys of all rules: types, and those of the lookasides."""
        return frozenset((*self.lookasides.keys, *self.handlers, *self.kinds))

    def name_of(self, key: Any) -> str:
        """Return the name of what a rule is for."""
        is_type = key in self.handlers or key in self.kinds
        return f"{key.__module__}.{key.__qualname__}" if is_type else self.lookasides.name_of(key)


class HandlerTable(dict[type, Handler]):
    """The handlers of one session, by exact type.

    The table holds the classes that it has met, and ends with the session.
    """

    def __init__(self, handlers: Mapping[Any, Handler]) -> None:
        super().__init__({key: row for key, row in handlers.items() if isinstance(key, type)})
        self.rows = handlers
        self._recognised = [(key, row) for key, row in handlers.items() if not isinstance(key, type)]

    def __missing__(self, cls: type) -> Handler:
        rows = (row for is_meant, row in self._recognised if is_meant(cls))
        inherited = (self[base] for base in cls.__mro__[1:] if base in self and self[base].inherited)
        self[cls] = row = next(rows, None) or next(inherited, _PLAIN)
        return row


_PLAIN: Final = Handler()


def _collect(manager: PluginManager) -> SessionRules:
    """Return the rules of all plugins as one; raises PluginError for two rules for one function or type."""
    hint = "thunder.core.session.SessionRules(name, lookasides=…, handlers=…, kinds=…) is one."
    listed = [
        (plugin, rules)
        for plugin, result in manager.call(HOOK)
        for rules in list_of(SessionRules, manager, plugin, HOOK, result, hint)
    ]
    if all(plugin != LAST for plugin, _ in listed):
        raise InvalidArgument(
            f"no program can be traced without the plugin {LAST!r} of thunder, which is disabled",
            hint="Leave it out of THUNDER_DISABLE_PLUGINS and of thunder.plugins.disabled.",
        )
    own = {info.name for info in manager.loaded() if info.state is PluginState.BUILTIN}
    owners: dict[Any, str] = {}
    for plugin, rules in sorted(listed, key=lambda item: item[0] not in own):  # no package is before thunder
        for key in rules.keys & owners.keys():
            who = f"plugins {owners[key]!r} and {plugin!r} both have a rule"
            who = who if owners[key] != plugin else f"plugin {plugin!r} has two rules"
            raise manager.fault(plugin, f"{who} for {rules.name_of(key)}", HOOK)
        owners |= dict.fromkeys(rules.keys, plugin)
    ordered = [rules for _, rules in sorted(listed, key=lambda item: item[0] == LAST)]
    return SessionRules(
        "all plugins",
        lookasides=LookasideTable.merged(rules.lookasides for rules in ordered),
        handlers={key: row for rules in ordered for key, row in rules.handlers.items()},
        kinds=tuple(kind for rules in ordered for kind in rules.kinds),
    )


session_rules = per_generation(_collect)
