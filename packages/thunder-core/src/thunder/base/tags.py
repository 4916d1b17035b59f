"""Open sets of tags: enumerations to which plugins may add members."""

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
    """Base class of tags. Each subclass has its own members; a member is one object per name."""

    members: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        cls.members = {}

    def __init__(self, name: str) -> None:
        self.name = name

    @classmethod
    def register_tag(cls, name: str) -> Self:
        """Adds (or returns) the member ``name``."""
        if name not in cls.members:
            cls.members[name] = cls(name)
        return cls.members[name]  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


class OpTags(OpenTag):
    """What kind of operator a row describes; :meth:`register_tag` adds kinds."""


for _tag in (
    "SHAPE_OP",
    "REDUCTION_OP",
    "RANDOM_OP",
    "MATMUL_OP",
    "DEVICE_SYNC_OP",
    "DONT_DCE",
    "IN_PLACE",
    "CTX_MANAGER_ENTER_EXIT_OP",
    "DONT_RECOMPUTE_IN_BACKWARD",
    "VIEW",
    "MAYBE_VIEW",
    "NONDIFFERENTIABLE",
    "FALLBACK",
):
    OpTags.register_tag(_tag)
