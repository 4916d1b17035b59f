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
    #: what the class is called with for a tag that is no member
    arguments: tuple[Any, ...] = ()

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
    #: its results have the default dtype where no dtype is passed, whatever the arguments are
    "DEFAULT_DTYPE",
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
    #: changes torch's ambient state, such as whether gradients are recorded
    "SETS_MODE",
    #: computes each element from the elements at the same place in the arguments; cheap to recompute
    "POINTWISE_OP",
    #: costs little more than reading and writing its elements once, so that a backward may compute it again
    "CHEAP_TO_RECOMPUTE",
    "DONT_RECOMPUTE_IN_BACKWARD",
    #: returns memory of an argument; with MAYBE, for some layouts of it
    "VIEW",
    "MAYBE_VIEW",
    #: returns several views that share one node of torch's graph, so that none of them may be written there
    "SEVERAL_VIEWS",
    #: exists for some layouts of its argument only, or reads the memory around it
    "READS_LAYOUT",
    #: returns its first argument itself where that has the memory format, or not the mark that it resolves
    "MAYBE_ARGUMENT",
    #: its result may be marked as conjugate or negative
    "MAY_MARK",
    #: its result has the elements of the first argument, and nothing else is read
    "SAME_ELEMENTS",
    #: its two operands may be exchanged: no bit of the result changes
    "COMMUTATIVE",
    #: torch's tangents of it are not the transpose of its gradients: those of matrices are gradients of
    #: symmetric ones, and several values may be written to one element
    "OTHER_TANGENTS",
    #: may raise for the values in its arguments, such as an index out of range or a singular matrix
    "RAISES_ON_DATA",
    #: a composite that raises so only where a call in it does, for some of its arguments
    "RAISES_BY_PARTS",
    #: asserts on the device, where that is a GPU, that an index is in range
    "ASSERTS_ON_GPU",
    #: raises for zeros in an integer divisor, on a CPU
    "DIVIDES",
    #: raises nothing, and allocates nothing
    "NEVER_RAISES",
    #: of an operator of a package: its arguments alone determine the result, and it has no effect, so that
    #: the result may be kept for another call with the same arguments
    "PURE",
    #: reads an operand without dimensions before it writes
    "READS_NUMBER_FIRST",
    #: reads elements after it has written some: no operand, or none but the first, may overlap what it writes
    "NO_OVERLAP",
    "NO_OVERLAP_BUT_FIRST",
    #: another way to declare ``vjp=NONDIFFERENTIABLE``
    "NONDIFFERENTIABLE",
    #: a function of torch without a row, run as it is
    "FALLBACK",
    #: computes nothing on which a decision may depend, so that an early run leaves it out
    "SKIPPED_EARLY",
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
