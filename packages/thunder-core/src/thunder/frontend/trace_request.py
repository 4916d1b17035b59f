"""The request for one trace of a program: the call, and what of it is a symbol."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from thunder.base.devices import Device
from thunder.base.errors import ThunderError
from thunder.base.langctx import LanguageContext
from thunder.frontend.guards import Trusted
from thunder.frontend.size_choice import SizeChoice
from thunder.frontend.traced_replacements import Replacement
from thunder.wrappers.overrides import Overrides

__all__ = ["TraceRequest"]


@dataclass(frozen=True, kw_only=True)
class TraceRequest:
    """A call of a program that is to be traced, and how."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    #: in which calls of torch's functions are interpreted
    language: LanguageContext
    #: called with each read that no guard checks
    sharp_edge: Callable[[ThunderError], None]
    disable_grad: bool = False
    trusted: Trusted = "nothing"
    #: whether no guard checks that inputs which the program writes share no memory
    inputs_are_disjoint: bool = False
    #: whether the interpreter notes each instruction
    record_log: bool = False
    #: functions, by name, whose results are guarded
    contributed: Mapping[str, Callable[[], Mapping[str, Any]]] = field(default_factory=dict)
    #: tensors that the program reads in place of those of ``fn``, a module
    overrides: Overrides | None = None
    #: whether a transform may change how the program reads its inputs
    rewrites_inputs: bool = False
    #: where all tensors from outside are taken to be
    device: Device | None = None
    #: functions in whose place others are traced, first wins
    replacements: Iterable[Replacement] = ()
    #: callables, or dotted paths, that run as they are (Note [Opaque calls])
    opaque: Iterable[Any] = ()
    #: the answers to the first questions about data; the program is run for the others. With None it is not
    #: run, and questions are refused
    answers: tuple[Any, ...] | None = None
    #: which sizes of tensors and numbers of the arguments are symbols (Note [Symbolic sizes])
    sizes: SizeChoice | None = None
