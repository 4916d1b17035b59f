"""Open sets of tags: enumerations to which plugins can add members."""

from __future__ import annotations

from typing import Any, ClassVar, Self


class _TagMeta(type):
    """Looks members up by attribute: ``TraceTag.BACKWARD``."""

    members: dict[str, Any]

    def __getattr__(cls, name: str) -> Any:
        try:
            return cls.members[name]
        except KeyError:
            raise AttributeError(
                f"{cls.__name__} has no tag {name!r}; register_tag({name!r}) adds one"
            ) from None


class OpenTag(metaclass=_TagMeta):
    """Base class of tags. Each subclass has its own members, one object per name."""

    members: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        cls.members = {}

    def __init__(self, name: str) -> None:
        self.name = name

    @classmethod
    def register_tag(cls, name: str) -> Self:
        """Add the member ``name`` unless it exists; return it."""
        if name not in cls.members:
            cls.members[name] = cls(name)
            if not any(name in vars(base) for base in cls.__mro__):
                setattr(cls, name, cls.members[name])  # found sooner than by the metaclass
        return cls.members[name]  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


class OpTags(OpenTag):
    """Facts about an operator, declared in its row; :meth:`register_tag` adds more."""


for _tag in (
    #: moves elements, and computes none
    "SHAPE_OP",
    "REDUCTION_OP",
    #: draws random numbers, or reads or changes the state of a generator
    "RANDOM_OP",
    "MATMUL_OP",
    #: its results hold whatever their memory held before
    "UNINITIALIZED",
    #: waits for the device
    "DEVICE_SYNC_OP",
    #: runs even if nothing reads its results
    "DONT_DCE",
    #: writes to an argument
    "IN_PLACE",
    #: writes to an argument, and keeps what it overwrites until the call of the program ends
    "KEEPS_OVERWRITTEN",
    #: writes to an argument that the program has computed, and the caller does not hold
    "WRITES_OWN_MEMORY",
    "CTX_MANAGER_ENTER_EXIT_OP",
    #: computes each element from the elements at the same place in the arguments; cheap to recompute
    "POINTWISE_OP",
    #: costs little more than reading and writing its elements once, so that a backward may compute it again
    "CHEAP_TO_RECOMPUTE",
    "DONT_RECOMPUTE_IN_BACKWARD",
    #: returns memory of an argument; with MAYBE, for some layouts of it
    "VIEW",
    "MAYBE_VIEW",
    #: another way to declare ``vjp=NONDIFFERENTIABLE``
    "NONDIFFERENTIABLE",
    #: a function of torch without a row, run as it is
    "FALLBACK",
    #: raises DecisionChanged where its data, or the sizes of its results, are not those of the trace
    "CHECKS_DECISION",
    #: finds a size on which shapes of later calls depend, its last result
    "COMPUTES_SIZE",
    #: its result is its first argument, of which all that is computed and saved reads the result
    "HOOKED",
    #: returns views of arguments, of which all that is saved reads the arguments
    "HOOKED_ARGUMENTS",
    #: its results are compared with its meta function's when they are computed
    "CHECK_RESULTS",
):
    OpTags.register_tag(_tag)

#: the tags of operators that return memory of an argument, always or for some layouts of it
VIEW_TAGS = frozenset({OpTags.VIEW, OpTags.MAYBE_VIEW})
